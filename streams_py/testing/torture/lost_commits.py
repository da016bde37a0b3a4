"""Whether the coordinator of a group has lost what was committed.

A coordinator of Kafka 4.3 that comes back may break off reading its log (``streams_py.runtime.commit.suspect_offsets``
says why): from then on it tells old offsets, until its broker is started again. No application can go on rightly; a run
has to tell that from an application that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

__all__ = ["LostCommits", "committed_offsets"]

_REQUEST_S: Final = 10
_STAYS_S: Final = 15
"""So long an older answer must stay: a coordinator that is still reading tells newer ones."""
_NOTHING: Final = -1


class LostCommits:
    """Asks what a group has committed again and again, on a thread of its own. ``ask`` says it for each topic and
    partition that has something, and raises KafkaException when nobody answers."""

    def __init__(self, ask: Callable[[], Mapping[tuple[str, int], int]]) -> None:
        self._ask = ask
        self._asking = ThreadPoolExecutor(1)
        self._asked: Future[Mapping[tuple[str, int], int]] | None = None
        self._known: dict[tuple[str, int], int] = {}
        self._behind: dict[tuple[str, int], tuple[int, float]] = {}
        """Those that were told to be older than they were: what was told, and since when."""

    def look(self, now_s: float) -> str | None:
        """What was lost, when that is certain; to be called every few seconds. It is told again when it stays."""
        if self._asked is None:
            self._asked = self._asking.submit(self._ask)
            return None
        if not self._asked.done():
            return None
        asked, self._asked = self._asked, None
        try:
            told = asked.result()
        except KafkaException:  # nobody is there, or it reads its log
            self._behind = {}
            return None
        now_told = {at: told.get(at, _NOTHING) for at in self._known}
        behind = {at: offset for at, offset in now_told.items() if offset < self._known[at]}
        self._known |= {at: offset for at, offset in told.items() if at not in behind}
        self._behind = {
            at: self._behind[at] if at in self._behind and self._behind[at][0] == offset else (offset, now_s)
            for at, offset in behind.items()
        }
        lost = {at: offset for at, (offset, since_s) in self._behind.items() if now_s - since_s >= _STAYS_S}
        if not lost:
            return None
        self._behind = {at: (offset, now_s) for at, offset in behind.items()}
        (topic, number), offset = min(lost.items())
        return (
            f"committed offsets of {len(lost)} partitions went back: {topic}-{number} from "
            f"{self._known[topic, number]} to {offset}"
        )

    def close(self) -> None:
        """Without waiting for an answer."""
        self._asking.shutdown(wait=False, cancel_futures=True)


def committed_offsets(
    connection: Mapping[str, Any], group: str, topics: Mapping[str, int]
) -> Callable[[], Mapping[tuple[str, int], int]]:
    """Asks for what ``group`` has committed in ``topics`` (their partitions), open transactions or not. Through a
    consumer that never joins: librdkafka's admin client crashes the process when a coordinator goes away."""
    settings = {**connection, "group.id": group, "enable.auto.commit": False, "isolation.level": "read_uncommitted"}
    consumer = Consumer(settings)
    wanted = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]

    def ask() -> Mapping[tuple[str, int], int]:
        told = consumer.committed(wanted, timeout=_REQUEST_S)
        if refused := next((at.error for at in told if at.error is not None), None):
            raise KafkaException(refused)
        return {(at.topic, at.partition): at.offset for at in told if at.offset >= 0}

    return ask
