"""Log lines for partitions that are read from their end because they have no committed offset."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.thread.latest_resets import LatestResets
from tests.support.runtime.fakes import FakeRecord
from tests.support.runtime.world import Steps, World, copying, task, tp
from tests.support.waiting import PATIENCE_S

P0, P1 = tp("in-0"), tp("in-1")


def join_questions() -> None:
    for thread in threading.enumerate():
        if thread.name == "latest-resets":
            thread.join(PATIENCE_S)


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    said = [record for record in caplog.records if "reading starts at offset" in record.getMessage()]
    return [record.getMessage() for record in said if record.levelno == level]


def started(folder: Path, world: World, policy: str = "latest") -> Steps:
    return Steps(world, copying(), folder, auto_offset_reset=policy)


def test_partition_that_is_added_to_a_running_group_is_named_with_its_first_offset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(**{"in": 1, "out": 1})
    world.committed[P0] = OffsetAndMetadata(0)
    world.write("in", b"a", b"b")
    steps = started(tmp_path, world)
    steps.run({task("0_0"): [P0]})
    world.topics["in"] = 2
    world.write("in", b"lost", b"lost", b"lost", partition=1)
    steps.run({task("0_0"): [P0], task("0_1"): [P1]})
    join_questions()
    steps.turn()
    [line] = lines(caplog, logging.WARNING)
    assert "no offset of in-1, and auto.offset.reset" in line
    assert "reading starts at offset 3. Records before that offset are not processed" in line
    assert "use auto.offset.reset=earliest" in line
    world.write("in", b"read", partition=1)
    steps.turn(3)
    outputs = [record.value() for record in world.records(tp("out-0"))]
    assert sorted(outputs) == [b"A", b"B", b"READ"]
    assert len(lines(caplog, logging.WARNING)) == 1
    steps.close()


def test_first_start_of_a_group_is_an_info(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "streams_py")
    steps = started(tmp_path, World(**{"in": 2, "out": 1}))
    steps.run({task("0_0"): [P0], task("0_1"): [P1]})
    join_questions()
    steps.turn()
    assert lines(caplog, logging.WARNING) == []
    assert len(lines(caplog, logging.INFO)) == 2
    steps.close()


def test_partitions_with_offsets_or_read_from_the_beginning_are_not_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streams_py")
    world = World(**{"in": 2, "out": 1})
    world.committed[P0] = OffsetAndMetadata(0)
    for policy, partition in (("latest", P0), ("earliest", P1)):
        steps = started(tmp_path / policy, world, policy)
        steps.run({task(f"0_{partition.partition}"): [partition]})
        join_questions()
        steps.turn()
        assert not steps.parts.latest_resets.is_waiting
        steps.close()
    assert lines(caplog, logging.WARNING) == lines(caplog, logging.INFO) == []


class Cluster:
    """An admin client; ``committed`` may be an error."""

    def __init__(self, committed: dict[TopicPartition, int | None] | Exception) -> None:
        self._committed = committed

    def describe_topics(self, topics: object) -> dict[str, Any]:
        return {}

    def committed_offsets(self, group: str, partitions: object) -> dict[TopicPartition, int | None]:
        if isinstance(self._committed, Exception):
            raise self._committed
        return self._committed


def resets(committed: dict[TopicPartition, int | None] | Exception) -> LatestResets:
    return LatestResets("t", "app", Cluster(committed))  # type: ignore[arg-type]  # what is asked of it


def test_line_waits_for_the_offset_which_is_that_of_the_first_record_if_one_came(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = resets({P0: 0})
    made.started({P1}, {P0, P1})
    join_questions()
    made.log_known([FakeRecord(P0, 8)], lambda _: None)
    assert lines(caplog, logging.WARNING) == []
    made.log_known([FakeRecord(P1, 40), FakeRecord(P1, 41)], lambda _: 42)
    assert "starts at offset 40" in lines(caplog, logging.WARNING)[0]
    assert not made.is_waiting


def test_partition_that_is_taken_away_before_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    made = resets({P0: 0})
    made.started({P1}, {P0, P1})
    made.started((), {P0})
    assert not made.is_waiting
    join_questions()
    made.log_known([], lambda _: 3)
    assert lines(caplog, logging.WARNING) == []


def test_line_is_a_warning_when_nobody_says_what_the_group_has_committed(caplog: pytest.LogCaptureFixture) -> None:
    made = resets(BrokerUnavailableError("away"))
    made.started({P1}, {P1})
    join_questions()
    made.log_known([], lambda _: 0)
    assert len(lines(caplog, logging.WARNING)) == 1
