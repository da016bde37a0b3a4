"""The report: complete, escaped, and a sentence where there is nothing to show."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from streams_py.cli.spark.telemetry import app
from streams_py.errors import ConfigError
from streams_py.telemetry.fold import Output
from streams_py.telemetry.report.frame import STYLE
from streams_py.telemetry.report.images import COLOURS, write_images
from streams_py.telemetry.report.page import report_page
from streams_py.telemetry.report.series import CAUSES, COPY_MOVES, ROLES, TASK_MOVES, TASKS_MAX, cause_of
from streams_py.telemetry.report.tables import Tables, read_tables
from streams_py.telemetry.schemas import TABLES
from tests.support.events.kit import Recorder
from tests.support.leader.kit import STATELESS, member
from tests.support.telemetry.delta import commit
from tests.support.telemetry.golden import stored
from tests.support.telemetry.history import History, cluster, fold
from tests.support.telemetry.long_history import split_ddl
from tests.support.telemetry.report import EVIL, Checked


def tables(outputs: list[Output], group: str = "app") -> Tables:
    """As they would be read from a folder."""
    last = max((o.row["at"], o.row["rebalance_id"]) for o in outputs if o.table == "rebalance")[1] if outputs else ""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for output in outputs:
        if output.table in rows and (
            output.table not in ("placement", "balance", "spread") or output.row["rebalance_id"] == last
        ):
            kinds = dict(column.split(" ", 1) for column in split_ddl(TABLES[output.table].columns))
            rows[output.table].append({name: instant(v, kinds[name]) for name, v in output.row.items()})
    return Tables(group, rows)


def instant(value: Any, kind: str) -> Any:
    return datetime.fromtimestamp(value / 1000, UTC) if kind == "timestamp" and value is not None else value


def checked(page: str) -> Checked:
    found = Checked()
    found.feed(page)
    assert found.open == []
    assert found.names.isdisjoint({"script", "link", "img", "iframe"})
    assert not [value for name, value in found.attributes if name in ("src", "href")]
    return found


def test_report_of_golden_tables_shows_every_section() -> None:
    page = report_page(tables(fold(stored())))
    checked(page)
    assert "no data for" not in page
    for shown in ("member_joined", "move_warm", "0_1", "longest pause"):
        assert shown in page


def test_report_of_many_pauses_shows_how_they_are_spread() -> None:
    made = tables(fold(stored()))
    gaps = [
        {**made["gap"][0], "paused_ms": ms, "kind": kind}
        for ms in range(3, 9_000, 300)
        for kind in ("moved", "untouched")
    ]
    idle = [{**made["gap"][0], "gap_ms": 3_600_000, "paused_ms": 0}] * 3
    page = report_page(Tables("app", {**made.rows, "gap": [*gaps, *idle]}))
    checked(page)
    assert "3 times a task had no input, which does not count as a pause." in page
    assert "1.0 h" not in page
    assert page.count("≤ 500 ms") >= 2
    assert "tasks that stayed" in page


@pytest.mark.parametrize(
    ("records", "shown"),
    [(0, "0"), (999_999, "999,999"), (1_000_000, "1.0 M"), (12_345_678_901, "12.3 G"), (98_765 * 10**12, "98,765 T")],
)
def test_numbers_fit_their_cards(records: int, shown: str) -> None:
    made = tables(fold(stored()))
    moves = [{**made["move"][0], "kind": "move_cold", "restore_records": records}]
    page = report_page(Tables("app", {**made.rows, "move": moves}))
    assert f"<b>{shown}</b><span>records to restore</span>" in page
    assert len(shown) <= 8


def test_causes_of_rebalances_have_colours_of_their_own() -> None:
    fills = dict(re.findall(r"\.s-(\w+)\{fill:([^;]+);", STYLE))
    assert fills["revocation_done"] != fills["unknown"]
    assert len({COLOURS[cause] for cause in ("revocation_done", "unknown", "followup", "failed")}) == 4


def test_empty_tables_are_sentences_not_drawings() -> None:
    page = report_page(Tables("app", {}))
    checked(page)
    assert page.count("no data for") == 9
    assert "<svg" not in page


@pytest.mark.parametrize("partitions", [3, 3_000])
def test_grid_has_a_column_for_each_task_or_each_subtopology(partitions: int) -> None:
    history = History(Recorder())
    on = cluster(partitions)
    history.rebalance({f"m{n}": member(n) for n in range(1, 6)}, STATELESS, on)
    page = report_page(tables(fold(history.records)))
    checked(page)
    assert ("too many for one column each" in page) == (partitions > TASKS_MAX)
    assert len(page) < 200_000


def test_text_of_users_is_escaped() -> None:
    history = History(Recorder(num_standby_replicas=1))
    zones = {1: EVIL, 2: EVIL, 3: "b"}
    history.rebalance({f"m{n}": member(n, tags={"zone": zone}) for n, zone in zones.items()})
    made = tables(fold(history.records), group=EVIL)
    rows = {name: [dict(row) for row in of] for name, of in made.rows.items()}
    for row in (*rows["placement"], *rows["rebalance"], *rows["spread"]):
        for name in ("reason", "error_type", "error_text", "client", "tag"):
            row |= {name: EVIL} if name in row else {}
    for row in rows["spread"]:
        row |= {"violation": True, "values": [EVIL]}
    page = report_page(Tables(EVIL, rows))
    checked(page)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


# -- from files --------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Golden tables as telemetry leaves them."""
    (tmp_path / "telemetry.json").write_text('{"format": 1, "group": "app"}\n')
    found = defaultdict(list)
    for output in fold(stored()):
        if output.table in TABLES:
            found[output.table].append(output.row)
    for table, rows in found.items():
        kinds = dict(column.split(" ", 1) for column in split_ddl(TABLES[table].columns))
        columns = {name: [instant(row[name], kind) for row in rows] for name, kind in kinds.items()}
        if "duration_us" in columns:
            columns["duration_us"] = pa.array(
                [list(of.items()) for of in columns["duration_us"]], pa.map_(pa.string(), pa.int64())
            )
        where = tmp_path / table / "group=app" / "day=2023-11-15"
        where.mkdir(parents=True)
        pq.write_table(pa.table(columns), where / "part-0.parquet")
    return tmp_path


def test_tables_are_read_from_their_folder(folder: Path) -> None:
    found = read_tables(folder)
    assert found.group == "app"
    assert len(found["rebalance"]) == 5
    assert found["rebalance"][0]["duration_us"]["total"] > 0
    assert {row["rebalance_id"][-3:] for row in found["placement"]} == {"5-0"}
    assert report_page(found) == report_page(tables(fold(stored())))


def test_only_the_last_rebalances_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams_py.telemetry.report.tables.REBALANCES_MAX", 2)
    found = read_tables(folder)
    assert found.rebalances == 5
    assert [row["generation"] for row in found["rebalance"]] == [4, 5]
    assert {row["rebalance_id"] for row in found["move"]} <= {row["rebalance_id"] for row in found["rebalance"]}
    page = report_page(found)
    assert "<b>5</b><span>rebalances</span>" in page
    assert "cold, in the last 2<" in page


def test_tables_of_another_group_in_the_folder_are_left_alone(folder: Path) -> None:
    for table in TABLES:
        shutil.copytree(folder / table / "group=app", folder / table / "group=other")
    assert report_page(read_tables(folder)) == report_page(tables(fold(stored())))


def test_delta_tables_are_read_as_of_their_last_commit(folder: Path) -> None:
    for table in TABLES:
        (file,) = (folder / table).rglob("*.parquet")
        shutil.copy(file, file.with_name("replaced.parquet"))
        commit(folder / table, 0, add=("group=app/day=2023-11-15/replaced.parquet",))
        live = str(file.relative_to(folder / table))
        commit(folder / table, 1, add=(live,), remove=("group=app/day=2023-11-15/replaced.parquet",))
    assert report_page(read_tables(folder)) == report_page(tables(fold(stored())))


def test_folder_without_tables_is_explained(tmp_path: Path) -> None:
    for damaged in (None, "", "[]"):
        if damaged is not None:
            (tmp_path / "telemetry.json").write_text(damaged)
        with pytest.raises(
            ConfigError, match=r"has no telemetry tables; create them first: `streams-py telemetry run --group GROUP"
        ):
            read_tables(tmp_path)


def test_commands_show_and_write(folder: Path, tmp_path: Path) -> None:
    runner = CliRunner(env={"COLUMNS": "200"})
    done = runner.invoke(app, ["moves", "--tables", str(folder), "--last", "2"])
    assert done.exit_code == 0
    assert "member joined" in done.stdout
    assert len([line for line in done.stdout.splitlines() if "2023-11-15" in line]) == 2
    done = runner.invoke(app, ["placement", "--tables", str(folder)])
    assert done.exit_code == 0
    assert "00000000-0000-0000-0000-000000000003" in done.stdout
    target = tmp_path / "report.html"
    assert runner.invoke(app, ["report", "--tables", str(folder), "--out", str(target)]).exit_code == 0
    checked(target.read_text(encoding="utf-8"))


def test_folder_gets_the_charts_as_images_too(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    done = CliRunner(env={"COLUMNS": "400"}).invoke(app, ["report", "--tables", str(folder), "--out", str(out)])
    assert done.exit_code == 0, done.output
    names = ["balance", "moves", "pauses", "placement", "restores", "timeline"]
    assert {path.name for path in out.iterdir()} == {*(f"{name}.png" for name in names), "telemetry.html"}
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in out.glob("*.png"))


def test_images_of_nothing_are_none(tmp_path: Path) -> None:
    assert write_images(Tables("app", {}), tmp_path) == []


def test_command_explains_a_folder_that_is_none(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", "--tables", str(tmp_path / "nothing")])
    assert done.exit_code == 2
    assert "has no telemetry tables" in done.output.replace("\n", " ")


def test_terminal_shows_names_as_they_are(folder: Path) -> None:
    (folder / "telemetry.json").write_text('{"group": "[/]app"}')
    for table in TABLES:
        (folder / table / "group=app").rename(folder / table / "group=%5B%2F%5Dapp")
    for command in ("moves", "placement"):
        done = CliRunner(env={"COLUMNS": "200"}).invoke(app, [command, "--tables", str(folder)])
        assert done.exit_code == 0, done.output
        assert f"[/]app: {command}" in done.stdout


@pytest.mark.parametrize("command", ["report", "moves", "placement"])
def test_table_that_is_damaged_is_named(folder: Path, tmp_path: Path, command: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (file,) = (copy / "rebalance").rglob("*.parquet")
    file.write_bytes(b"no Parquet")
    more = ["--out", str(tmp_path / "report.html")] if command == "report" else []
    done = CliRunner(env={"COLUMNS": "400"}).invoke(app, [command, "--tables", str(copy), *more])
    assert done.exit_code == 2, done.output
    assert file.name in done.stderr
    assert not (tmp_path / "report.html").exists()


def many_rebalances(count: int) -> list[dict[str, Any]]:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        {
            "at": start + timedelta(minutes=number),
            "trigger": ["followup"] if number % 2 else ["member_joined", "followup"],
            "outcome": "ok" if number % 10 else "raised",
        }
        for number in range(count)
    ]


def test_many_rebalances_are_counted_in_spans_and_all_of_them_are_shown() -> None:
    """One mark for each would be a solid bar, and only the newest ones would be read for it."""
    made = tables(fold(stored()))
    rows = many_rebalances(4_855)
    page = report_page(Tables("app", made.rows, len(rows), rows))
    chart = page.partition("<h2>Rebalances</h2>")[2].partition("</section>")[0]
    assert "All 4,855 rebalances, counted in 60 spans of " in chart
    assert chart.count("<rect") <= 60 * 3
    titles = re.findall(r"<title>from [^<]*?: ([^<]*)</title>", chart)
    assert len(titles) == 60
    counted = [int(number.replace(",", "")) for title in titles for number in re.findall(r"([\d,]+) [a-z]", title)]
    assert sum(counted) == 4_855
    assert "<b>4,855</b><span>rebalances</span>" in page
    assert "486 failed" in page


def test_few_rebalances_have_a_mark_each() -> None:
    made = tables(fold(stored()))
    page = report_page(made)
    chart = page.partition("<h2>Rebalances</h2>")[2].partition("</section>")[0]
    assert chart.count(" mark") == len(made["rebalance"])


def test_restorations_that_restored_nothing_are_counted_apart() -> None:
    """A task whose state is on the disk is "restored" in 0 ms with 0 records: that says nothing about restoring."""
    made = tables(fold(stored()))
    common = {"process": "p", "started": datetime(2026, 1, 1, tzinfo=UTC), "records_per_s": None, "outcome": "done"}
    rows = [common | {"task": f"0_{n}", "records": 0, "took_ms": 0} for n in range(30)]
    rows += [common | {"task": f"1_{n}", "records": 5_000, "took_ms": 2_000} for n in range(3)]
    page = report_page(Tables("app", {**made.rows, "restore": rows}))
    section = page.partition("<h2>Restorations</h2>")[2].partition("</section>")[0]
    assert "3 done, 0 interrupted, 0 running. 30 more found their state complete and restored no record." in section
    assert "<td>time</td><td>2.0 s</td><td>2.0 s</td><td>2.0 s</td><td>2.0 s</td><td>3</td>" in section
    assert "0 ms" not in section


def test_cause_of_several_triggers_is_the_same_in_every_chart() -> None:
    assert cause_of({"outcome": "ok", "trigger": ["followup", "member_left"]}) == "member_left"
    assert cause_of({"outcome": "ok", "trigger": ["of a later version"]}) == "unknown"
    assert cause_of({"outcome": "timed_out", "trigger": ["first"]}) == "failed"
    assert {*CAUSES, *TASK_MOVES, *COPY_MOVES, *ROLES} == COLOURS.keys()
