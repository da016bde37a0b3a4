"""The backtest on a real Spark session of two cores: the same rows as without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streams_py.backtest.candidates import Candidate, parse_candidate
from streams_py.backtest.folder import RunFolder
from streams_py.backtest.generate import History, generate
from streams_py.backtest.kernel import Orders
from streams_py.backtest.run import evaluate_locally
from streams_py.backtest.sources import Skipped, situations_in
from streams_py.backtest.summary import Summary
from streams_py.backtest.verdict import verdict_of
from streams_py.errors import ConfigError
from streams_py.spark import backtest as on_spark
from streams_py.spark.backtest import evaluate_on_spark
from tests.support.backtest import assignors
from tests.support.backtest.digest import score_digest
from tests.support.spark.backtest import scores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORY = History(tasks=8, clients=3, threads=1, records=10_000)
ORDERS = Orders(
    [
        *(parse_candidate(text) for text in ("recorded", "ha=builtin:high_availability", "sticky")),
        Candidate("raises for three", "tests.support.backtest.assignors:RaisesForThree"),
    ],
    scenarios=("", "add_clients(1)"),
)
GOOD = """
from tests.support.backtest.assignors import InTurn

class FromFile(InTurn):
    pass
"""


def assert_alike(one: Summary, other: Summary) -> None:
    assert one.findings == other.findings
    assert one.rows == other.rows
    assert (one.situations, one.seen) == (other.situations, other.seen)
    for key, distributions in one.distributions.items():
        assert distributions.keys() == other.distributions[key].keys()
        for metric, found in distributions.items():
            if metric != "ns_cpu":
                assert found[:4] == other.distributions[key][metric][:4], (key, metric)
                assert found.mean == pytest.approx(other.distributions[key][metric].mean)
                if key in one.against:
                    assert one.against[key][metric] == other.against[key][metric], (key, metric)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of telemetry with one situation twice. The order follows from generations, not from ids."""
    root = tmp_path_factory.mktemp("tables")
    texts = list(generate(HISTORY, 24))
    order = {"rebalance_id": [str(n) for n in range(13)], "epoch": [0] * 13, "generation": list(range(13))}
    (root / "rebalance").mkdir()
    pq.write_table(pa.table(order), root / "rebalance" / "a.parquet")
    for day, part in (("2026-01-01", texts[:12]), ("2026-01-02", [*texts[12:], texts[0]])):
        folder = root / "rebalance_input" / "group=app" / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(
            pa.table({"rebalance_id": [str(n) for n in range(len(part))], "input": part}), folder / "a.parquet"
        )
    return str(root)


def test_rows_and_summary_equal_those_without_spark(spark: SparkSession, tables: str, tmp_path: Path) -> None:
    here = evaluate_locally(ORDERS, situations_in(tables, Skipped()), tmp_path / "here")
    heard: list[tuple[int, int]] = []
    there = evaluate_on_spark(spark, ORDERS, tables, str(tmp_path / "there"), tick=lambda *at: heard.append(at))
    assert score_digest(scores(tmp_path / "there")) == score_digest(scores(tmp_path / "here"))
    assert_alike(here, there)
    assert here.findings[0].candidate == "raises for three"
    assert heard[-1] == (here.situations, here.situations)
    assert there.seen == 25
    assert here.events == there.events > 1
    assert here.reproduced == there.reproduced == (here.situations, here.situations)
    verdict = verdict_of(there)
    assert verdict == verdict_of(here)
    assert verdict.scenarios == ["add_clients(1)", "events"]


def test_code_of_candidates_is_found_on_workers_or_refused_before_the_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OfATest(assignors.InTurn):
        """It cannot be imported, so it is sent by value."""

    path = tmp_path / "candidate_of_a_file.py"
    path.write_text(GOOD)
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(generate(HISTORY, 2)), encoding="utf-8")
    works = Orders(
        [Candidate("value", OfATest), Candidate("file", f"{path}:FromFile"), Candidate("name", assignors.InTurn)],
        loop=False,
    )
    summary = evaluate_on_spark(spark, works, str(source), str(tmp_path / "out"))
    assert {finding.kind for finding in summary.findings} == {"missing_copies"}  # they make no standbys
    assert sum(summary.rows.values()) == 6

    (tmp_path / "only_here").mkdir()
    (tmp_path / "only_here" / "candidate_only_on_the_driver.py").write_text(GOOD)
    monkeypatch.syspath_prepend(str(tmp_path / "only_here"))
    missing = Orders([Candidate("missing", "candidate_only_on_the_driver:FromFile")])
    with pytest.raises(ConfigError, match="not the workers: pass --py-files"):
        evaluate_on_spark(spark, missing, str(source), str(tmp_path / "refused"))
    assert not (tmp_path / "refused").exists()


def test_endless_decision_is_given_up_when_it_runs_in_a_worker(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(generate(HISTORY, 3)), encoding="utf-8")
    orders = Orders([Candidate("endless", assignors.Endless), Candidate("fine", "sticky")], limit_s=0.1, loop=False)
    summary = evaluate_on_spark(spark, orders, str(source), str(tmp_path / "out"))
    (finding,) = [one for one in summary.findings if one.is_error]
    assert (finding.candidate, finding.kind, finding.times) == ("endless", "too_slow", 3)


class KilledError(Exception):
    pass


def test_result_is_the_same_when_a_killed_run_is_resumed(
    spark: SparkSession, tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_spark, "_ROWS_PER_WAVE", 20)  # two waves
    orders = Orders(ORDERS.candidates[1:3])
    evaluate_locally(orders, situations_in(tables, Skipped()), tmp_path / "whole")

    def kill(_done: int, _total: int) -> None:
        raise KilledError

    half = str(tmp_path / "half")
    with pytest.raises(KilledError):
        evaluate_on_spark(spark, orders, tables, half, tick=kill)
    assert 0 < len(RunFolder(half).done()) < 256
    before = {path: path.stat().st_mtime_ns for path in Path(half).glob("scores/*/*.parquet")}
    evaluate_on_spark(spark, orders, tables, half, resume=True)
    assert score_digest(scores(half)) == score_digest(scores(tmp_path / "whole"))
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())


def test_source_or_folder_is_refused_with_a_sentence_when_it_cannot_be_used(
    spark: SparkSession, tables: str, tmp_path: Path
) -> None:
    for source in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(ConfigError, match="telemetry run"):
            evaluate_on_spark(spark, ORDERS, str(source), str(tmp_path / f"out of {source.name}"))
        assert not (tmp_path / f"out of {source.name}").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    with pytest.raises(ConfigError, match="not empty"):
        evaluate_on_spark(spark, ORDERS, tables, str(tmp_path / "full"))
