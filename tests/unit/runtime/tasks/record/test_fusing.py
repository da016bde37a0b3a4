"""Chains of stateless nodes are compiled to one function that behaves like the nodes in sequence."""

from __future__ import annotations

from typing import Any

import pytest

from streams_py import StreamsBuilder, serdes
from streams_py.runtime.tasks.settings.handlers import Answer, ErrorContext, FailedRecord, Response
from tests.support.runtime.task_kit import Kit, record

TEXT: dict[str, Any] = {"key": serdes.STRING, "value": serdes.STRING}
Caught = list[tuple[str, Any, Any, str]]


def chained(failing: str = "", wrong: object = None) -> tuple[Kit, Caught]:
    """Build a chain with each kind of node, of which one fails."""
    caught: Caught = []

    def step(name: str, answer: Any) -> Any:
        if name != failing:
            return answer
        if wrong is None:
            raise ValueError(name)
        return wrong

    def handler(context: ErrorContext, failed: FailedRecord | None, error: Exception) -> Response:
        assert failed is not None
        caught.append((context.node, failed.key, failed.value, str(error)))
        return Response(Answer.CONTINUE)

    builder = StreamsBuilder()
    (
        builder.stream("in", **TEXT)
        .map_values(lambda value: step("upper", value.upper()), name="upper")
        .filter(lambda key, value: step("long", len(value) > 1), name="long")
        .map(lambda key, value: step("swap", (value, key)), name="swap")
        .filter_not(lambda key, value: step("short", len(key) < 3), name="short")
        .select_key(lambda key, value: step("twice", key * 2), name="twice")
        .peek(lambda key, value: step("look", None), name="look")
        .map_values(with_key=lambda key, value: step("both", key + value), name="both")
        .to("out", **TEXT)
    )
    kit = Kit(builder.build(), processing_handler=handler)
    kit.add(record("a", offset=0), record("ab", offset=1), record("abc", offset=2, at=5))
    assert kit.task.process(10) == 3
    return kit, caught


def test_a_chain_does_what_its_nodes_do() -> None:
    kit, caught = chained()
    assert kit.sent("out") == [(b"ABCABC", b"ABCABCk", 5)]
    assert caught == []


@pytest.mark.parametrize(
    ("failing", "key", "value"),
    [
        ("upper", "k", "abc"),
        ("long", "k", "ABC"),
        ("swap", "k", "ABC"),
        ("short", "ABC", "k"),
        ("twice", "ABC", "k"),
        ("look", "ABCABC", "k"),
        ("both", "ABCABC", "k"),
    ],
)
def test_the_handler_hears_which_node_failed_and_what_it_got(failing: str, key: str, value: str) -> None:
    kit, caught = chained(failing)
    assert kit.sent("out") == []
    assert caught[-1] == (failing, key, value, failing)


def test_a_result_that_is_no_pair_is_an_error_of_its_function() -> None:
    _, caught = chained("swap", wrong=7)
    node, key, value, error = caught[-1]
    assert (node, key, value) == ("swap", "k", "ABC")
    assert "must return (new_key, new_value) for map" in error


def test_errors_below_a_chain_are_not_those_of_its_nodes() -> None:
    caught: list[str] = []

    def handler(context: ErrorContext, failed: FailedRecord | None, error: Exception) -> Response:
        caught.append(context.node)
        return Response(Answer.CONTINUE)

    def fail(key: str, value: str) -> None:
        raise ValueError(value)

    builder = StreamsBuilder()
    builder.stream("in", **TEXT).map_values(str.upper).map_values(str.lower).foreach(fail, name="end")
    kit = Kit(builder.build(), processing_handler=handler)
    kit.add(record("a"))
    kit.task.process(10)
    assert caught == ["end"]
