"""Speed of the group simulator, in schedules of 30 rebalances per second, with all checkers and a process per core."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.cluster import BenchmarkError
from benchmarks.table import Goal, Row
from streams_py.testing.simulator import run_campaign

_SCHEDULES: Final = 400
_REBALANCES: Final = 30
"""Rebalances per counted schedule; drawn schedules have fewer or more."""


def simulator_rows(runs: int, tick: Callable[[str], None]) -> Iterator[Row]:
    """Yield one row. Each run uses different schedules."""
    rates = []
    for run in range(runs):
        tick(f"simulator, run {run + 1}")
        first = 1 + run * _SCHEDULES
        campaign = run_campaign(range(first, first + _SCHEDULES))
        unsafe = [finding for finding in campaign.findings if not finding.safe]
        if unsafe:
            raise BenchmarkError(f"seed {unsafe[0].seed}: {unsafe[0].violations[0]}")
        rates.append(campaign.rebalances / _REBALANCES / campaign.seconds)
    work = f"group simulator, schedules of {_REBALANCES} rebalances, {os.cpu_count()} cores"
    yield Row(work, "", "/s", tuple(rates), goal=Goal(">= 20 /s", ours_min=20))
