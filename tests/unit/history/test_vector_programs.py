"""The recorded programs of Apache Kafka Streams over a history create the bytes of the recording.

Where the recording fed several topics record by record, the bytes are those of tasks with all records buffered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

pytest.importorskip("pyarrow")

from streams_py.history.task import StageOrders
from tests.support.history.recorded_programs import (
    CONFIG,
    alive,
    allowed,
    given_of,
    recorded,
    topics_of,
    topology_of,
    written_of,
)
from tests.support.history.runs import LocalRun, Written, buffered, run_locally

_LIVE_ONLY = {"P06", "P08", "P18", "P60", "P61", "P67", "P68", "P69", "P70", "P71", "P72"}
_OWN_COUNTS = {"P10"}
"""This program outputs partition counts of topics, which are 1 in recordings."""
ALLOWED = allowed()
ONE_TOPIC = [id for id in ALLOWED if len(topics_of(id)) == 1 and id not in _OWN_COUNTS]


def same_state(id: str, run: LocalRun, written: Mapping[str, list[Written]]) -> bool:
    theirs = {topic: alive(id, topic, written.get(topic, [])) for topic in run.plan.changelogs}
    return {topic: run.state.get(topic, {}) for topic in theirs} == theirs


@pytest.fixture
def as_kafka_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks over a history reproduce results of Kafka Streams that this library deliberately changes."""
    settings = StageOrders.settings
    monkeypatch.setattr(StageOrders, "settings", lambda orders: replace(settings(orders), reference_behaviour=True))


def test_most_programs_are_allowed() -> None:
    assert len(ALLOWED) > 55
    assert {id for id in recorded() if id not in ALLOWED} <= _LIVE_ONLY


@pytest.mark.parametrize("id", ALLOWED)
def test_program_over_a_history_writes_what_tasks_with_full_buffers_write(id: str) -> None:
    records = given_of(id)
    run = run_locally(lambda: topology_of(id), records, 1, CONFIG)
    live = buffered(lambda: topology_of(id), records, 1, CONFIG)
    assert same_state(id, run, live)
    topics = {topic for stage in run.plan.stages for topic in stage.outputs}
    for topic in topics:
        by_partition = sorted(run.records(topic), key=lambda written: written[1])
        assert by_partition == sorted(live.get(topic, []), key=lambda written: written[1])


@pytest.mark.usefixtures("as_kafka_streams")
@pytest.mark.parametrize("id", ONE_TOPIC)
def test_program_with_one_input_topic_leaves_the_recorded_state(id: str) -> None:
    case = recorded()[id]
    run = run_locally(lambda: topology_of(id), given_of(id), 1, CONFIG)
    recording = {topic: [written_of(topic, row) for row in rows] for topic, rows in case["changelogs"].items()}
    assert same_state(id, run, recording)
    outputs: dict[str, list[Written]] = {}
    for row in case["outputs"]:
        outputs.setdefault(row["topic"], []).append(written_of(row["topic"], row))
    for topic, rows in outputs.items():
        assert Counter(run.records(topic)) == Counter(rows)


@pytest.mark.weekly
@pytest.mark.parametrize("partitions", [2, 8])
@pytest.mark.parametrize("id", ALLOWED)
def test_program_over_several_partitions_writes_what_tasks_with_full_buffers_write(id: str, partitions: int) -> None:
    records = given_of(id, partitions)
    live = buffered(lambda: topology_of(id), records, partitions, CONFIG)
    run = run_locally(lambda: topology_of(id), records, partitions, CONFIG)
    assert same_state(id, run, live)
    for topic in {topic for stage in run.plan.stages for topic in stage.outputs}:
        assert Counter(run.records(topic)) == Counter(live.get(topic, []))
