"""Whether the coordinator of a group has lost what was committed.

A coordinator of Kafka 4.3 that comes back may break off reading its log (``streams_py.runtime.threads.offset_doubts``
says why): from then on it tells old offsets, until its broker is started again. No application can go on rightly; a run
has to tell that from an application that does not.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

__all__ = ["LostCommits"]

_REQUEST_S: Final = 10
_STAYS_S: Final = 15
"""So long an older answer must stay: a coordinator that is still reading tells newer ones."""
_NOTHING: Final = -1


class LostCommits:
    """Asks a group's coordinator again and again, without waiting for it."""

    def __init__(self, admin: AdminClient, group: str) -> None:
        self._admin = admin
        self._group = group
        self._asked: Future[ConsumerGroupTopicPartitions] | None = None
        self._known: dict[tuple[str, int], int] = {}
        self._behind: dict[tuple[str, int], int] = {}
        self._since_s = 0.0

    def look(self, now_s: float) -> str | None:
        """What was lost, when that is certain; to be called every few seconds. It is told again when it stays."""
        if self._asked is None:
            group = ConsumerGroupTopicPartitions(self._group)
            self._asked = self._admin.list_consumer_group_offsets([group], request_timeout=_REQUEST_S)[self._group]
            return None
        if not self._asked.done():
            return None
        asked, self._asked = self._asked, None
        try:
            told = _offsets(asked.result().topic_partitions or [])
        except KafkaException:  # nobody is there, or it reads its log
            self._behind = {}
            return None
        behind = {at: told.get(at, _NOTHING) for at, known in self._known.items() if told.get(at, _NOTHING) < known}
        if not behind or behind != self._behind:
            self._behind, self._since_s = behind, now_s
            self._known |= {at: offset for at, offset in told.items() if at not in behind}
            return None
        if now_s - self._since_s < _STAYS_S:
            return None
        self._since_s = now_s
        (topic, number), offset = min(behind.items())
        return (
            f"committed offsets of {len(behind)} partitions went back: {topic}-{number} from "
            f"{self._known[topic, number]} to {offset}"
        )


def _offsets(partitions: list[TopicPartition]) -> dict[tuple[str, int], int]:
    return {(at.topic, at.partition): at.offset for at in partitions if at.error is None and at.offset >= 0}
