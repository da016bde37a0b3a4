"""Partitions that are read from their end because the group has no committed offset of them.

With ``auto.offset.reset=latest``, records that were written to a partition before the group read it are not processed,
as in Kafka Streams. At the first start of a group, that is what the setting requests. In a group with committed offsets
of other partitions, the partition was added to the topic or never had a record, and the gap may be unexpected. So the
offset at which reading starts is logged, as a warning in the second case. Kafka Streams always logs it at INFO.
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

_log = logging.getLogger("streams_py")

_TEXT: Final = (
    "%s: the group has committed no offset of %s, and auto.offset.reset, or the reset policy of its source, is latest: "
    "reading starts at offset %d. Records before that offset are not processed"
)
_REMEDY: Final = ". If partitions are added while the application runs, use auto.offset.reset=earliest"


@dataclass(slots=True)
class _Reset:
    """A partition that is read from its end. ``offset``: None until the consumer has found the end."""

    request: _Request
    offset: int | None = None


class _Request:
    """A request, on a daemon thread, whether the group has committed offsets of these topics."""

    def __init__(self, admin: Admin, group: str, topics: Collection[str]) -> None:
        self._admin, self._group, self._topics = admin, group, frozenset(topics)
        self.answer: bool | None = None
        """None until the answer is known. True also if the cluster does not answer."""
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
            _log.debug("cannot determine whether group %s has committed offsets: %s", self._group, error)
        finally:
            self.answer = answer


class LatestResets:
    """Partitions of one stream thread that start at their end and are not logged yet. For that thread only."""

    def __init__(self, thread_name: str, group: str, admin: Admin) -> None:
        self._name = thread_name
        self._group = group
        self._admin = admin
        self._resets: dict[TopicPartition, _Reset] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether :meth:`log_known` has work to do."""
        return bool(self._resets)

    def started(self, at_end: Collection[TopicPartition], read: Collection[TopicPartition]) -> None:
        """Note the partitions that the consumer now reads, some of them from their end. Forget all others."""
        self._resets = {at: reset for at, reset in self._resets.items() if at in read and at not in at_end}
        if at_end:
            request = _Request(self._admin, self._group, {partition.topic for partition in read})
            self._resets |= {partition: _Reset(request) for partition in sorted(at_end)}

    def log_known(self, records: Iterable[RawRecord], position_of: Callable[[TopicPartition], int | None]) -> None:
        """Log the partitions whose start is known. ``records``: the records that the consumer has just returned."""
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
            has_commits = reset.request.answer
            if reset.offset is not None and has_commits is not None:
                del self._resets[at]
                level, more = (logging.WARNING, _REMEDY) if has_commits else (logging.INFO, "")
                _log.log(level, _TEXT + more, self._name, at, reset.offset)
