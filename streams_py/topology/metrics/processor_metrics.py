"""What processors measure of their own: sensors, whose figures stand beside those of the library.

Answers to Kafka Streams' ``StreamsMetrics``: names, groups and tags are those it gives them, and one tag more, the
task, so that figures of two tasks of a thread are not one. The task's thread writes a sensor; others read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from streams_py.errors import ConfigError

__all__ = ["ProcessorMetrics", "Sensor"]


class Sensor:
    """Counts what happens, and what it measures. ``count`` values were recorded; ``total`` is their sum."""

    __slots__ = ("count", "largest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.largest = 0.0

    def record(self, value: float = 1.0) -> None:
        """It happened once more, and took, or weighed, so much: ms, where it is a latency."""
        self.count += 1
        self.total += value
        if value > self.largest or self.count == 1:
            self.largest = value


class _Place(NamedTuple):
    scope: str
    entity: str
    operation: str
    is_latency: bool
    tags: tuple[tuple[str, str], ...]


class ProcessorMetrics:
    """The sensors of one task, for its processors (``context.metrics``); asked twice for the same, it gives the same.

    The figures of ``add_rate_total_sensor("orders", "shop", "paid")`` are ``paid-rate`` and ``paid-total`` of the group
    ``stream-orders-metrics`` with the tag ``orders-id=shop``, in ``KafkaStreams.metrics()`` and its exporters.
    """

    def __init__(self) -> None:
        self._sensors: dict[_Place, Sensor] = {}

    def add_rate_total_sensor(
        self, scope: str, entity: str, operation: str, *, tags: Mapping[str, str] | None = None
    ) -> Sensor:
        """Something that happens: ``operation-total`` and ``operation-rate``, per second. ConfigError when a name is
        empty or no text."""
        return self._sensor(_place(scope, entity, operation, tags, is_latency=False))

    def add_latency_rate_total_sensor(
        self, scope: str, entity: str, operation: str, *, tags: Mapping[str, str] | None = None
    ) -> Sensor:
        """Something that takes time, in ms: also ``operation-latency-avg`` and ``operation-latency-max``."""
        return self._sensor(_place(scope, entity, operation, tags, is_latency=True))

    def _sensor(self, place: _Place) -> Sensor:
        return self._sensors.setdefault(place, Sensor())

    def figures(self, seconds: float) -> Iterator[tuple[str, dict[str, str], dict[str, float]]]:
        """Group, tags and figures of each sensor after so many seconds. For any thread."""
        for place, sensor in list(self._sensors.items()):
            name, count = place.operation, sensor.count
            found = {f"{name}-total": float(count), f"{name}-rate": count / seconds}
            if place.is_latency:
                found[f"{name}-latency-avg"] = sensor.total / count if count else 0.0
                found[f"{name}-latency-max"] = sensor.largest
            yield f"stream-{place.scope}-metrics", {f"{place.scope}-id": place.entity, **dict(place.tags)}, found


def _place(scope: str, entity: str, operation: str, tags: Mapping[str, str] | None, *, is_latency: bool) -> _Place:
    for what, name in (("scope", scope), ("entity", entity), ("operation", operation)):
        given: object = name
        if not isinstance(given, str) or not given:
            raise ConfigError(f"the {what} of a sensor is {name!r}; give it a name, a text that is not empty")
    return _Place(scope, entity, operation, is_latency, tuple((name, str(tag)) for name, tag in (tags or {}).items()))
