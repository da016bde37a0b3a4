"""Header names that are to be written: what the client library would cut, garble or die of is refused."""

from __future__ import annotations

from typing import Any

import pytest

from streams_py import Answer
from streams_py.errors import ProcessingError, SerializationError
from streams_py.ports.record_headers import written_headers
from streams_py.serdes import STRING
from streams_py.testing import TopologyTestDriver
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.dsl.builder import StreamsBuilder

BAD: list[tuple[Any, str]] = [
    ("a\0b", "contains the character NUL"),
    ("\0", "contains the character NUL"),
    ("a\udcff", "contains a surrogate"),
    (b"a", "is of type bytes"),
    (None, "is of type NoneType"),
    (5, "is of type int"),
]


@pytest.mark.parametrize(("name", "wrong"), BAD)
def test_header_name_that_cannot_be_written_is_refused(name: Any, wrong: str) -> None:
    with pytest.raises(SerializationError, match=f"record for out has a header whose name {wrong}"):
        written_headers("out", (("ok", b"1"), (name, b"2")))


@pytest.mark.parametrize("name", ["", "a", "\u00fc", "\U0001f600", "\ufffd", "<NULL>"])
def test_other_names_are_written(name: str) -> None:
    assert written_headers("out", ((name, None), (name, b""))) == [(name, None), (name, b"")]


def test_no_headers_are_none() -> None:
    assert written_headers("out", ()) is None
    assert written_headers("out", []) is None


class AddHeader(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.add_header(record.value, b"1"))


def driver(**config: Any) -> TopologyTestDriver:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.stream("in").process(AddHeader).to("out")
    return TopologyTestDriver(builder.build(), {key.replace("_", "."): value for key, value in config.items()})


def test_bad_header_of_a_processor_is_an_error_that_names_record_and_header() -> None:
    with driver() as running, pytest.raises(ProcessingError, match=r"in-0 at offset 0.*contains the character NUL"):
        running.input_topic("in", key=STRING, value=STRING).send("k", "a\0b")


def test_processing_handler_may_drop_the_record_with_the_bad_header() -> None:
    asked: list[str] = []

    def handler(context: Any, record: Any, error: Exception) -> Answer:
        asked.append(record.value)
        return Answer.CONTINUE

    with driver(processing_exception_handler=handler) as running:
        given, made = (
            running.input_topic("in", key=STRING, value=STRING),
            running.output_topic("out", key=STRING, value=STRING),
        )
        for name in ("a", "b\0", "c\u00e9"):
            given.send("k", name)
        assert asked == ["b\0"]
        assert [record.headers for record in made.read_all()] == [(("a", b"1"),), (("c\u00e9", b"1"),)]
