"""Stateless operators: results, order, nulls, timestamps, headers, and how errors are reported."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streams_py.errors import TopologyError
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.kstream import KStream
from tests.support.topology.fakes import FakeTask


def run(describe: Callable[[KStream[Any, Any]], object], *records: tuple[Any, Any], fails: bool = False) -> FakeTask:
    """Feed records with timestamps 0, 1, 2, ... and one header each."""
    builder = StreamsBuilder()
    describe(builder.stream("in"))
    task = FakeTask(builder.build(), fails=fails)
    for timestamp_ms, (key, value) in enumerate(records):
        task.feed("in", key, value, timestamp_ms, headers=(("h", b"1"),))
    return task


OPERATIONS: list[tuple[str, Callable[[KStream[Any, Any]], KStream[Any, Any]], list[tuple[Any, Any]]]] = [
    ("filter", lambda s: s.filter(lambda k, v: v), [("k", "ab")]),
    ("filter_not", lambda s: s.filter_not(lambda k, v: v), [(None, None)]),
    ("map", lambda s: s.map(lambda k, v: (v, k)), [("ab", "k"), (None, None)]),
    ("map_values", lambda s: s.map_values(lambda v: [v]), [("k", ["ab"]), (None, [None])]),
    (
        "map_values with key",
        lambda s: s.map_values(with_key=lambda k, v: (k, v)),
        [("k", ("k", "ab")), (None, (None, None))],
    ),
    ("flat_map", lambda s: s.flat_map(lambda k, v: [(c, k) for c in v or ""]), [("a", "k"), ("b", "k")]),
    ("flat_map_values", lambda s: s.flat_map_values(lambda v: v or ""), [("k", "a"), ("k", "b")]),
    (
        "flat_map_values with key",
        lambda s: s.flat_map_values(with_key=lambda k, v: [k, v]),
        [("k", "k"), ("k", "ab"), (None, None), (None, None)],
    ),
    ("select_key", lambda s: s.select_key(lambda k, v: v), [("ab", "ab"), (None, None)]),
    ("peek", lambda s: s.peek(lambda k, v: False), [("k", "ab"), (None, None)]),
    ("merge with itself", lambda s: s.merge(s), [("k", "ab"), (None, None)]),
]


@pytest.mark.parametrize(
    ("operation", "expected"), [pytest.param(operation, expected, id=id) for id, operation, expected in OPERATIONS]
)
def test_operation_gives_what_its_function_says(
    operation: Callable[[KStream[Any, Any]], KStream[Any, Any]], expected: list[tuple[Any, Any]]
) -> None:
    task = run(lambda s: operation(s).to("out"), ("k", "ab"), (None, None))
    assert [record[:2] for record in task.out()] == expected
    assert all(headers == (("h", b"1"),) for *_, headers in task.outputs["out"])


def test_timestamps_stay_those_of_the_input_records() -> None:
    task = run(lambda s: s.map(lambda k, v: (v, k)).flat_map_values(lambda k: [k, k]).to("out"), ("a", 1), ("b", 2))
    assert [record[2] for record in task.out()] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "operation",
    [
        lambda s, f: s.filter(f),
        lambda s, f: s.filter_not(f),
        lambda s, f: s.map(f),
        lambda s, f: s.map_values(with_key=f),
        lambda s, f: s.map_values(lambda v: f(None, v)),
        lambda s, f: s.flat_map(f),
        lambda s, f: s.flat_map_values(with_key=f),
        lambda s, f: s.flat_map_values(lambda v: f(None, v)),
        lambda s, f: s.select_key(f),
        lambda s, f: s.peek(f),
        lambda s, f: s.split().branch(f).default_branch(name="-x")["KSTREAM-BRANCH-0000000001-x"],
    ],
)
def test_failing_function_is_reported_and_the_record_dropped(operation: Callable[..., KStream[Any, Any]]) -> None:
    def broken(key: Any, value: Any) -> Any:
        raise ValueError(value)

    task = run(lambda s: operation(s, broken).to("out"), ("k", "v"))
    [(node, error, key, value, timestamp_ms)] = task.failures
    assert (type(error), key, value, timestamp_ms) == (ValueError, "k", "v", 0)
    assert node.startswith("KSTREAM-")
    assert task.out() == []


def test_failing_child_is_reported_once_and_not_by_its_parents() -> None:
    def broken(value: Any) -> Any:
        raise ValueError(value)

    builder = StreamsBuilder()
    stream = builder.stream("in").filter(lambda k, v: True).map_values(str).peek(lambda k, v: None)
    stream.flat_map_values(lambda v: [v]).map_values(broken, name="broken").to("out")
    task = FakeTask(builder.build(), fails=True)
    with pytest.raises(ValueError, match="v"):
        task.feed("in", "k", "v")
    assert [failure[0] for failure in task.failures] == ["broken"]


@pytest.mark.parametrize("result", [None, "abc", (1, 2, 3)])
def test_map_reports_a_result_that_is_no_pair(result: object) -> None:
    task = run(lambda s: s.map(lambda k, v: result).to("out"), ("k", "v"))
    assert len(task.failures) == 1
    assert task.out() == []


def test_flat_map_sends_nothing_when_a_lazy_result_fails_midway() -> None:
    def lazy(value: Any) -> Iterator[Any]:
        yield value
        raise ValueError(value)

    def lazy_pairs(key: Any, value: Any) -> Iterator[tuple[Any, Any]]:
        for each in lazy(value):
            yield key, each

    task = run(lambda s: (s.flat_map_values(lazy).to("out"), s.flat_map(lazy_pairs).to("out")), ("k", "v"))
    assert len(task.failures) == 2
    assert task.out() == []


def test_foreach_and_print_end_the_stream() -> None:
    seen: list[Any] = []
    file = io.StringIO()

    def describe(stream: KStream[Any, Any]) -> None:
        stream.foreach(lambda k, v: seen.append((k, v)))
        stream.print(file=file)
        stream.print(file=file, label="L", line=lambda k, v: f"<{v}>")

    run(describe, ("k", "v"), (None, 1))
    assert seen == [("k", "v"), (None, 1)]
    source = "KSTREAM-SOURCE-0000000000"
    assert file.getvalue() == f"[{source}]: k, v\n[L]: <v>\n[{source}]: None, 1\n[L]: <1>\n"


def test_print_goes_to_standard_output_of_the_moment(capsys: pytest.CaptureFixture[str]) -> None:
    run(lambda s: s.print(label="out"), ("k", "v"))
    assert capsys.readouterr().out == "[out]: k, v\n"


def test_children_get_a_record_in_the_order_of_the_calls_and_depth_first() -> None:
    seen: list[str] = []

    def describe(stream: KStream[Any, Any]) -> None:
        first = stream.peek(lambda k, v: seen.append("a"))
        stream.peek(lambda k, v: seen.append("b"))
        first.peek(lambda k, v: seen.append("a1"))
        first.peek(lambda k, v: seen.append("a2"))

    run(describe, ("k", "v"))
    assert seen == ["a", "a1", "a2", "b"]


# -- split ---------------------------------------------------------------------------------------------------


def test_split_sends_each_record_to_the_first_branch_that_matches() -> None:
    def describe(stream: KStream[Any, Any]) -> None:
        branches = (
            stream.split(name="n-").branch(lambda k, v: v > 10, name="big").branch(lambda k, v: v > 5).default_branch()
        )
        assert list(branches) == ["n-big", "n-2", "n-0"]
        for name, branch in branches.items():
            branch.to(name)

    task = run(describe, ("a", 20), ("b", 7), ("c", 1))
    assert {topic: [record[0] for record in records] for topic, records in task.outputs.items()} == {
        "n-big": ["a"],
        "n-2": ["b"],
        "n-0": ["c"],
    }


def test_split_drops_the_rest_without_default_branch() -> None:
    def describe(stream: KStream[Any, Any]) -> None:
        for branch in stream.split().branch(lambda k, v: v > 10).no_default_branch().values():
            branch.to("out")

    assert run(describe, ("a", 20), ("b", 7)).out() == [("a", 20, 0)]


def test_chained_branch_is_replaced_by_what_its_function_gives() -> None:
    def describe(stream: KStream[Any, Any]) -> None:
        split = stream.split(name="n-").branch(
            lambda k, v: v > 10, name="doubled", chain=lambda branch: branch.map_values(lambda v: v * 2)
        )
        branches = split.default_branch(chain=lambda rest: rest.to("rest"))
        assert list(branches) == ["n-doubled"]
        branches["n-doubled"].to("out")

    task = run(describe, ("a", 20), ("b", 7))
    assert (task.out(), task.out("rest")) == ([("a", 40, 0)], [("b", 7, 1)])


# -- sinks and repartition -----------------------------------------------------------------------------------


def test_chooser_names_the_topic_of_each_record() -> None:
    task = run(lambda s: s.to(lambda k, v, record: f"{record.topic}-{v}"), ("k", "x"), ("k", "y"))
    assert sorted(task.outputs) == ["in-x", "in-y"]


def test_repartition_drops_records_without_a_key() -> None:
    task = run(lambda s: s.repartition(name="r").to("out"), ("k", 1), (None, 2))
    assert task.out() == [("k", 1, 0)]
    assert task.failures == []
    assert task.dropped == [("r-repartition-filter", "null key before a repartition")]


# -- functions that need more facts about the record ----------------------------------------------------------


def test_function_with_context_sees_where_the_record_came_from() -> None:
    seen: list[Any] = []

    def describe(stream: KStream[Any, Any]) -> None:
        def where(key: Any, value: Any, record: RecordContext) -> str:
            return f"{record.topic}-{record.partition}@{record.offset} {record.timestamp} {list(record.headers)}"

        kept = stream.filter(with_context=lambda k, v, record: record.offset >= 0)
        kept = kept.filter_not(with_context=lambda k, v, record: v == "no")
        kept.map_values(with_context=where).to("values")
        kept.map(with_context=lambda k, v, record: (record.topic, v)).to("pairs")
        kept.select_key(with_context=lambda k, v, record: record.timestamp).to("keys")
        kept.flat_map(with_context=lambda k, v, record: [(k, record.offset)] * 2).to("flat")
        kept.flat_map_values(with_context=lambda k, v, record: [name for name, _ in record.headers]).to("flat-values")
        kept.peek(with_context=lambda k, v, record: seen.append(record.topic)).foreach(
            with_context=lambda k, v, record: seen.append(record.offset)
        )

    builder = StreamsBuilder()
    describe(builder.stream("in"))
    task = FakeTask(builder.build())
    task.feed("in", "k", "v", 7, (("h", b"1"),))
    offset = task.record.offset
    assert task.out("values") == [("k", f"in-0@{offset} 7 [('h', b'1')]", 7)]
    assert (task.out("pairs"), task.out("keys")) == ([("in", "v", 7)], [(7, "v", 7)])
    assert (task.out("flat"), task.out("flat-values")) == ([("k", offset, 7)] * 2, [("k", "h", 7)])
    assert seen == ["in", offset]


def test_function_is_given_in_one_form_only() -> None:
    stream = StreamsBuilder().stream("in")
    with pytest.raises(TopologyError, match="map needs one function"):
        stream.map(lambda k, v: (k, v), with_context=lambda k, v, record: (k, v))
    with pytest.raises(TopologyError, match="filter needs one function"):
        stream.filter()
