"""The backtest on a Spark cluster of three workers, one of which is killed during the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams_py.backtest.candidates import parse_candidate
from streams_py.backtest.generate import History, generate
from streams_py.backtest.kernel import Orders
from streams_py.backtest.run import evaluate_locally
from tests.support.backtest.digest import score_digest
from tests.support.spark.backtest import scores
from tests.support.spark.standalone import Standalone, wait_until

pytestmark = [pytest.mark.weekly, pytest.mark.timeout(1_200)]

CANDIDATES = ("recorded", "ha=builtin:high_availability", "three=tests.support.backtest.assignors:RaisesForThree")

# Waves of 30 rows, so that there is something to be in the middle of.
DRIVER = """
import sys
from streams_py.cli.spark.backtest import app
from streams_py.spark import backtest as on_spark
on_spark._ROWS_PER_WAVE = 30
try:
    app(sys.argv[1:])
except SystemExit as ended:
    print("status", ended.code)
"""


def test_scores_are_right_when_a_worker_dies(standalone: Standalone, tmp_path: Path) -> None:
    texts = list(generate(History(tasks=8, clients=3, threads=1, records=10_000), 60))
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(texts), encoding="utf-8")
    candidates = [parse_candidate(text) for text in CANDIDATES]
    expected = evaluate_locally(Orders(candidates), texts, tmp_path / "here")
    assert expected.has_errors

    out = tmp_path / "there"
    command = ["-c", DRIVER, "--inputs", str(source), "--out", str(out), "--engine", "spark"]
    command += ["--master", standalone.master, "--conf", "spark.executor.memory=512m"]
    command += ["--conf", "spark.sql.shuffle.partitions=3", "--conf", "spark.task.maxFailures=8"]
    for text in CANDIDATES:
        command += ["--candidate", text]
    driver = standalone.run(*command)
    wait_until("the first wave is done", lambda: any(out.glob("done/*")) or not driver.is_running, 600)
    standalone.kill_worker()
    output = driver.wait(900)
    assert "status 1" in output  # a candidate fails, which is what it is there for
    assert standalone.workers == 2
    assert len(list(out.glob("done/*"))) > 2
    assert score_digest(scores(out)) == score_digest(scores(tmp_path / "here"))
    assert "three is too many" in output
    assert (out / "report.html").exists()
