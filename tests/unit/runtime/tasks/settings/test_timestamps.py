"""The built-in timestamp extractors."""

from __future__ import annotations

import time

import pytest

from streams_py.errors import ConfigError, StreamsError
from streams_py.runtime.tasks.settings.configured import resolve_extractor
from streams_py.runtime.tasks.settings.timestamps import (
    EXTRACTORS,
    fail_on_invalid_timestamp,
    log_and_skip_invalid,
    partition_time_if_invalid,
    wall_clock_time,
)
from streams_py.serdes import STRING
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.dsl.builder import StreamsBuilder


@pytest.mark.parametrize("extract", [fail_on_invalid_timestamp, log_and_skip_invalid, partition_time_if_invalid])
@pytest.mark.parametrize("valid", [0, 5])
def test_extractor_gives_the_timestamp_of_the_record_when_it_is_valid(extract: object, valid: int) -> None:
    assert resolve_extractor(extract)("k", "v", valid, 9) == valid  # type: ignore[misc]  # not None here


def test_extractors_answer_as_named_when_the_timestamp_is_invalid() -> None:
    assert log_and_skip_invalid("k", "v", -1, 9) < 0
    assert partition_time_if_invalid("k", "v", -1, 9) == 9
    with pytest.raises(StreamsError, match="no earlier record"):
        partition_time_if_invalid("k", "v", -1, -1)
    with pytest.raises(StreamsError, match="no valid timestamp"):
        fail_on_invalid_timestamp("k", "v", -1, 9)


def test_wall_clock_time_is_now() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= wall_clock_time("k", "v", 5, 9) <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("name", EXTRACTORS)
def test_resolve_extractor_knows_the_names(name: str) -> None:
    assert resolve_extractor(name) is EXTRACTORS[name]


def test_resolve_extractor_takes_a_path() -> None:
    assert resolve_extractor("streams_py.runtime.tasks.settings.timestamps:wall_clock_time") is wall_clock_time


@pytest.mark.parametrize("given", [42, "sometime", "streams_py.runtime.tasks.settings.timestamps:nothing"])
def test_resolve_extractor_names_the_key_when_the_value_is_no_extractor(given: object) -> None:
    with pytest.raises(ConfigError, match=r"default.timestamp.extractor"):
        resolve_extractor(given)


def test_repartition_keeps_the_time_that_the_extractor_gave() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.stream("in").repartition(name="r").to("out")
    config = {"default.timestamp.extractor": lambda key, value, time_ms, partition_time_ms: time_ms + 100}
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.input_topic("in", key=STRING, value=STRING).send("k", "v", timestamp_ms=5)
        assert driver.output_topic("out", key=STRING, value=STRING).read().timestamp == 105


def test_configured_extractor_is_not_asked_for_what_a_foreign_key_join_sends_to_itself() -> None:
    asked: list[object] = []

    def later(key: object, value: object, time_ms: int, partition_time_ms: int) -> int:
        asked.append(value)
        return time_ms + 100

    builder = StreamsBuilder(key=STRING, value=STRING)
    orders, users = builder.table("orders"), builder.table("users")
    orders.join(users, lambda order, user: f"{order} {user}", on=lambda _, order: order.lower()).to_stream().to("out")
    with TopologyTestDriver(builder.build(), {"default.timestamp.extractor": later}) as driver:
        driver.input_topic("users", key=STRING, value=STRING).send("u", "Uta", timestamp_ms=5)
        driver.input_topic("orders", key=STRING, value=STRING).send("o", "U", timestamp_ms=7)
        joined = driver.output_topic("out", key=STRING, value=STRING).read()
    assert (joined.value, joined.timestamp, asked) == ("U Uta", 107, ["Uta", "U"])
