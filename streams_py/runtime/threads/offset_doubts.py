"""Doubts about committed offsets that the group's coordinator has told.

A coordinator that comes back reads all that its groups have committed, from the beginning of its log, before it
answers. One of Kafka 4.3 may answer while it still reads: when its partition is elected twice in a row, the end of the
first, abandoned load makes the second one active. Until that has ended, a partition has an older offset, or none; a
task would process again what it has processed, or start where its reset policy says and leave out what comes before.

And when somebody else writes to the coordinator's log meanwhile (the end of a transaction, which a broker that comes
back aborts by itself), the load breaks off: then the old offsets stay the answer, until that broker is started again.

Committed offsets do not go back while a group has members: a reset is refused then. So an answer below what this
client knows cannot be true, nor one of nothing for a task whose stores were filled from the group's work. Such an
answer is asked for again, for some seconds: somebody may have reset the offsets while no member was there, and an
application that was killed before its first commit has filled changelogs, too. What is still the answer then is
believed.

Under exactly-once, what this process itself has committed, or was told, is never given up: its effects are in the
output. Such tasks wait until the broker, or this process, is started again. And an offset below what the disk knows is
doubted for longer when a member has committed it: a reset leaves no stream time with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from streams_protocol.types import TaskId, TopicPartition
from streams_py.ports import Clock, CommittedOffsets, OffsetAndMetadata
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.known_commits import NOTHING, KnownCommits
from streams_py.runtime.tasks.offset_metadata import UNKNOWN_TIME, decode_offset_metadata
from streams_py.runtime.tasks.task import TaskPhase

__all__ = ["OffsetDoubts"]

_log = logging.getLogger(__name__)

_DOUBTS, _DOUBT_MS = 5, 10_000
"""So often, for so long, an answer must be given that contradicts what is known."""
_MEMBERS_MS = 60_000
"""For so long under exactly-once when it is an offset that a member of the group has committed."""
_COMPLAINT_MS = 60_000
"""So often it is said that an answer cannot be believed, and what to do."""
_FORGOTTEN_MS = 60_000
"""A doubt that nobody has had for so long says nothing of a new one."""


@dataclass(slots=True)
class _Doubt:
    """Of one partition: the offset that is said, since when, how often and when last."""

    offset: int
    since_ms: int
    last_ms: int
    times: int = 0


class _Contradiction(NamedTuple):
    said: str
    patience_ms: int | None
    """None: it is not believed, however long it is said."""


class OffsetDoubts:
    """Of one stream thread; on that thread only."""

    def __init__(
        self,
        known: KnownCommits,
        clock: Clock,
        is_outdated: Callable[[TopicPartition, str | None], bool] = lambda partition, topic_id: False,
        *,
        exactly_once: bool,
    ) -> None:
        """``is_outdated``: whether an offset in the topic with an id is an offset in a topic that was deleted since."""
        self._known = known
        self._is_outdated = is_outdated
        self._clock = clock
        self._exactly_once = exactly_once
        self._doubts: dict[TopicPartition, _Doubt] = {}
        self._next_complaint_ms = 0

    def believes(
        self, answer: CommittedOffsets, asking: Sequence[tuple[ActiveTask, frozenset[TopicPartition]]]
    ) -> bool:
        """False: ask again later for all of it, since who is wrong about one partition may be about others. What is
        believed is known from now on."""
        told = _offsets(answer)
        wrong = self._contradictions(answer, told, asking)
        if wrong and not self._is_settled(wrong, told):
            return False
        for partition in told:
            self._doubts.pop(partition, None)
        self._known.note(told)
        self._known.settle({partition: told[partition] for partition in wrong})
        return True

    def _is_settled(self, wrong: Mapping[TopicPartition, _Contradiction], told: Mapping[TopicPartition, int]) -> bool:
        """True when one of these was said often enough, and none has changed: offsets that change are those of a
        coordinator that goes on reading. Partitions that are asked for later begin nothing anew."""
        now_ms = self._clock.monotonic_ms()
        self._doubts = {at: doubt for at, doubt in self._doubts.items() if now_ms - doubt.last_ms <= _FORGOTTEN_MS}
        if not self._doubts.keys() & wrong.keys():
            _log.warning(
                "%s; its coordinator may not have read all of its log yet: asking again",
                next(iter(wrong.values())).said,
            )
        if any(told.get(at, doubt.offset) != doubt.offset for at, doubt in self._doubts.items()):
            self._doubts.clear()
        settled: tuple[str, int] | None = None
        for partition, (said, patience_ms) in wrong.items():
            doubt = self._doubts.setdefault(partition, _Doubt(told[partition], now_ms, now_ms))
            doubt.times += 1
            doubt.last_ms = now_ms
            lasts_ms = now_ms - doubt.since_ms
            if doubt.times > _DOUBTS and lasts_ms >= (_DOUBT_MS if patience_ms is None else patience_ms):
                if patience_ms is None:
                    self._complain(said, lasts_ms, now_ms)
                else:
                    settled = settled or (said, lasts_ms)
        if settled is None or any(patience_ms is None for _, patience_ms in wrong.values()):
            return False
        _log.warning("%s; it is still said after %d s, and believed", settled[0], settled[1] // 1000)
        return True

    def _complain(self, said: str, lasts_ms: int, now_ms: int) -> None:
        if now_ms >= self._next_complaint_ms:
            self._next_complaint_ms = now_ms + _COMPLAINT_MS
            _log.error(
                "%s by this process. It is still said after %d s, but offsets do not go back while a group has "
                "members: its coordinator has lost them. Nothing is processed twice under exactly_once_v2, so the "
                "tasks that are to start on this thread wait: start the broker again that leads the group's partition "
                "of __consumer_offsets, it then reads all of its log. If the offsets were reset, or the topic was "
                "created anew, while this process was cut off, start this process again",
                said,
                lasts_ms // 1000,
            )

    def _contradictions(
        self,
        answer: CommittedOffsets,
        told: Mapping[TopicPartition, int],
        asking: Sequence[tuple[ActiveTask, frozenset[TopicPartition]]],
    ) -> dict[TopicPartition, _Contradiction]:
        """Partition -> what is said of it that contradicts what is known."""
        found: dict[TopicPartition, _Contradiction] = {}
        for task, partitions in asking:
            asked = sorted(partitions & told.keys())
            starts = task.state is not TaskPhase.RUNNING
            least = task.committed_at_least() if starts else {}
            known = {at: self._known.at_least(at) for at in asked}
            for partition in asked:
                offset = told[partition]
                on_disk = 0 if self._known.is_settled(partition, offset) else least.get(partition, 0)
                ours = known[partition] or 0
                if self._is_outdated(partition, task.stores.inputs.id_of(partition)):
                    on_disk = 0
                if self._is_outdated(partition, self._known.topic_id(partition)):
                    ours = 0
                before = max(on_disk, ours)
                if before and offset < before:
                    patience_ms = self._patience_ms(answer[partition], is_ours=max(offset, 0) < ours)
                    found[partition] = _Contradiction(_below(task.id, partition, offset, before), patience_ms)
            is_news = len(asked) == len(partitions) and any(offset is None for offset in known.values())
            is_news = is_news and not any(self._is_outdated(at, task.stores.inputs.id_of(at)) for at in asked)
            if starts and is_news and task.has_state and all(told[at] == NOTHING for at in asked):
                said = (
                    f"the group is said to have committed nothing for the partitions of task {task.id} "
                    f"({', '.join(map(str, asked))}), whose stores are not empty"
                )
                found = {**dict.fromkeys(asked, _Contradiction(said, _DOUBT_MS)), **found}
        return found

    def _patience_ms(self, told: OffsetAndMetadata | None, *, is_ours: bool) -> int | None:
        """With an answer below what is known: to this process (``is_ours``), or else on its disk."""
        if not self._exactly_once:
            return _DOUBT_MS
        if is_ours:
            return None
        is_members = told is not None and decode_offset_metadata(told.metadata).partition_time_ms != UNKNOWN_TIME
        return _MEMBERS_MS if is_members else _DOUBT_MS


def _offsets(answer: CommittedOffsets) -> dict[TopicPartition, int]:
    return {partition: NOTHING if at is None else at.offset for partition, at in answer.items()}


def _below(task: TaskId, partition: TopicPartition, offset: int, known: int) -> str:
    said = "nothing" if offset < 0 else f"offset {offset}"
    return (
        f"the group is said to have committed {said} for {partition} of task {task}, and offset {known} was committed "
        "before"
    )
