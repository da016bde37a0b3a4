"""Metrics of processors: what they count, where they appear, and which serdes a processor can see."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from streams_py import Processor, ProcessorMetrics, Record, StreamsBuilder, serdes
from streams_py.errors import ConfigError
from streams_py.testing import TopologyTestDriver

TEXTS: dict[str, Any] = {"key": serdes.STRING, "value": serdes.STRING}


class Measuring(Processor[str, str, str, str]):
    serdes_seen: tuple[Any, Any] | None = None

    def init(self, context: Any) -> None:
        super().init(context)
        Measuring.serdes_seen = (context.key_serde, context.value_serde)
        self._words = context.metrics.add_rate_total_sensor("words", "all", "seen", tags={"colour": "red"})
        self._took = context.metrics.add_latency_rate_total_sensor("words", "all", "look-up")

    def process(self, record: Record[str, str]) -> None:
        self._words.record()
        self._took.record(len(record.value))


def test_sensors_of_processors_stand_beside_the_metrics_of_their_task() -> None:
    builder = StreamsBuilder(**TEXTS)
    builder.stream("in").process(Measuring)
    with TopologyTestDriver(builder.build()) as driver:
        for word in ("a", "bbb"):
            driver.input_topic("in", **TEXTS).send("k", word)
        driver.advance_wall_clock(4_000)
        thread = threading.current_thread().name
        tags = f"thread-id={thread},task-id=0_0,words-id=all"
        metrics = driver.metrics()
        assert metrics[f"stream-words-metrics{{{tags},colour=red}}"] == {"seen-total": 2, "seen-rate": 0.5}
        assert metrics[f"stream-words-metrics{{{tags}}}"] == {
            "look-up-total": 2,
            "look-up-rate": 0.5,
            "look-up-latency-avg": 2,
            "look-up-latency-max": 3,
        }


def test_processors_know_the_configured_serdes() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **TEXTS).process(Measuring)
    with TopologyTestDriver(builder.build(), {"default.key.serde": serdes.INT64}):
        assert Measuring.serdes_seen == (serdes.INT64, None)


def test_the_same_sensor_is_given_for_the_same_names() -> None:
    metrics = ProcessorMetrics()
    first = metrics.add_rate_total_sensor("s", "e", "o")
    assert metrics.add_rate_total_sensor("s", "e", "o") is first
    assert metrics.add_rate_total_sensor("s", "e", "o", tags={"t": "1"}) is not first
    assert metrics.add_latency_rate_total_sensor("s", "e", "o") is not first


def test_negative_values_are_kept_as_they_are() -> None:
    metrics = ProcessorMetrics()
    metrics.add_latency_rate_total_sensor("s", "e", "o").record(-2.5)
    [(_, _, found)] = metrics.metrics(1.0)
    assert (found["o-latency-avg"], found["o-latency-max"]) == (-2.5, -2.5)


def test_sensors_that_recorded_nothing_have_zeros() -> None:
    metrics = ProcessorMetrics()
    metrics.add_latency_rate_total_sensor("s", "e", "o")
    [(group, tags, found)] = metrics.metrics(1.0)
    assert (group, tags) == ("stream-s-metrics", {"s-id": "e"})
    assert set(found.values()) == {0.0}


@pytest.mark.parametrize("names", [("", "e", "o"), ("s", "", "o"), ("s", "e", ""), ("s", 7, "o")])
def test_names_of_sensors_are_checked(names: tuple[Any, Any, Any]) -> None:
    with pytest.raises(ConfigError, match="of a sensor is"):
        ProcessorMetrics().add_rate_total_sensor(*names)
