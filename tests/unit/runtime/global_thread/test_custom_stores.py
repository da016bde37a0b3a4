"""Custom global stores: their processor writes them, all other processors may only read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_py import Processor, Record, StreamsBuilder, key_value_store
from streams_py.errors import StreamsError, UnsupportedOperationError
from streams_py.state.reading.write_protected import write_protected
from streams_py.testing import TopologyTestDriver
from streams_py.topology.declare.custom_stores import CustomStateStore
from tests.support.runtime.global_custom_stores import TEXTS, Ranking, topology


def answers(ask: Callable[[Any, Record[str, str]], object]) -> list[str | None]:
    with TopologyTestDriver(topology(ask)) as driver:
        scores = driver.input_topic("scores", **TEXTS)
        scores.send("ann", "4")
        scores.send("bob", "7")
        driver.input_topic("in", **TEXTS).send("ann", "?")
        return [record.value for record in driver.output_topic("out", **TEXTS).read_all()]


QUESTIONS: dict[str, Callable[[Any, Record[str, str]], object]] = {
    "method": lambda top, record: top.leaders(1),
    "attribute": lambda top, record: top.place,
    "length": lambda top, record: len(top),
    "in": lambda top, record: record.key in top,
    "item": lambda top, record: top[record.key],
    "iteration": lambda top, record: sorted(top),
    "name": lambda top, record: f"{top.name} {top.is_open}",
}


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("method", "[('bob', 7)]"),
        ("attribute", "everywhere"),
        ("length", "2"),
        ("in", "True"),
        ("item", "4"),
        ("iteration", "['ann', 'bob']"),
        ("name", "top True"),
    ],
)
def test_other_processors_may_ask_a_global_custom_store(question: str, answer: str) -> None:
    assert answers(QUESTIONS[question]) == [answer]


CHANGES: dict[str, Callable[[Any, Record[str, str]], object]] = {
    "method that logs": lambda top, record: top.add("eve", 9),
    "method whose name says so": lambda top, record: top.remove("ann"),
    "item": lambda top, record: top.__setitem__("eve", 9),
    "attribute": lambda top, record: setattr(top, "place", "here"),
    "restore": lambda top, record: top.restore([]),
    "clear": lambda top, record: top.clear(),
    "close": lambda top, record: top.close(),
    "commit": lambda top, record: top.commit(None),
    "flush": lambda top, record: top.flush(),
    "open": lambda top, record: top.open(None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_processors_may_not_change_a_global_custom_store(change: str) -> None:
    with pytest.raises(StreamsError, match="global store 'top' is read-only here"):
        answers(CHANGES[change])


def test_a_store_that_was_asked_may_be_changed_by_its_own_processor_again() -> None:
    store = Ranking()
    logged: list[bytes] = []

    class Context:
        name = "top"

        def log_change(self, key: bytes, value: bytes | None) -> None:
            logged.append(key)

    store.context = Context()  # type: ignore[assignment]  # of which it needs no more
    protected = write_protected(store)
    assert protected.leaders(1) == []
    store.add("ann", 1)
    assert logged == [b"ann"]
    assert protected["ann"] == 1
    assert isinstance(store, CustomStateStore)
    with pytest.raises(UnsupportedOperationError):
        del protected["ann"]


def test_global_key_value_store_refuses_changes_by_others() -> None:
    class Put(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            self.context.get_state_store("names").put(record.key, record.value)

    class Keep(Processor[str, str, None, None]):
        def process(self, record: Record[str, str]) -> None:
            self.context.get_state_store("names").put(record.key, record.value)

    builder = StreamsBuilder(**TEXTS)
    builder.add_global_store(key_value_store("names", logging=False, **TEXTS), "names", Keep)
    builder.stream("in").process(Put).to("out", **TEXTS)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("names", **TEXTS).send("k", "v")
        with pytest.raises(StreamsError, match="global store 'names' is read-only here"):
            driver.input_topic("in", **TEXTS).send("k", "w")
