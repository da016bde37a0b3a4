"""Everything that cannot run over a history is reported in one error, with node, rule and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streams_py import Processor, Record, StreamsBuilder, TimeWindows, Topology, key_value_store, serdes
from streams_py.history.refuse import NOTHING_ALLOWED, Allowances, RefusedTopologyError, findings
from streams_py.runtime.tasks.settings.timestamps import log_and_skip_invalid
from streams_py.topology.dsl.suppressed import Suppressed


def built(describe: Callable[[Any, StreamsBuilder], object]) -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    describe(builder.stream("in"), builder)
    return builder.build()


def refused(
    describe: Callable[[Any, StreamsBuilder], object], allowed: Allowances = NOTHING_ALLOWED, **purpose: bool
) -> list[str]:
    return [finding.rule for finding in findings(built(describe), "app", {}, allowed, **purpose)]


async def ask(value: str) -> str:
    return value


def identity(record: Any, context: Any) -> Any:
    yield record


def safe(record: Any, context: Any) -> Any:
    yield record


safe.batch_safe = True  # type: ignore[attr-defined]


def sums(stream: Any, builder: StreamsBuilder) -> None:
    table = stream.group_by_key().count(store="counts")
    table.filter(lambda key, value: True).to_stream().to("out", value=serdes.INT64)
    windows = TimeWindows.of(timedelta(seconds=5), grace=timedelta(0))
    windowed = stream.group_by_key().windowed_by(windows).count(store="windows")
    windowed.suppress(Suppressed.until_window_closes()).to_stream().to("finals", value=serdes.INT64)
    stream.join(builder.table("names"), lambda a, b: a + b).to("joined")


def test_dsl_is_allowed() -> None:
    assert refused(sums, warm_start=True) == []


@pytest.mark.parametrize(
    ("describe", "rule"),
    [
        (lambda stream, _: stream.process(identity).to("out"), "punctuators"),
        (lambda stream, _: stream.map_values_async(ask).to("out"), "waits"),
        (lambda stream, _: stream.peek(print).to("out"), "called again"),
        (lambda stream, _: stream.foreach(print), "called again"),
        (lambda stream, _: stream.to(lambda key, value, record: "out"), "chooses the topic"),
        (lambda _, builder: builder.stream(re.compile("a.*")).to("out"), "pattern"),
        (lambda stream, builder: stream.join(builder.global_table("g"), min, on=lambda k, v: k).to("out"), "global"),
        (
            lambda _, builder: builder.table("a").join(builder.table("b"), min, on=lambda key, value: value),
            "stage would read",
        ),
    ],
)
def test_construct_is_refused(describe: Callable[[Any, StreamsBuilder], object], rule: str) -> None:
    assert any(rule in found for found in refused(describe)), refused(describe)


def test_all_findings_are_in_one_error() -> None:
    def describe(stream: Any, _: StreamsBuilder) -> None:
        stream.peek(print, name="look").process(identity, name="mine").to(lambda *_: "out", name="anywhere")

    with pytest.raises(RefusedTopologyError, match=r"(?s)look.*remove it.*mine.*batch_safe.*anywhere.*name all"):
        NOTHING_ALLOWED.check(built(describe), "app", {})


def test_findings_end_with_what_is_promised_or_allowed() -> None:
    assert refused(lambda stream, _: stream.process(safe).to("out")) == []
    assert refused(lambda stream, _: stream.peek(print).to("out"), Allowances(side_effects=True)) == []
    assert refused(lambda stream, _: stream.to(lambda *_: "out"), Allowances(["out"])) == []
    (rule,) = refused(lambda stream, _: stream.to(lambda *_: "in"), Allowances(["in", "out"]), warm_start=True)
    assert "writes and reads it" in rule


def test_state_without_a_changelog_cannot_be_handed_over() -> None:
    def describe(stream: Any, _: StreamsBuilder) -> None:
        from streams_py import Materialized

        stream.group_by_key().count(materialized=Materialized("counts", logging=False))

    assert refused(describe) == []
    assert any("no changelog" in rule for rule in refused(describe, warm_start=True))


def of_the_value(key: Any, value: Any, record_timestamp_ms: int, partition_time_ms: int) -> int:
    return int(value)


def test_timestamps_of_a_function_do_not_order_several_topics() -> None:
    def joined(extractor: Any) -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        stream = builder.stream("in", timestamp_extractor=extractor)
        stream.join(builder.table("names"), lambda a, b: a + b).to("joined")
        return builder.build()

    (finding,) = findings(joined(of_the_value), "app", {})
    assert finding.node == "KSTREAM-SOURCE-0000000000"
    assert "several topics are ordered by" in finding.rule
    assert findings(joined(log_and_skip_invalid), "app", {"default.timestamp.extractor": "use_partition_time"}) == []
    assert len(findings(joined(None), "app", {"default.timestamp.extractor": of_the_value})) == 2
    one = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    one.stream("in", timestamp_extractor=of_the_value).group_by_key().count(store="counts")
    assert findings(one.build(), "app", {}) == []


def test_topic_that_is_written_and_read_is_refused_where_a_live_application_would_read_it() -> None:
    def through(stream: Any, builder: StreamsBuilder) -> None:
        stream.to("between")
        builder.stream("between").to("out")

    assert refused(through) == []
    for purpose in ("warm_start", "to_topics"):
        (rule,) = refused(through, **{purpose: True})
        assert "writes and reads it" in rule


def test_topics_of_a_circle_are_named_without_those_behind_it() -> None:
    def describe(stream: Any, builder: StreamsBuilder) -> None:
        totals = stream.group_by(lambda _, value: value).count(store="totals")
        both = stream.join(totals, lambda value, total: f"{value}{total}")
        both.repartition(name="behind").to("out")
        builder.table("a").join(builder.table("b"), min, on=lambda key, value: value, store="joined")

    found = [finding.node for finding in findings(built(describe), "app", {}) if "stage would" in finding.rule]
    (topics,) = found
    assert "app-totals-repartition" in topics
    assert "SUBSCRIPTION-REGISTRATION" in topics
    assert "SUBSCRIPTION-RESPONSE" in topics
    assert "behind" not in topics


def joined(stream: Any, builder: StreamsBuilder) -> None:
    stream.join(builder.global_table("names"), lambda a, b: a + b, on=lambda key, value: key).to("out")


def test_global_table_is_allowed_as_it_is_at_the_end() -> None:
    assert refused(joined, Allowances(frozen_tables=True)) == []
    (finding,) = findings(built(joined), "app", {})
    assert "--global-tables as-of-end" in finding.remedy
    assert finding.rule == "which updates of the global table of names a record has seen is not recorded"


class Filler(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        pass


def test_global_stores_that_cannot_be_whole_before_are_refused() -> None:
    def filled(stream: Any, builder: StreamsBuilder) -> None:
        stream.to("names")
        builder.global_table("names", store="names")
        builder.add_global_store(
            key_value_store("mine", logging=False, key=serdes.STRING, value=serdes.STRING), "other", Filler
        )

    assert refused(filled, Allowances(frozen_tables=True)) == [
        "this topology writes it, but a global table must be filled from it before the first record",
        "it is filled by a custom processor",
    ]
