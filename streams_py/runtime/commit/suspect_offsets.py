"""Checks of committed offsets that the group's coordinator reports.

A coordinator that restarts reads all committed offsets of its groups from the beginning of its log before it answers.
Kafka 4.3 may answer while it is still reading: when its partition is elected twice in a row, the end of the first,
abandoned load activates the second one. Until that load has ended, a partition has an older committed offset, or none.
A task would then process records again, or start at its reset policy and skip records.

If another writer appends to the coordinator's log meanwhile, the load stops early. (One such record is the end of a
transaction, which a restarted broker aborts automatically.) Then the coordinator reports the old offsets until its
broker is restarted.

Committed offsets don't go back while a group has members, because the broker rejects a reset then. So an answer below
an offset that this client knows is suspect. So is an answer without offsets for a task whose stores contain results of
the group. Such an answer is requested again for some seconds. The offsets may have been reset while the group had no
members, and an application that was killed before its first commit has changelog records, too. So an answer that stays
the same is accepted then.

An answer that is wrong about one partition may be wrong about others. So all partitions of a suspect answer are
requested again, and each must stay the same for the longest of the times that apply to the answer. Tasks that are
restored later wait for themselves: they neither delay nor shorten the wait of earlier tasks.

Under exactly-once, offsets that this process has committed or read are never given up: their effects are in the output.
Such tasks wait until the broker or this process is restarted. An offset below the offset on disk is checked for longer
if a member has committed it: a reset stores no stream time with its offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from streams_protocol.types import TaskId, TopicPartition
from streams_py.ports import Clock, CommittedOffsets, OffsetAndMetadata
from streams_py.runtime.commit.known_commits import NOTHING, KnownCommits
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.record.offset_metadata import UNKNOWN_TIME, decode_offset_metadata
from streams_py.runtime.tasks.task import TaskPhase

_log = logging.getLogger(__name__)

_REPEATS, _REPEAT_MS = 5, 10_000
"""Number of identical answers with which a suspect answer is accepted, and the time in ms that they must span."""
_MEMBER_COMMIT_MS = 60_000
"""The same duration under exactly-once for an offset that a member of the group has committed, in ms."""
_ERROR_LOG_INTERVAL_MS = 60_000
"""Interval between two errors about an answer that cannot be accepted, in ms."""
_EXPIRY_MS = 60_000
"""Time after which a suspect answer no longer counts towards a new one, in ms."""


@dataclass(slots=True)
class _Suspect:
    """Equal offsets of one partition in suspect answers: the first and last time, and their number."""

    offset: int
    since_ms: int
    last_ms: int
    times: int = 0


class _Contradiction(NamedTuple):
    text: str
    patience_ms: int | None
    """Time until the answer is accepted, in ms; None: never."""


class OffsetChecks:
    """Checks the committed offsets for one stream thread; for that thread only."""

    def __init__(
        self,
        known: KnownCommits,
        clock: Clock,
        is_outdated: Callable[[TopicPartition, str | None], bool] = lambda partition, topic_id: False,
        *,
        exactly_once: bool,
    ) -> None:
        """``is_outdated``: whether an offset in the topic with this id belongs to a topic that was deleted since."""
        self._known = known
        self._is_outdated = is_outdated
        self._clock = clock
        self._exactly_once = exactly_once
        self._suspects: dict[TopicPartition, _Suspect] = {}
        self._next_error_log_ms = 0

    def accepted(
        self, answer: CommittedOffsets, requests: Sequence[tuple[ActiveTask, frozenset[TopicPartition]]]
    ) -> CommittedOffsets:
        """Return the part of the answer that is accepted, and known from now on. Request the other partitions again.

        The partitions of one request are accepted together.
        """
        reported = _offsets(answer)
        wrong = self._contradictions(answer, reported, requests)
        accepted = set(reported)
        if wrong:
            accepted = self._repeated(wrong, reported)
            for _, partitions in requests:
                if not accepted >= partitions & reported.keys():
                    accepted -= partitions
            self._log_accepted(wrong, accepted)
        for partition in accepted:
            self._suspects.pop(partition, None)
        self._known.note({partition: reported[partition] for partition in accepted})
        self._known.settle({partition: reported[partition] for partition in accepted & wrong.keys()})
        return {partition: answer[partition] for partition in accepted}

    def _repeated(
        self, wrong: Mapping[TopicPartition, _Contradiction], reported: Mapping[TopicPartition, int]
    ) -> set[TopicPartition]:
        """Return the partitions of a suspect answer that were reported often and long enough without a change.

        Offsets that change come from a coordinator that is still reading: the count of all partitions restarts.
        """
        now_ms = self._clock.monotonic_ms()
        self._suspects = {
            at: suspect for at, suspect in self._suspects.items() if now_ms - suspect.last_ms <= _EXPIRY_MS
        }
        if not self._suspects.keys() & wrong.keys():
            _log.warning(
                "%s; its coordinator may not have read all of its log yet; requesting the offsets again",
                next(iter(wrong.values())).text,
            )
        if any(reported.get(at, suspect.offset) != suspect.offset for at, suspect in self._suspects.items()):
            self._suspects.clear()
        for partition, offset in reported.items():
            suspect = self._suspects.setdefault(partition, _Suspect(offset, now_ms, now_ms))
            suspect.times += 1
            suspect.last_ms = now_ms
        lost = [(partition, said) for partition, (said, patience_ms) in wrong.items() if patience_ms is None]
        for partition, said in lost:
            if self._is_repeated(partition, _REPEAT_MS):
                self._log_error(said, now_ms - self._suspects[partition].since_ms, now_ms)
        if lost:
            return set()
        longest_ms = max(patience_ms or 0 for _, patience_ms in wrong.values())
        return {partition for partition in reported if self._is_repeated(partition, longest_ms)}

    def _is_repeated(self, partition: TopicPartition, patience_ms: int) -> bool:
        suspect = self._suspects[partition]
        return suspect.times >= _REPEATS and suspect.last_ms - suspect.since_ms >= patience_ms

    def _log_accepted(
        self, wrong: Mapping[TopicPartition, _Contradiction], accepted: Collection[TopicPartition]
    ) -> None:
        for partition, (said, _) in wrong.items():
            if partition in accepted:
                suspect = self._suspects[partition]
                lasts_s = (suspect.last_ms - suspect.since_ms) // 1000
                _log.warning("%s; the answer is the same after %d s and is accepted", said, lasts_s)
                return

    def _log_error(self, said: str, lasts_ms: int, now_ms: int) -> None:
        if now_ms >= self._next_error_log_ms:
            self._next_error_log_ms = now_ms + _ERROR_LOG_INTERVAL_MS
            _log.error(
                "%s by this process. The answer is the same after %d s, but offsets do not go back while a group has "
                "members: its coordinator has lost them. Under exactly_once_v2 no record may be processed twice, so "
                "the tasks that should start on this thread wait. Restart the broker that leads the group's partition "
                "of __consumer_offsets; it then reads all of its log. If the offsets were reset, or the topic was "
                "created again, while this process was disconnected, restart this process",
                said,
                lasts_ms // 1000,
            )

    def _contradictions(
        self,
        answer: CommittedOffsets,
        reported: Mapping[TopicPartition, int],
        requests: Sequence[tuple[ActiveTask, frozenset[TopicPartition]]],
    ) -> dict[TopicPartition, _Contradiction]:
        """Return each partition whose answer contradicts what is known, with the contradiction."""
        found: dict[TopicPartition, _Contradiction] = {}
        for task, partitions in requests:
            requested = sorted(partitions & reported.keys())
            starts = task.state is not TaskPhase.RUNNING
            least = task.committed_at_least() if starts else {}
            known = {at: self._known.at_least(at) for at in requested}
            for partition in requested:
                offset = reported[partition]
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
            is_news = len(requested) == len(partitions) and any(offset is None for offset in known.values())
            is_news = is_news and not any(self._is_outdated(at, task.stores.inputs.id_of(at)) for at in requested)
            if starts and is_news and task.has_state and all(reported[at] == NOTHING for at in requested):
                said = (
                    f"the group's coordinator reports no committed offsets for the partitions of task {task.id} "
                    f"({', '.join(map(str, requested))}), whose stores are not empty"
                )
                found = {**dict.fromkeys(requested, _Contradiction(said, _REPEAT_MS)), **found}
        return found

    def _patience_ms(self, reported: OffsetAndMetadata | None, *, is_ours: bool) -> int | None:
        """Return the time until an answer below a known offset is accepted.

        Args:
            is_ours: Whether this process knows the higher offset; otherwise its disk has it.
        """
        if not self._exactly_once:
            return _REPEAT_MS
        if is_ours:
            return None
        is_members = (
            reported is not None and decode_offset_metadata(reported.metadata).partition_time_ms != UNKNOWN_TIME
        )
        return _MEMBER_COMMIT_MS if is_members else _REPEAT_MS


def _offsets(answer: CommittedOffsets) -> dict[TopicPartition, int]:
    return {partition: NOTHING if at is None else at.offset for partition, at in answer.items()}


def _below(task: TaskId, partition: TopicPartition, offset: int, known: int) -> str:
    said = "nothing" if offset < 0 else f"offset {offset}"
    return (
        f"the group's coordinator reports {said} as committed for {partition} of task {task}, but offset {known} was "
        "committed before"
    )
