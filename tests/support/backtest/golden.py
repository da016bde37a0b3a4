"""The stored inputs of a backtest."""

from __future__ import annotations

import csv
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "golden" / "telemetry" / "rebalance_input.csv"


def golden_texts() -> list[str]:
    csv.field_size_limit(1 << 24)
    with GOLDEN.open(encoding="utf-8") as file:
        return [row["input"] for row in csv.DictReader(file)]
