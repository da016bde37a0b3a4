"""Schedules that reproduce known bugs of Kafka Streams and related projects."""

from __future__ import annotations

import pytest

from streams_py.testing.simulator import run_schedule
from streams_py.testing.simulator.known_bugs import KNOWN_BUGS, NOT_REPRODUCED


@pytest.mark.parametrize("ticket", KNOWN_BUGS)
def test_known_bug_is_not_repeated(ticket: str) -> None:
    known_bug = KNOWN_BUGS[ticket]
    for schedule in known_bug.schedules:
        result = run_schedule(schedule)
        assert not result.violations, f"{ticket}, seed {schedule.seed}: {result.violations[0]}"
        assert sum(result.faults.values()) >= len(schedule.actions) // 2
        assert result.rebalances >= 3


def test_upgrades_of_the_known_bugs_end_in_the_newest_version() -> None:
    for ticket in ("KAFKA-8649", "KAFKA-14646", "KIP-268 (oldest)"):
        for schedule in KNOWN_BUGS[ticket].schedules:
            history = run_schedule(schedule, history=True).history
            bounces = [line for line in history if "is bounced to version 11" in line]
            assert len(bounces) == len(schedule.shape.processes) * len(schedule.shape.upgrades), ticket


def test_every_known_bug_is_shown_or_belongs_elsewhere() -> None:
    assert not KNOWN_BUGS.keys() & NOT_REPRODUCED.keys()
    assert {name for name in KNOWN_BUGS if name.startswith("KAFKA-")} >= {
        "KAFKA-5037", "KAFKA-8649", "KAFKA-9821", "KAFKA-9841", "KAFKA-12984", "KAFKA-13419", "KAFKA-14646",
        "KAFKA-15106", "KAFKA-15170",
    }  # fmt: skip
