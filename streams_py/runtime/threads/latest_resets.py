"""Partitions that are read from their end because the group has committed no offset of them.

With ``auto.offset.reset=latest``, records that were written to a partition before the group read it are not processed,
as in Kafka Streams. At the first start of a group, the setting requests this. In a group that has committed offsets of
other partitions, the partition was added to the topic or never had a record, and the gap may be unexpected. So the log
has the offset at which reading starts, as a warning in the second case. Kafka Streams always logs it as an info.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from streams_protocol.types import TopicPartition
from streams_py.errors import StreamsError
from streams_py.ports import Admin, AdminError, RawRecord

__all__ = ["LatestResets"]

_log = logging.getLogger("streams_py")

_TEXT: Final = (
    "%s: the group has committed no offset of %s, and auto.offset.reset, or the reset policy of its source, is latest: "
    "reading starts at offset %d. Records before that offset are not processed"
)
_REMEDY: Final = ". If partitions are added while the application runs, use auto.offset.reset=earliest"


@dataclass(slots=True)
class _Reset:
    """A partition that is read from its end; ``offset`` is None until the consumer has found the end."""

    question: _Question
    offset: int | None = None


class _Question:
    """Whether the group has committed offsets of these topics, requested on a daemon thread."""

    def __init__(self, admin: Admin, group: str, topics: Collection[str]) -> None:
        self._admin, self._group, self._topics = admin, group, frozenset(topics)
        self.answer: bool | None = None
        """None until it is known. True also when the cluster does not say."""
        self.thread = threading.Thread(target=self._ask, name="latest-resets", daemon=True)
        self.thread.start()

    def _ask(self) -> None:
        answer = True
        try:
            described = self._admin.describe_topics(self._topics)
            partitions = [
                TopicPartition(info.topic, info.partition)
                for infos in described.values()
                if not isinstance(infos, AdminError)
                for info in infos
            ]
            answer = any(at is not None for at in self._admin.committed_offsets(self._group, partitions).values())
        except StreamsError as error:
            _log.debug("it is not known whether group %s has committed offsets: %s", self._group, error)
        finally:
            self.answer = answer


class LatestResets:
    """The partitions of one stream thread that start at their end, until the log has said so. On that thread only."""

    def __init__(self, thread_name: str, group: str, admin: Admin) -> None:
        self._name = thread_name
        self._group = group
        self._admin = admin
        self._resets: dict[TopicPartition, _Reset] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether :meth:`look` has something to do."""
        return bool(self._resets)

    def started(self, at_end: Collection[TopicPartition], read: Collection[TopicPartition]) -> None:
        """The consumer reads these partitions now, some of them from their end; the others are given up."""
        self._resets = {at: reset for at, reset in self._resets.items() if at in read and at not in at_end}
        if at_end:
            question = _Question(self._admin, self._group, {partition.topic for partition in read})
            self._resets |= {partition: _Reset(question) for partition in sorted(at_end)}

    def look(self, records: Iterable[RawRecord], position_of: Callable[[TopicPartition], int | None]) -> None:
        """Log the partitions whose start is known. ``records``: what the consumer has just returned."""
        unknown = {at for at, reset in self._resets.items() if reset.offset is None}
        if unknown:
            for record in records:
                at = TopicPartition(record.topic(), record.partition())
                if at in unknown:
                    unknown.discard(at)
                    self._resets[at].offset = record.offset()
            for at in unknown:
                self._resets[at].offset = position_of(at)
        for at, reset in list(self._resets.items()):
            has_commits = reset.question.answer
            if reset.offset is not None and has_commits is not None:
                del self._resets[at]
                level, more = (logging.WARNING, _REMEDY) if has_commits else (logging.INFO, "")
                _log.log(level, _TEXT + more, self._name, at, reset.offset)
