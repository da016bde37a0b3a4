"""Detection of committed offsets that the group coordinator has lost.

After a failover, the coordinator of Kafka 4.3 may stop reading its log too early; see
``streams_py.runtime.commit.suspect_offsets``. It then returns old offsets until its broker restarts. No application can
continue correctly in this case, so a run must distinguish it from errors of the application.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

_REQUEST_S: Final = 10
_STAYS_S: Final = 15
"""Time for which an older offset must persist, in s. A coordinator that is still reading its log returns newer ones."""
_NOTHING: Final = -1


class LostCommits:
    """Requests the committed offsets of a group repeatedly, on a separate thread.

    ``ask`` returns the committed offset of each topic and partition that has one. It raises KafkaException if the
    coordinator does not answer.
    """

    def __init__(self, ask: Callable[[], Mapping[tuple[str, int], int]]) -> None:
        self._ask = ask
        self._asking = ThreadPoolExecutor(1)
        self._asked: Future[Mapping[tuple[str, int], int]] | None = None
        self._known: dict[tuple[str, int], int] = {}
        self._behind: dict[tuple[str, int], tuple[int, float]] = {}
        """Partitions with an older offset than before: that offset, and the time since when it is returned."""

    def check(self, now_s: float) -> str | None:
        """Return a description of lost commits, if the loss is certain; otherwise None.

        Call it every few seconds. A loss that persists is returned again.
        """
        if self._asked is None:
            self._asked = self._asking.submit(self._ask)
            return None
        if not self._asked.done():
            return None
        asked, self._asked = self._asked, None
        try:
            told = asked.result()
        except KafkaException:  # the coordinator is not available, or is reading its log
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
            f"committed offsets of {len(lost)} partitions moved backwards: {topic}-{number} from "
            f"{self._known[topic, number]} to {offset}"
        )

    def close(self) -> None:
        """Stop without waiting for an answer."""
        self._asking.shutdown(wait=False, cancel_futures=True)


def committed_offsets(
    connection: Mapping[str, Any], group: str, topics: Mapping[str, int]
) -> Callable[[], Mapping[tuple[str, int], int]]:
    """Return a function that requests the committed offsets of ``group`` in ``topics`` (partition count by name).

    Open transactions do not delay the answer. The function uses a consumer that never joins the group,
    because librdkafka's admin client crashes the process when a coordinator becomes unavailable.
    """
    settings = {**connection, "group.id": group, "enable.auto.commit": False, "isolation.level": "read_uncommitted"}
    consumer = Consumer(settings)
    wanted = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]

    def ask() -> Mapping[tuple[str, int], int]:
        told = consumer.committed(wanted, timeout=_REQUEST_S)
        if refused := next((at.error for at in told if at.error is not None), None):
            raise KafkaException(refused)
        return {(at.topic, at.partition): at.offset for at in told if at.offset >= 0}

    return ask
