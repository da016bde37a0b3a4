"""Whole runs without Spark: the same rows whatever the order, the hash seed, or an interruption."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from streams_py.backtest import run as backtest_run
from streams_py.backtest.candidates import parse_candidate
from streams_py.backtest.folder import RunFolder
from streams_py.backtest.generate import History, generate
from streams_py.backtest.kernel import EVENTS, TIMES, Orders, Row
from streams_py.backtest.run import evaluate_locally, read_scores
from streams_py.backtest.sources import Skipped, situations_in
from streams_py.errors import ConfigError
from tests.support.backtest.digest import score_digest
from tests.support.backtest.golden import golden_texts
from tests.support.system.file_locks import held_elsewhere

SMALL = History(tasks=8, clients=3, threads=1, records=10_000)
ORDERS = Orders(
    [parse_candidate(text) for text in ("recorded", "ha=builtin:high_availability", "sticky")],
    scenarios=("", "add_clients(1)"),
)
EVENTS_FILE = Path(__file__).parents[2] / "golden" / "telemetry" / "events.jsonl"


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return list(generate(SMALL, 12))


def scores(folder: Path) -> list[Row]:
    return list(read_scores(RunFolder(str(folder))))


def test_history_is_the_same_when_the_seed_is() -> None:
    assert list(generate(SMALL, 10)) == list(generate(SMALL, 10))
    assert list(generate(SMALL, 10)) != list(generate(History(tasks=8, clients=3, threads=1, seed=1), 10))


def test_history_is_refused_when_there_is_nothing_to_simulate() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        History(tasks=0)


def test_run_leaves_a_row_for_each_situation_scenario_and_candidate(texts: list[str], tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    summary = evaluate_locally(ORDERS, [*texts, texts[0]], tmp_path, tick=lambda *at: heard.append(at))
    found = [row for row in scores(tmp_path) if row["scenario"] != EVENTS]
    different = len(set(texts))
    assert len(found) == different * 2 * 3
    assert summary.events > 0
    assert (summary.situations, summary.seen) == (different, 13)
    assert heard[-1] == (13, 13)
    assert max(row["seen"] for row in found) == 2
    assert not (tmp_path / "_inputs").exists()


def test_scores_are_equal_but_for_times_when_order_and_hash_seed_differ(texts: list[str], tmp_path: Path) -> None:
    evaluate_locally(ORDERS, texts, tmp_path / "here")
    here = score_digest(scores(tmp_path / "here"))
    alone = replace(ORDERS, loop=False)  # backwards it is another history, but the same situations
    evaluate_locally(alone, reversed(texts), tmp_path / "reversed")
    situations = [row for row in scores(tmp_path / "here") if row["scenario"] != EVENTS]
    assert score_digest(scores(tmp_path / "reversed")) == score_digest(situations)
    (tmp_path / "in.jsonl").write_text("\n".join(texts), encoding="utf-8")
    arguments = [option for c in ORDERS.candidates for option in ("--candidate", f"{c.name}={c.spec}")]
    arguments += [option for scenario in ORDERS.scenarios for option in ("--what-if", scenario)]
    out = tmp_path / "other seed"
    arguments += ["--inputs", str(tmp_path / "in.jsonl"), "--out", str(out), "--engine", "local"]
    done = subprocess.run(
        [sys.executable, "-m", "streams_py.cli.spark.backtest", *arguments],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert score_digest(scores(out)) == here
    assert set(TIMES) <= scores(tmp_path / "here")[0].keys()


class KilledError(Exception):
    pass


def test_result_is_the_same_when_a_killed_run_is_resumed(texts: list[str], tmp_path: Path) -> None:
    evaluate_locally(ORDERS, texts, tmp_path / "whole")
    half = tmp_path / "half"

    def kill(done: int, total: int) -> None:
        if done > total // 2:
            raise KilledError

    with pytest.raises(KilledError):
        evaluate_locally(ORDERS, texts, half, inputs="x", tick=kill)
    finished = {path: path.stat().st_mtime_ns for path in half.glob("scores/*/*.parquet")}
    assert finished
    assert len(finished) < len(list((tmp_path / "whole").glob("scores/*/*.parquet")))
    summary = evaluate_locally(ORDERS, texts, half, inputs="x", resume=True)
    assert score_digest(scores(half)) == score_digest(scores(tmp_path / "whole"))
    assert summary.situations == len(set(texts))
    assert all(path.stat().st_mtime_ns == before for path, before in finished.items())  # not made again


def test_rows_of_a_killed_wave_are_gone_when_the_run_is_resumed(texts: list[str], tmp_path: Path) -> None:
    evaluate_locally(ORDERS, texts, tmp_path / "whole")
    half = tmp_path / "half"
    evaluate_locally(ORDERS, texts, half, inputs="x")
    one = next(half.glob("scores/*"))
    left = half / "scores" / "prefix=00-ff"  # as Spark names it: everything once more
    left.mkdir()
    shutil.copy(one / "scores.parquet", left / "part-0.parquet")
    for marker in list(half.glob("done/*"))[:2]:
        marker.unlink()
    evaluate_locally(ORDERS, texts, half, inputs="x", resume=True)
    assert not left.exists()
    assert score_digest(scores(half)) == score_digest(scores(tmp_path / "whole"))


def test_folder_is_refused_when_it_is_not_empty_or_anothers(texts: list[str], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty; use a new folder"):
        evaluate_locally(ORDERS, texts, tmp_path)
    with pytest.raises(ConfigError, match="has no run to resume"):
        evaluate_locally(ORDERS, texts, tmp_path, resume=True)
    out = tmp_path / "out"
    evaluate_locally(ORDERS, texts[:2], out, inputs="x")
    with pytest.raises(ConfigError, match="not empty"):
        evaluate_locally(ORDERS, texts[:2], out, inputs="x")
    with pytest.raises(ConfigError, match="other candidates"):
        evaluate_locally(Orders(ORDERS.candidates, seed=1), texts[:2], out, inputs="x", resume=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (out / "backtest.json").write_text("")  # what a process that was killed may leave on a distant file system
    with pytest.raises(ConfigError, match="other candidates"):
        evaluate_locally(ORDERS, texts[:2], out, inputs="x", resume=True)


def test_run_is_refused_while_another_process_is_at_work_on_it(texts: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    evaluate_locally(ORDERS, texts[:1], out, inputs="x")
    with (
        held_elsewhere(out / ".lock") as holder,
        pytest.raises(ConfigError, match=f"process {holder.pid} is working on the run in {out}; stop it"),
    ):
        evaluate_locally(ORDERS, texts[:1], out, inputs="x", resume=True)
    assert evaluate_locally(ORDERS, texts[:1], out, inputs="x", resume=True).situations == 1
    assert not (out / ".lock").exists()


def test_run_may_be_resumed_when_nothing_was_begun(texts: list[str], tmp_path: Path) -> None:
    assert evaluate_locally(ORDERS, texts[:1], tmp_path / "new", resume=True).situations == 1


def test_memory_does_not_grow_when_there_are_more_situations(
    texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backtest_run, "_BUFFER_BYTES", 50_000)

    def peak(count: int) -> int:
        tracemalloc.start()
        situations = (texts[number % len(texts)].replace("}", f"}} {' ' * number}", 1) for number in range(count))
        # The rest of a run takes more memory.
        total = backtest_run._deal(situations, tmp_path / str(count), with_histories=True)
        _, found = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert total == count
        return found

    peak(10)
    assert peak(520) < 1.5 * peak(260)


# -- sources -----------------------------------------------------------------------------------------------------------


def test_situations_are_found_when_the_file_has_events() -> None:
    skipped = Skipped()
    assert list(situations_in(EVENTS_FILE, skipped)) == unweighed()
    assert skipped.lines == 0


def unweighed() -> list[str]:
    """The rows of the tables, without the shares of work, which need a fold of all events."""
    made = []
    for text in golden_texts():
        value = json.loads(text)
        assert any(piece["weight"] for piece in value["subs"]) == (len(made) > 0), "measured after the first rebalance"
        value["subs"] = [{**piece, "weight": None} for piece in value["subs"]]
        made.append(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    return made


def test_lines_are_passed_over_and_counted_when_they_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    lines = EVENTS_FILE.read_text(encoding="utf-8").splitlines()
    values = [json.loads(line)["value"] for line in lines]  # events in the form of the topic
    incomplete = [value for value in values if '"part":1,' not in value]
    path.write_text("\n".join(["{", *values, '{"v":1,"kind":"rebalance"}', "", *incomplete]), encoding="utf-8")
    skipped = Skipped()
    assert list(situations_in(path, skipped)) == unweighed()
    assert skipped.lines == 2
    assert "line 1" in skipped.reason


def test_situation_is_canonical_when_its_line_is_not(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    text = golden_texts()[0]
    path.write_text(json.dumps(json.loads(text), indent=None) + "\n", encoding="utf-8")
    assert list(situations_in(path, Skipped())) == [text]


def test_source_is_refused_when_there_is_nothing(tmp_path: Path) -> None:
    for place in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigError, match="telemetry run"):
            situations_in(place, Skipped())


def test_only_the_latest_files_count_when_the_tables_are_delta_tables(texts: list[str], tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    log = tmp_path / "rebalance_input" / "_delta_log"
    log.mkdir(parents=True)
    for name, part in (("old", texts[:2]), ("new", texts[:3])):
        pq.write_table(pa.table({"input": part}), log.parent / f"{name}.parquet")
    (log / f"{0:020d}.json").write_text('{"add":{"path":"old.parquet"}}')
    (log / f"{1:020d}.json").write_text('{"remove":{"path":"old.parquet"}}\n{"add":{"path":"new.parquet"}}')
    assert list(situations_in(tmp_path, Skipped())) == texts[:3]
