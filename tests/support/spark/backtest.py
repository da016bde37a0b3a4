"""The result of a backtest on Spark."""

from __future__ import annotations

from pathlib import Path

from streams_py.backtest.folder import RunFolder
from streams_py.backtest.kernel import Row
from streams_py.backtest.run import read_scores


def scores(folder: Path | str) -> list[Row]:
    found = read_scores(RunFolder(str(folder)))
    return sorted(found, key=lambda row: (row["input_hash"], row["scenario"], row["candidate"]))
