"""Sensors for the processors' own metrics, which are exported with the library's.

Names, groups and tags are those of Kafka Streams' ``StreamsMetrics``. There is one additional tag, the task, so that
metrics of two tasks of a thread stay separate. The task's thread writes a sensor, other threads read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from streams_py.errors import ConfigError

__all__ = ["ProcessorMetrics", "Sensor"]


class Sensor:
    """Counts events and adds up their values: ``count`` values with the sum ``total``."""

    __slots__ = ("count", "largest", "total")

    def __init__(self) -> None:
        self.count = 0
        """Number of values."""
        self.total = 0.0
        """Sum of the values."""
        self.largest = 0.0
        """The largest value."""

    def record(self, value: float = 1.0) -> None:
        """Record an event with a value, for example its duration in ms for a latency sensor."""
        self.count += 1
        self.total += value
        if value > self.largest or self.count == 1:
            self.largest = value


class _SensorKey(NamedTuple):
    scope: str
    entity: str
    operation: str
    is_latency: bool
    tags: tuple[tuple[str, str], ...]


class ProcessorMetrics:
    """The sensors of one task, for its processors (``context.metrics``).

    A request with the same arguments returns the same sensor. The metrics of ``add_rate_total_sensor("orders", "shop",
    "paid")`` are ``paid-rate`` and ``paid-total`` of the group ``stream-orders-metrics`` with the tag
    ``orders-id=shop``, in ``KafkaStreams.metrics()`` and its exporters.
    """

    def __init__(self) -> None:
        self._sensors: dict[_SensorKey, Sensor] = {}

    def add_rate_total_sensor(
        self, scope: str, entity: str, operation: str, *, tags: Mapping[str, str] | None = None
    ) -> Sensor:
        """Return a sensor of events: ``operation-total``, and ``operation-rate`` per second.

        Raises:
            ConfigError: a name is empty or not a string.
        """
        return self._sensor(_sensor_key(scope, entity, operation, tags, is_latency=False))

    def add_latency_rate_total_sensor(
        self, scope: str, entity: str, operation: str, *, tags: Mapping[str, str] | None = None
    ) -> Sensor:
        """Return a sensor of durations in ms.

        In addition it has ``operation-latency-avg`` and ``operation-latency-max``.
        """
        return self._sensor(_sensor_key(scope, entity, operation, tags, is_latency=True))

    def _sensor(self, key: _SensorKey) -> Sensor:
        return self._sensors.setdefault(key, Sensor())

    def metrics(self, seconds: float) -> Iterator[tuple[str, dict[str, str], dict[str, float]]]:
        """Yield group, tags and metrics of each sensor. Rates are averages over ``seconds`` seconds.

        Any thread may call it.
        """
        for key, sensor in list(self._sensors.items()):
            name, count = key.operation, sensor.count
            found = {f"{name}-total": float(count), f"{name}-rate": count / seconds}
            if key.is_latency:
                found[f"{name}-latency-avg"] = sensor.total / count if count else 0.0
                found[f"{name}-latency-max"] = sensor.largest
            yield f"stream-{key.scope}-metrics", {f"{key.scope}-id": key.entity, **dict(key.tags)}, found


def _sensor_key(
    scope: str, entity: str, operation: str, tags: Mapping[str, str] | None, *, is_latency: bool
) -> _SensorKey:
    for what, name in (("scope", scope), ("entity", entity), ("operation", operation)):
        given: object = name
        if not isinstance(given, str) or not given:
            raise ConfigError(f"the {what} of a sensor is {name!r}; use a non-empty string")
    return _SensorKey(
        scope, entity, operation, is_latency, tuple((name, str(tag)) for name, tag in (tags or {}).items())
    )
