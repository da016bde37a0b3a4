"""Which partitions of a suspect answer are accepted, and when."""

from __future__ import annotations

from collections.abc import Mapping
from unittest.mock import Mock

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.commit.known_commits import KnownCommits
from streams_py.runtime.commit.suspect_offsets import OffsetChecks
from streams_py.runtime.tasks.record.offset_metadata import OffsetMetadata, encode_offset_metadata
from streams_py.runtime.tasks.task import TaskPhase
from streams_py.testing.memory_clients import ManualClock
from tests.support.runtime.world import task, tp

P, Q, R = tp("in-0"), tp("in-1"), tp("in-2")
MEMBERS = OffsetAndMetadata(2, encode_offset_metadata(OffsetMetadata(7)))
RESET = OffsetAndMetadata(2)


class Bench:
    """Checks the answers of a group against tasks whose disks know offset 5 of the partitions in ``on_disk``."""

    def __init__(self, *, exactly_once: bool, on_disk: tuple[TopicPartition, ...]) -> None:
        self.clock = ManualClock()
        self.known = KnownCommits()
        self.checks = OffsetChecks(self.known, self.clock, exactly_once=exactly_once)
        self._on_disk = on_disk

    def task(self, id: TaskId) -> Mock:
        made = Mock(id=id, state=TaskPhase.RESTORING, has_state=True)
        made.committed_at_least.return_value = dict.fromkeys(self._on_disk, 5)
        made.stores.inputs.id_of.return_value = None
        return made

    def accepted(
        self, answer: Mapping[TopicPartition, OffsetAndMetadata | None], *tasks: tuple[Mock, frozenset[TopicPartition]]
    ) -> set[TopicPartition]:
        self.clock.advance(1_000)
        return set(self.checks.accepted(answer, tasks))


def test_no_partition_is_accepted_before_the_longest_patience_of_the_answer() -> None:
    bench = Bench(exactly_once=True, on_disk=(P, Q))
    requests = [(bench.task(task("0_0")), frozenset({P})), (bench.task(task("0_1")), frozenset({Q, R}))]
    answer = {P: RESET, Q: MEMBERS, R: OffsetAndMetadata(9)}
    assert [bench.accepted(answer, *requests) for _ in range(60)] == [set()] * 60
    assert bench.accepted(answer, *requests) == {P, Q, R}
    assert bench.known.is_settled(Q, 2)
    assert not bench.known.is_settled(R, 9)


def test_partitions_of_one_task_are_accepted_together() -> None:
    bench = Bench(exactly_once=False, on_disk=(P, Q))
    grows, other = bench.task(task("0_0")), bench.task(task("0_1"))
    for _ in range(9):
        assert not bench.accepted({P: RESET, R: RESET}, (grows, frozenset({P})), (other, frozenset({R})))
    requests = (grows, frozenset({P, Q})), (other, frozenset({R}))
    found = [bench.accepted({P: RESET, Q: RESET, R: RESET}, *requests) for _ in range(2)]
    assert found == [set(), {R}]
    found = [bench.accepted({P: RESET, Q: RESET}, (grows, frozenset({P, Q}))) for _ in range(9)]
    assert found == [set()] * 8 + [{P, Q}]


def test_tasks_that_come_to_wait_later_do_not_delay_earlier_ones() -> None:
    bench = Bench(exactly_once=False, on_disk=tuple(tp(f"in-{number}") for number in range(30)))
    waiting: dict[TopicPartition, Mock] = {}
    times: dict[TopicPartition, int] = {}
    for second in range(30):
        waiting[tp(f"in-{second}")] = bench.task(task(f"0_{second}"))
        requests = [(held, frozenset({partition})) for partition, held in waiting.items()]
        for partition in bench.accepted(dict.fromkeys(waiting, RESET), *requests):
            del waiting[partition]
            times[partition] = second - partition.partition
    assert times == {tp(f"in-{number}"): 10 for number in range(20)}


@pytest.mark.parametrize("exactly_once", [False, True])
def test_partition_that_changes_restarts_the_count_of_all(exactly_once: bool) -> None:
    bench = Bench(exactly_once=exactly_once, on_disk=(P,))
    requests = [(bench.task(task("0_0")), frozenset({P})), (bench.task(task("0_1")), frozenset({R}))]
    for offset in range(25):
        assert not bench.accepted({P: RESET, R: OffsetAndMetadata(offset // 9)}, *requests)
    for offset in range(12):
        accepted = bench.accepted({P: RESET, R: OffsetAndMetadata(9)}, *requests)
        assert accepted == ({P, R} if offset == 10 else set())
        if accepted:
            break
