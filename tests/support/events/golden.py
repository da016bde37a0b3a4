"""Events whose bytes must never change, by file name. ``python -m tests.support.events.golden`` writes missing files.

An existing file is never written again: other programs and old topics contain the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from streams_protocol.types import TaskId
from streams_py.events.codec import encode_value
from streams_py.events.model import (
    Assignor,
    Body,
    ClientEvent,
    ClientPart,
    Consumer,
    Envelope,
    ErrorInfo,
    Event,
    Eviction,
    FollowUp,
    OffsetSums,
    Racks,
    RebalanceHeader,
    Sample,
    SubtopologySlice,
    TaskEvent,
    TasksPart,
    ThreadTasks,
    Versions,
)

FOLDER: Final = Path(__file__).parents[2] / "golden" / "events" / "v1"

_ENVELOPE: Final = Envelope(
    group="orders",
    process="6f1c2f0e-2a35-4b35-9d5f-0d6a4d1f7a01",
    run="0123456789abcdef",
    seq=41,
    at_ms=1_700_000_000_123,
    mono_us=7_654_321,
    dropped=2,
)
_ID: Final = "00112233445566aa-000000000012-0"


def _tasks(sub: int, *partitions: int) -> tuple[TaskId, ...]:
    return tuple(TaskId(sub, partition) for partition in partitions)


_BODIES: Final[dict[str, Body]] = {
    "rebalance": RebalanceHeader(
        rebalance_id=_ID,
        parts=3,
        generation=12,
        leader_member="orders-1-consumer-aa",
        trigger=("member_joined", "revocation_done"),
        assignor=Assignor("acme.assignors:Sticky", "1.2", custom=True),
        configs={
            "acceptable.recovery.lag": 10_000,
            "max.warmup.replicas": 2,
            "num.standby.replicas": 1,
            "probing.rebalance.interval.ms": 600_000,
            "rack.aware.assignment.non_overlap_cost": None,
            "rack.aware.assignment.strategy": "none",
            "rack.aware.assignment.tags": ["zone"],
            "rack.aware.assignment.traffic_cost": None,
        },
        versions=Versions(11, 11, future=False),
        lag_ok=True,
        counts={"active": 4, "clients": 2, "consumers": 3, "moved": 1, "tasks": 4, "withheld": 1},
        duration_us={"assign": 1234, "total": 5678},
        followups=(FollowUp("6f1c2f0e-2a35-4b35-9d5f-0d6a4d1f7a01", 1_700_000_600_000),),
        outcome="ok",
        error=None,
        library="streams-py 0.1.0",
    ),
    "rebalance-error": RebalanceHeader(
        rebalance_id="00112233445566aa-000000000013-1",
        parts=1,
        generation=13,
        leader_member="orders-1-consumer-aa",
        trigger=("unknown",),
        assignor=Assignor("streams_py.assignment.assignors.sticky:LegacyStickyAssignor", "0.1.0", custom=False),
        configs={},
        versions=None,
        lag_ok=False,
        counts={},
        duration_us={"total": 9},
        followups=(),
        outcome="error_assignment",
        error=ErrorInfo(1, "MissingSourceTopicError", "source topics in do not exist \u2013 Größe"),
        seed=5,
        library="streams-py 0.1.0",
    ),
    "rebalance-tasks": TasksPart(
        rebalance_id=_ID,
        part=1,
        parts=3,
        subs=(
            SubtopologySlice(
                sub="0",
                first=0,
                count=2,
                stateful=True,
                logged=True,
                stores=("counts",),
                sources=("in",),
                changelogs=("orders-counts-changelog",),
                end=(100, -3),
                weight=(0.75, 0.25),
                racks=Racks(("a", "b"), {"in": ((0, 1), ()), "orders-counts-changelog": ((1,), (0,))}),
            ),
            SubtopologySlice(
                sub="billing__1",
                first=4,
                count=1,
                stateful=False,
                logged=False,
                stores=(),
                sources=("x", "y"),
                changelogs=(),
                end=None,
            ),
        ),
    ),
    "rebalance-client": ClientPart(
        rebalance_id=_ID,
        part=2,
        parts=3,
        client="6f1c2f0e-2a35-4b35-9d5f-0d6a4d1f7a01",
        slice=0,
        slices=1,
        host="host-1:8080",
        rack="a",
        tags={"zone": "eu-1"},
        consumers=(Consumer("c-1", 11, 11, _tasks(0, 0, 1, 2)), Consumer("c-2", 2, -1, ())),
        prev_active=_tasks(0, 0, 1, 2),
        prev_standby=_tasks(1, 0),
        sums=OffsetSums(_tasks(0, 0, 1), (-2, 90)),
        active=_tasks(0, 0, 1) + _tasks(1, 0),
        standby=_tasks(0, 2),
        warmup=_tasks(0, 3),
        threads=(ThreadTasks(_tasks(0, 0, 1), (), _tasks(1, 0)), ThreadTasks((), _tasks(0, 2, 3), ())),
        reasons={"kept": _tasks(0, 0, 1), "caught_up": _tasks(1, 0), "standby_tags": _tasks(0, 2)},
    ),
    "task-running": TaskEvent(
        task=TaskId(0, 3), role="active", member="c-1", generation=12, event="running", took_us=1500
    ),
    "task-restore-started": TaskEvent(
        task=TaskId(0, 3),
        role="active",
        member="c-1",
        generation=12,
        event="restore_started",
        records_total=10_000,
        stores=("counts",),
    ),
    "task-last-record": TaskEvent(
        task=TaskId(0, 3), role="active", member="c-1", generation=12, event="last_record", last_mono_us=7_000_000
    ),
    "task-last-record-idle": TaskEvent(
        task=TaskId(0, 3),
        role="active",
        member="c-1",
        generation=12,
        event="last_record",
        last_mono_us=7_000_000,
        idle_us=30_000,
    ),
    "task-first-record": TaskEvent(
        task=TaskId(0, 3),
        role="active",
        member="c-2",
        generation=13,
        event="first_record",
        since_assigned_us=90_000,
        since_idle_us=1_500,
        waited_ms=700,
    ),
    "sample": Sample(
        tasks=_tasks(0, 0, 1), input_lag=(0, None), records=(500, 20), busy_us=(12_345, 99), commit_age_ms=(120, 120)
    ),
    "client-started": ClientEvent(
        event="started",
        library="streams-py 0.1.0",
        python="3.11.7",
        versions={"confluent-kafka": "2.16.1"},
        threads=2,
        tags={"zone": "eu-1"},
        rack=None,
    ),
    "eviction": Eviction(pid=4711, members=("c-3", "c-4")),
}

EVENTS: Final = {name: Event(_ENVELOPE, body) for name, body in _BODIES.items()}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, event in EVENTS.items():
        path = FOLDER / f"{name}.json"
        if not path.exists():
            path.write_bytes(encode_value(event))
