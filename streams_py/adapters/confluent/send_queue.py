"""Limit the size of a producer's queue, so that queued records are written before they expire.

An outage can make records expire once. If records expire again without successful flushes in between, the queue holds
more than the brokers can write before the records expire. Tasks would produce these records again and again without
ever writing them. So the queue is halved until it is small enough or flushes succeed.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import Producer

from streams_py.adapters.confluent.settings import Settings

_MIN: Final = {"queue.buffering.max.messages": 20_000, "queue.buffering.max.kbytes": 4_096}
"""Smallest queue: with Kafka's linger time, enough for 200,000 small records or 40 MB per second."""
_STABLE_FLUSHES: Final = 3
"""Complete flushes after which the queue gets its configured size again."""
_POLLS_MAX: Final = 100


def waiting_records(client: Producer) -> int:
    """Count the client's records that are neither written nor failed; serves its delivery reports and other events.

    librdkafka's queue length also counts the events that no poll has served: delivery reports, errors, log lines and
    statistics. An event leaves the queue only through a poll. So if a poll finds no event, the queue held no event when
    the length was taken before that poll, and the length is the number of records.
    """
    fewest = len(client)
    for _ in range(_POLLS_MAX):  # a client with `debug` may log without a pause
        if not fewest or not client.poll(0):
            break
        fewest = min(fewest, len(client))
    return fewest


class SendQueue:
    """The queue size of a producer. ``has_expired``: whether records have expired since the last :meth:`adapt`."""

    def __init__(self, settings: Settings) -> None:
        self._sizes = {key: int(str(settings[key])) for key in _MIN if key in settings}
        self._least_kbytes = int(str(settings.get("message.max.bytes", 0))) // 1024 + 1
        self._halvings = 0
        self._flushes = _STABLE_FLUSHES
        self.has_expired = False

    def note_flush(self) -> None:
        """Count a flush that wrote all queued records."""
        self._flushes += 1

    def adapt(self) -> None:
        """Choose the queue size of the next client. Call this before each new client."""
        if self._flushes >= _STABLE_FLUSHES:
            self._halvings = 0
        elif self.has_expired:
            self._halvings += 1
        if self.has_expired:
            self.has_expired, self._flushes = False, 0

    @property
    def settings(self) -> Settings:
        """The reduced queue sizes; empty when the configured sizes apply."""
        if not self._halvings:
            return {}
        least = {**_MIN, "queue.buffering.max.kbytes": max(_MIN["queue.buffering.max.kbytes"], self._least_kbytes)}
        return {key: min(size, max(least[key], size >> self._halvings)) for key, size in self._sizes.items()}
