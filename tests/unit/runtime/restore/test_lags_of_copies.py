"""A copy that has read its changelogs to the end has lag 0 for its member and for any leader, however they end.

A changelog can be empty with a start above 0, or end in transaction markers or compacted offsets. Then no record shows
that the copy is complete, but the position of the consumer does.

"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.assignment.problem import lag_from_offsets
from streams_py.member.promotion import Promotion
from streams_py.member.tasks import Progress
from streams_py.ports import RawRecord
from streams_py.runtime.queries.lags import LagInfo, store_partition_lags
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.runtime.tasks.standby_task import StandbyTask
from tests.support.runtime.counting import COUNTS, IN, counting, counting_kit
from tests.support.runtime.fakes import FakeLog
from tests.support.runtime.stepped_updater import Stepped
from tests.support.runtime.task_kit import FakeStores

TASK = TaskId(0, 0)


def emptied(log: FakeLog) -> None:
    log.write(COUNTS, 1_000)
    log.starts[COUNTS], log.offsets[COUNTS] = 1_000, []


def markers_last(log: FakeLog) -> None:
    log.write(COUNTS, 3, skip=1)


def markers_only(log: FakeLog) -> None:
    log.write(COUNTS, 0, skip=20)


def compacted_end(log: FakeLog) -> None:
    log.write(COUNTS, 5, skip=100)


def records_only(log: FakeLog) -> None:
    log.write(COUNTS, 5)


ENDINGS = [emptied, markers_last, markers_only, compacted_end, records_only]


class Offsets(FakeStores):
    """Stores in which only the offsets matter."""

    def restore(self, changelog: TopicPartition, records: Sequence[RawRecord], *, in_bulk: bool = False) -> None:
        self.changelog_offsets[changelog] = records[-1].offset()


def read_to_the_end(updater: Stepped) -> None:
    updater.turn(3)
    updater.clock.now += 200  # the next measurement
    updater.turn()


def copy_of(sources: Collection[TopicPartition] = ()) -> StandbyTask:
    stores = Offsets(["counts"])
    stores.source_changelogs = frozenset(sources)
    copy = StandbyTask(TASK, counting().subtopology(0), [IN], stores, TaskSettings(application_id="app"))
    copy.initialize()
    return copy


@pytest.mark.parametrize("ending", ENDINGS)
def test_copy_that_is_at_the_end_reports_the_end_offset(ending: Callable[[FakeLog], None], log: FakeLog) -> None:
    ending(log)
    updater, copy = Stepped(log), copy_of()
    updater.add(copy.restoring)
    read_to_the_end(updater)
    end = log.ends[COUNTS]
    assert updater.standbys == {TASK: Progress(end, end)}
    assert copy.offset_sum() == end
    assert lag_from_offsets(copy.offset_sum() or 0, end) == 0


@pytest.mark.parametrize("ending", ENDINGS)
def test_member_asks_once_for_the_promotion_of_a_copy_at_the_end(
    ending: Callable[[FakeLog], None], log: FakeLog
) -> None:
    promotion = Promotion(0)
    promotion.subscribed({})
    promotion.assigned([TASK])
    ending(log)
    updater, copy = Stepped(log), copy_of()
    updater.add(copy.restoring)
    read_to_the_end(updater)
    assert promotion.reason(1_000, updater.standbys) is not None
    promotion.subscribed({TASK: copy.offset_sum() or 0})
    promotion.assigned([TASK])  # the leader does not move it
    updater.clock.now += 200
    updater.turn()
    assert promotion.reason(1_000_000, updater.standbys) is None


@pytest.mark.parametrize("ending", ENDINGS)
def test_copy_lacks_what_is_written_after_the_end_that_it_has_read(
    ending: Callable[[FakeLog], None], log: FakeLog
) -> None:
    ending(log)
    updater, copy = Stepped(log), copy_of()
    updater.add(copy.restoring)
    read_to_the_end(updater)
    end = log.ends[COUNTS]
    updater.pause(True)
    log.write(COUNTS, 7)
    assert copy.offset_sum() == end
    assert lag_from_offsets(copy.offset_sum() or 0, log.ends[COUNTS]) == 7


def test_copy_that_is_behind_reports_what_it_has(log: FakeLog) -> None:
    log.write(COUNTS, 10, skip=5)
    updater, copy = Stepped(log), copy_of()
    updater.consumer.delivers_max = 4
    updater.add(copy.restoring)
    updater.turn()
    assert copy.offset_sum() == 4
    assert updater.standbys == {TASK: Progress(4, 15)}


def test_copy_of_a_source_topic_reports_the_committed_offset_at_most(log: FakeLog) -> None:
    log.write(COUNTS, 3, skip=10)
    updater, copy = Stepped(log), copy_of([COUNTS])
    updater.admin.committed[COUNTS] = 5
    updater.add(copy.restoring)
    read_to_the_end(updater)
    assert copy.offset_sum() == 5
    assert updater.standbys == {TASK: Progress(5, 5)}


def test_position_of_a_lost_state_is_forgotten() -> None:
    kit = counting_kit(start=False)
    kit.task.initialize()
    kit.task.restoring.note_position(COUNTS, 1_000)
    assert kit.task.offset_sum() == 1_000
    kit.task.revive(corrupted=[COUNTS])
    kit.task.initialize()
    assert kit.task.offset_sum() == 0


def test_restoration_of_a_promoted_copy_still_begins_after_its_last_record(log: FakeLog) -> None:
    """The position of the consumer affects the assignment, but never which records a store skips."""
    markers_last(log)
    updater, copy = Stepped(log), copy_of()
    updater.add(copy.restoring)
    read_to_the_end(updater)
    assert copy.changelog_positions == {COUNTS: 4}
    copy.suspend()
    assert copy.recycle().changelog_offsets == {COUNTS: 2}


def test_lag_for_queries_counts_the_position_of_the_copy(log: FakeLog) -> None:
    emptied(log)
    updater, copy = Stepped(log), copy_of()
    updater.add(copy.restoring)
    read_to_the_end(updater)
    assert store_partition_lags([copy], updater.admin) == {"counts": {0: LagInfo(1_000, 1_000)}}


def test_position_of_a_restoration_does_not_outlive_the_running_task() -> None:
    """Its changelog may be recreated while it runs. The position then belongs to a deleted topic."""
    kit = counting_kit(start=False)
    kit.task.initialize()
    kit.task.restoring.note_position(COUNTS, 1_000)
    kit.task.complete_restoration({})
    kit.task.suspend()
    assert kit.task.offset_sum() == 0
