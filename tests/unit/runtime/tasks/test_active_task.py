"""State changes and commits of tasks."""

from __future__ import annotations

from typing import Any

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import IllegalStateError, LockError
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.record.collector import RecordCollector
from streams_py.runtime.tasks.record.node_services import SharedServices
from streams_py.runtime.tasks.record.offset_metadata import OffsetMetadata, encode_offset_metadata
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.runtime.tasks.standby_task import StandbyTask
from streams_py.runtime.tasks.task import TaskPhase
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.declare.nodes import Punctuation
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.topology import Topology
from tests.support.runtime.counting import COUNTS, IN, counting, counting_kit
from tests.support.runtime.task_kit import FakeStores, Kit, record


def commit(kit: Kit, *, enforce: bool = False) -> dict[TopicPartition, int]:
    """Commit as the stream thread does."""
    kit.task.flush_caches()
    kit.producer.flush(1000)
    offsets = kit.task.committable_offsets()
    kit.task.post_commit(enforce_checkpoint=enforce, acked=kit.producer.acked_offsets())
    return {partition: entry.offset for partition, entry in offsets.items()}


class TestCommit:
    def test_counts_are_written_logged_and_committed(self) -> None:
        kit = counting_kit()
        kit.add(record("x", at=10), record("y", at=5, offset=1), record("z", key="j", at=7, offset=2))
        assert not kit.task.commit_needed
        assert kit.task.process(2) == 2
        assert kit.task.commit_needed
        assert kit.task.committable_offsets() == {IN: (2, encode_offset_metadata(OffsetMetadata(10)))}
        assert commit(kit) == {IN: 2}
        assert not kit.task.commit_needed
        assert kit.task.stores.changelog_offsets == {COUNTS: 1}
        kit.task.process(1)
        assert commit(kit) == {IN: 3}
        assert kit.sent("out") == [
            (b"k", b"\0" * 7 + b"\1", 10),
            (b"k", b"\0" * 7 + b"\2", 5),
            (b"j", b"\0" * 7 + b"\1", 7),
        ]
        assert kit.sent("app-counts-changelog") == kit.sent("out")

    def test_caches_are_flushed_before_the_producer_and_stores_are_committed_last(self) -> None:
        kit = counting_kit()
        kit.add(record("x"))
        kit.task.process(1)
        kit.stores.calls.clear()
        commit(kit)
        assert kit.stores.calls == ["flush counts", "commit", "checkpoint"]
        assert kit.producer.flushes == 1

    def test_position_is_committed_when_nothing_is_buffered(self) -> None:
        kit = counting_kit()
        kit.add(record("x"))
        kit.task.process(1)
        kit.positions.positions[IN] = 5  # four transaction markers
        assert commit(kit) == {IN: 5}
        assert not kit.task.commit_needed
        kit.positions.positions[IN] = 6
        assert kit.task.commit_needed
        assert commit(kit) == {IN: 6}

    def test_position_behind_transaction_markers_is_committed_when_there_were_no_records(self) -> None:
        kit = counting_kit()
        assert not kit.task.commit_needed
        assert kit.task.committable_offsets() == {}
        kit.positions.positions[IN] = 9
        assert kit.task.commit_needed
        assert commit(kit) == {IN: 9}
        assert not kit.task.commit_needed

    def test_nothing_is_committed_when_reading_begins_at_the_committed_offset(self) -> None:
        kit = counting_kit(start=False)
        kit.task.initialize()
        kit.task.complete_restoration({IN: OffsetAndMetadata(9)})
        kit.positions.positions[IN] = 9
        assert not kit.task.commit_needed
        assert kit.task.committable_offsets() == {}

    def test_partition_that_starts_again_commits_its_position_in_the_new_log(self) -> None:
        kit = counting_kit()
        kit.add(record("x", offset=41), record("x", offset=42))
        kit.task.process(2)
        assert commit(kit) == {IN: 43}
        kit.task.positions.start_again_at(IN)
        kit.positions.positions.pop(IN)  # unknown before the first answer
        assert commit(kit) == {}
        kit.positions.positions[IN] = 0
        assert kit.task.commit_needed
        assert commit(kit) == {IN: 0}
        kit.add(record("x", offset=0))
        kit.task.process(1)
        assert commit(kit) == {IN: 1}

    def test_records_of_the_former_log_that_wait_are_processed_and_commit_the_beginning_of_the_new_one(self) -> None:
        kit = counting_kit()
        kit.add(*(record("x", offset=at) for at in (40, 41, 42)))
        kit.task.process(1)
        kit.task.positions.start_again_at(IN)
        kit.positions.positions.pop(IN)
        assert commit(kit) == {IN: 0}
        kit.add(record("y", offset=0), record("y", offset=1))
        kit.task.process(1)
        assert commit(kit) == {IN: 0}
        kit.task.process(1)
        assert commit(kit) == {IN: 0}
        kit.task.process(2)
        assert commit(kit) == {IN: 2}
        assert [value[-1] for _, value, _ in kit.sent("out") if value] == [1, 2, 3, 4, 5]

    def test_offset_after_the_last_record_is_committed_when_the_position_is_unknown(self) -> None:
        kit = counting_kit()
        kit.add(record("x", offset=41))
        kit.positions.positions.clear()
        kit.task.process(1)
        assert commit(kit) == {IN: 42}

    def test_position_that_fences_never_goes_back(self) -> None:
        """A consumer may move its position back when its broker changes. A restart would then count records twice."""
        kit = counting_kit()
        kit.add(record("x", offset=41))
        kit.task.process(1)
        assert commit(kit) == {IN: 42}
        for position, fenced in ((7, 42), (50, 50)):
            kit.positions.positions[IN] = position
            assert {at: sent.offset for at, sent in kit.task.positions.fence().items()} == {IN: fenced}

    def test_nothing_fences_before_the_position_is_known(self) -> None:
        kit = counting_kit()
        kit.positions.positions.clear()
        assert kit.task.positions.fence() == {}
        kit.positions.positions[IN] = -2
        assert kit.task.positions.fence() == {}

    def test_commit_request_lasts_until_the_commit(self) -> None:
        kit = counting_kit()
        kit.add(record("commit"))
        kit.task.process(1)
        assert kit.task.commit_requested
        commit(kit)
        assert not kit.task.commit_requested

    def test_committed_positions_are_those_of_the_last_commit(self) -> None:
        kit = counting_kit()
        kit.add(record("x"), record("y", offset=1))
        kit.task.process(1)
        assert kit.task.positions.committed == {}
        commit(kit)
        kit.task.process(1)
        assert kit.task.positions.committed == {IN: 1}

    def test_what_counts_as_committed_is_what_was_to_be_although_records_came_meanwhile(self) -> None:
        """A revocation commits on another thread while this thread keeps polling.

        The offsets 1 to 3 have no records, which is known only when the next record has arrived.
        """
        kit = counting_kit()
        kit.add(record("a", offset=0))
        kit.task.process(1)
        assert kit.task.committable_offsets()[IN].offset == 1
        kit.add(record("b", offset=4))
        kit.task.post_commit(enforce_checkpoint=False, acked={})
        assert kit.task.positions.committed == {IN: 1}
        assert kit.stores.inputs.offsets == {IN: 1}

    def test_source_changelog_has_the_consumed_offset(self) -> None:
        kit = counting_kit()
        kit.stores.source_changelogs = frozenset([IN])
        kit.add(record("x", offset=7))
        kit.task.process(1)
        commit(kit)
        assert kit.task.stores.changelog_offsets[IN] == 7


class Ticking(Processor[Any, Any, Any, Any]):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(10, Punctuation.STREAM_TIME, lambda now: self.tick("stream", now))
        context.schedule(10, Punctuation.WALL_CLOCK_TIME, lambda now: self.tick("wall", now))

    def tick(self, which: str, now: int) -> None:
        assert self.context.record_metadata is None
        self.context.forward(Record(which, str(now), now, ()))

    def process(self, record: Record[Any, Any]) -> None:
        pass


class TestPunctuation:
    def kit(self) -> Kit:
        topology = Topology().add_source("source", "in").add_processor("tick", Ticking, "source")
        topology.add_sink("sink", "out", "tick")
        return Kit(topology)

    def test_stream_time_fires_with_the_first_record_and_then_at_multiples(self) -> None:
        kit = self.kit()
        assert kit.task.punctuate() == 0
        for offset, at in enumerate((3, 9, 10, 45, 48, 50)):
            kit.add(record("x", at=at, offset=offset, headers=[("h", b"1")]))
            kit.task.process(1)
            kit.task.punctuate()
        assert [at for _, _, at in kit.sent("out")] == [3, 10, 45, 50]
        assert all(sent.headers() is None for sent in kit.producer.sent)

    def test_wall_clock_fires_after_one_interval_and_asks_for_a_commit(self) -> None:
        kit = self.kit()
        start = kit.clock.now_ms()
        assert kit.task.punctuate() == 0
        kit.clock.advance(9)
        assert kit.task.punctuate() == 0
        assert not kit.task.commit_needed
        kit.clock.advance(36)
        assert kit.task.punctuate() == 1
        assert kit.task.commit_needed
        kit.clock.advance(5)
        assert kit.task.punctuate() == 1
        assert kit.sent("out") == [(b"wall", str(start + n).encode(), start + n) for n in (45, 50)]

    def test_punctuators_end_with_the_suspension(self) -> None:
        kit = self.kit()
        kit.task.suspend()
        kit.clock.advance(100)
        assert kit.task.punctuate() == 0


class Traced(Processor[Any, Any, Any, Any]):
    calls: list[str]

    def __init__(self, name: str, calls: list[str], fail: bool = False) -> None:
        self.name, self.calls, self.fail = name, calls, fail

    def init(self, context: Any) -> None:
        self.calls.append(f"init {self.name}")

    def process(self, record: Record[Any, Any]) -> None:
        pass

    def close(self) -> None:
        self.calls.append(f"close {self.name}")
        if self.fail:
            raise ValueError("close failed")


class TestLife:
    def test_processors_are_initialised_and_closed_parents_first(self) -> None:
        calls: list[str] = []
        topology = Topology().add_source("source", "in")
        topology.add_processor("a", lambda: Traced("a", calls, fail=True), "source")
        topology.add_processor("b", lambda: Traced("b", calls), "a")
        kit = Kit(topology)
        assert calls == ["init a", "init b"]
        with pytest.raises(ValueError, match="close failed"):
            kit.task.suspend()
        assert calls[2:] == ["close a", "close b"]
        assert kit.task.state is TaskPhase.SUSPENDED

    def test_life_of_an_active_task(self) -> None:
        kit = counting_kit(start=False)
        task = kit.task
        assert task.state is TaskPhase.CREATED
        assert task.offset_sum() is None
        task.initialize()
        assert task.state is TaskPhase.RESTORING
        task.restoring.restore(
            COUNTS, [MemoryRecord(COUNTS.topic, 0, n, b"k", n.to_bytes(8, "big")) for n in range(4, 7)]
        )
        assert task.offset_sum() == 7
        assert task.restoring.restore_position(COUNTS) == 6
        task.complete_restoration({})
        assert task.state is TaskPhase.RUNNING
        assert task.offset_sum() == -2
        kit.add(record("x"))
        task.process(1)
        assert kit.sent("out") == [(b"k", (7).to_bytes(8, "big"), 0)]
        commit(kit, enforce=True)
        task.suspend()
        assert task.state is TaskPhase.SUSPENDED
        assert task.process(1) == 0
        kit.stores.calls.clear()
        task.close_clean()
        assert kit.stores.calls == ["checkpoint enforced", "close"]
        assert task.state is TaskPhase.CLOSED

    def test_initialize_can_be_tried_again_when_the_directory_is_locked(self) -> None:
        kit = counting_kit(start=False)
        kit.stores.open_error = LockError("locked")
        with pytest.raises(LockError):
            kit.task.initialize()
        assert kit.task.state is TaskPhase.CREATED
        kit.stores.open_error = None
        kit.task.initialize()
        assert kit.task.state is TaskPhase.RESTORING

    def test_resumed_task_starts_from_what_is_committed(self) -> None:
        kit = counting_kit()
        kit.add(record("x"), record("buffered", offset=1))
        kit.task.process(1)
        commit(kit)
        kit.task.suspend()
        assert kit.task.buffered_records == 0
        kit.task.resume()
        assert kit.task.state is TaskPhase.RESTORING
        kit.task.complete_restoration({})
        kit.positions.positions.clear()
        assert kit.task.committable_offsets() == {}
        kit.add(record("y", offset=1))
        kit.task.process(1)
        assert [value[-1] for _, value, _ in kit.sent("out") if value] == [1, 2]

    def test_offsets_of_a_suspended_task_do_not_pass_what_was_buffered(self) -> None:
        kit = counting_kit()
        kit.add(record("x"), record("buffered", offset=1))
        kit.task.process(1)
        kit.task.suspend()
        assert kit.task.committable_offsets()[IN].offset == 1

    def test_recycled_stores_stay_open(self) -> None:
        kit = counting_kit()
        kit.add(record("x"))
        kit.task.process(1)
        commit(kit)
        kit.task.suspend()
        stores = kit.task.recycle()
        assert stores is kit.stores
        assert kit.task.state is TaskPhase.CLOSED
        standby = StandbyTask(kit.task.id, kit.task.nodes, kit.partitions, stores, kit.task.settings)
        standby.initialize()
        assert standby.state is TaskPhase.RUNNING
        standby.restoring.restore(COUNTS, [MemoryRecord(COUNTS.topic, 0, 9, b"k", (9).to_bytes(8, "big"))])
        assert kit.stores.in_bulk is False, "a standby has no end, so it would never be flushed"
        standby.suspend()
        again = ActiveTask(
            kit.task.id,
            kit.task.nodes,
            kit.partitions,
            standby.recycle(),
            collector=RecordCollector(kit.task.id, kit.producer, kit.settings),
            inputs=kit.positions,
            shared=SharedServices(clock=kit.clock),
        )
        again.initialize()
        again.complete_restoration({})
        again.add_records(IN, [record("y", offset=1)])
        again.process(1)
        assert kit.sent("out")[-1] == (b"k", (10).to_bytes(8, "big"), 0)
        assert kit.stores.calls.count("open") == 1
        assert "close" not in kit.stores.calls

    def test_close_dirty_closes_the_stores_without_checkpoint(self) -> None:
        kit = counting_kit()
        kit.add(record("x"))
        kit.task.process(1)
        kit.stores.calls.clear()
        kit.task.close_dirty()
        assert kit.stores.calls == ["close"]
        assert kit.task.state is TaskPhase.CLOSED
        kit.task.close_dirty()
        assert kit.stores.calls == ["close"]

    def test_revived_task_restores_corrupted_changelogs_from_the_beginning(self) -> None:
        kit = counting_kit()
        kit.add(record("x"))
        kit.task.process(1)
        commit(kit)
        kit.stores.calls.clear()
        kit.task.revive(corrupted=[COUNTS])
        assert kit.stores.calls == ["forget app-counts-changelog-0", "close"]
        assert kit.task.state is TaskPhase.CREATED
        assert kit.task.committable_offsets() == {}
        kit.task.initialize()
        assert kit.task.restoring.restore_position(COUNTS) == -2

    @pytest.mark.parametrize("step", ["initialize", "resume", "recycle", "close_clean"])
    def test_step_that_does_not_fit_the_state_is_an_internal_error(self, step: str) -> None:
        kit = counting_kit()
        with pytest.raises(IllegalStateError, match="task 0_0 is RUNNING, but must be"):
            getattr(kit.task, step)()

    def test_created_task_is_closed_without_touching_stores(self) -> None:
        kit = counting_kit(start=False)
        kit.task.suspend()
        kit.task.close_clean()
        assert kit.stores.calls == []


def test_standby_reports_the_offsets_that_it_has_restored() -> None:
    stores = FakeStores(["counts"])
    standby = StandbyTask(TaskId(0, 0), counting().subtopology(0), [IN], stores, TaskSettings(application_id="app"))
    standby.initialize()
    standby.restoring.restore(COUNTS, [MemoryRecord(COUNTS.topic, 0, 3, b"k", (1).to_bytes(8, "big"))])
    assert not standby.is_active
    assert standby.offset_sum() == 4
    standby.suspend()
    standby.close_clean()
    assert stores.calls[-2:] == ["checkpoint enforced", "close"]
