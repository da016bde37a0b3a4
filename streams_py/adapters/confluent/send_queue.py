"""How long a producer's queue may be, so that its records are written in the time for which they may wait.

Records that expire once were in the queue during an outage. Records that expire again before anything went well wait
because the queue holds more than the brokers take in that time: made again and again, they would never be written. So
it is halved, until it is short enough or writing goes well.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import Producer

from streams_py.adapters.confluent.settings import Settings

__all__ = ["SendQueue", "waiting_records"]

_MIN: Final = {"queue.buffering.max.messages": 20_000, "queue.buffering.max.kbytes": 4_096}
"""Enough for 200,000 small records, or 40 MB, per second, with Kafka's lingering."""
_GOES_WELL: Final = 3
_LOOKS_MAX: Final = 100


def waiting_records(client: Producer) -> int:
    """Count the client's records that are neither written nor failed; serves its delivery reports and other events.

    librdkafka's queue length also counts the events that no poll has served: delivery reports, errors, log lines and
    statistics. An event leaves the queue only through a poll. So if a poll finds no event, the queue held no event when
    the length was taken before that poll, and the length is the number of records.
    """
    fewest = len(client)
    for _ in range(_LOOKS_MAX):  # a client with `debug` may log without a pause
        if not fewest or not client.poll(0):
            break
        fewest = min(fewest, len(client))
    return fewest


class SendQueue:
    """The queue of a producer with these settings. ``has_expired``: some records have, since the last :meth:`adapt`."""

    def __init__(self, settings: Settings) -> None:
        self._sizes = {key: int(str(settings[key])) for key in _MIN if key in settings}
        self._least_kbytes = int(str(settings.get("message.max.bytes", 0))) // 1024 + 1
        self._halvings = 0
        self._flushes = _GOES_WELL
        self.has_expired = False

    def note_flush(self) -> None:
        """All that was in the queue was written."""
        self._flushes += 1

    def adapt(self) -> None:
        """A new client is about to be made."""
        if self._flushes >= _GOES_WELL:
            self._halvings = 0
        elif self.has_expired:
            self._halvings += 1
        if self.has_expired:
            self.has_expired, self._flushes = False, 0

    @property
    def settings(self) -> Settings:
        """What is other than at first."""
        if not self._halvings:
            return {}
        least = {**_MIN, "queue.buffering.max.kbytes": max(_MIN["queue.buffering.max.kbytes"], self._least_kbytes)}
        return {key: min(size, max(least[key], size >> self._halvings)) for key, size in self._sizes.items()}
