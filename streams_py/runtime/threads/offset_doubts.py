"""Doubts about committed offsets that the group's coordinator has told.

A coordinator that comes back reads all that its groups have committed, from the beginning of its log, before it
answers. One of Kafka 4.3 may answer while it still reads: when its partition is elected twice in a row, the end of the
first, abandoned load makes the second one active. Until that has ended, a partition has an older offset, or none; a
task would process again what it has processed, or start where its reset policy says and leave out what comes before.

Committed offsets do not go back while a group has members: a reset is refused then. So an answer below what this
client knows cannot be true, nor one of nothing for a task whose stores were filled from the group's work. Such an
answer is asked for again, for some seconds: somebody may have reset the offsets while no member was there, and an
application that was killed before its first commit has filled changelogs, too. What is still the answer then is
believed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from streams_protocol.types import TaskId, TopicPartition
from streams_py.ports import Clock, CommittedOffsets
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.known_commits import NOTHING, KnownCommits
from streams_py.runtime.tasks.task import TaskPhase

__all__ = ["OffsetDoubts"]

_log = logging.getLogger(__name__)

_DOUBTS, _DOUBT_MS = 5, 10_000
"""So often, for so long, an answer must be given that contradicts what is known."""
_FORGOTTEN_MS = 60_000
"""A doubt that nobody has had for so long says nothing of a new one."""


class OffsetDoubts:
    """Of one stream thread; on that thread only."""

    def __init__(self, known: KnownCommits, clock: Clock) -> None:
        self._known = known
        self._clock = clock
        self._wrong: str | None = None
        self._times = 0
        self._since_ms = self._last_ms = 0

    def believes(
        self, answer: CommittedOffsets, asking: Sequence[tuple[ActiveTask, frozenset[TopicPartition]]]
    ) -> bool:
        """False: ask again later for all of it, since who is wrong about one partition may be about others. What is
        believed is known from now on."""
        wrong, now_ms = self._contradiction(answer, asking), self._clock.monotonic_ms()
        if wrong is not None and not self._is_settled(wrong, now_ms):
            return False
        self._wrong = None
        self._known.note(_offsets(answer))
        return True

    def _is_settled(self, wrong: str, now_ms: int) -> bool:
        """True when that was said often enough. Offsets that change are those of a coordinator that goes on reading."""
        is_old = now_ms - self._last_ms > _FORGOTTEN_MS
        if self._wrong is None or is_old:
            _log.warning(
                "%s; its coordinator may not have read all of its log yet: asking again, for up to %d s",
                wrong,
                _DOUBT_MS // 1000,
            )
        if wrong != self._wrong or is_old:
            self._wrong, self._times, self._since_ms = wrong, 0, now_ms
        self._times += 1
        self._last_ms = now_ms
        lasts_ms = now_ms - self._since_ms
        if self._times <= _DOUBTS or lasts_ms < _DOUBT_MS:
            return False
        _log.warning("%s; it is still said after %d s, and believed", wrong, lasts_ms // 1000)
        return True

    def _contradiction(
        self, answer: CommittedOffsets, asking: Sequence[tuple[ActiveTask, frozenset[TopicPartition]]]
    ) -> str | None:
        told = _offsets(answer)
        for task, partitions in asking:
            asked = sorted(partitions & told.keys())
            starts = task.state is not TaskPhase.RUNNING
            least = task.committed_at_least() if starts else {}
            known = {at: self._known.at_least(at) for at in asked}
            for partition in asked:
                before = max(least.get(partition, 0), known[partition] or 0)
                if before and told[partition] < before:
                    return _below(task.id, partition, told[partition], before)
            is_news = any(offset is None for offset in known.values())
            if starts and is_news and task.has_state and all(told[at] == NOTHING for at in asked):
                return (
                    f"the group is said to have committed nothing for the partitions of task {task.id} "
                    f"({', '.join(map(str, asked))}), whose stores are not empty"
                )
        return None


def _offsets(answer: CommittedOffsets) -> dict[TopicPartition, int]:
    return {partition: NOTHING if at is None else at.offset for partition, at in answer.items()}


def _below(task: TaskId, partition: TopicPartition, offset: int, known: int) -> str:
    said = "nothing" if offset < 0 else f"offset {offset}"
    return (
        f"the group is said to have committed {said} for {partition} of task {task}, and offset {known} was committed "
        "before"
    )
