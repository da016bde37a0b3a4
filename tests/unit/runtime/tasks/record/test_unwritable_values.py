"""Values that a serde cannot write. A wrong type is an error of the program; other errors go to the handler."""

from __future__ import annotations

import dataclasses
import decimal
from typing import Any, NoReturn

import pytest

from streams_py import StreamsBuilder, Topology, serdes
from streams_py.errors import SerializationError
from streams_py.runtime.tasks.settings.handlers import Answer, ErrorContext, Origin, OutgoingRecord, Response
from streams_py.serdes import Serde
from streams_py.serdes.json import _Json  # the choice of library is not public
from streams_py.testing import TopologyTestDriver


@dataclasses.dataclass
class Order:
    id: int


def _refuse(value: object) -> NoReturn:
    raise TypeError("the user's own")


OWN: Serde[Any] = serdes.serde(serialize=lambda value: _refuse(value) if value != "ok" else b"ok", deserialize=bytes)
STDLIB = _Json(use_orjson=False)

UNWRITABLE = {
    "JSON Decimal": (serdes.JSON, decimal.Decimal(1), {"a": 1}),
    "JSON names": (serdes.JSON, {1: 2}, {"a": 1}),
    "JSON set": (serdes.JSON, {"a": {1}}, {"a": 1}),
    "JSON surrogate": (serdes.JSON, {"a": "\ud83d"}, {"a": 1}),
    "plain JSON Decimal": (STDLIB, decimal.Decimal(1), {"a": 1}),
    "class": (serdes.json(Order), Order("a"), Order(1)),  # type: ignore[arg-type]  # the fault
    "string": (serdes.STRING, "\ud83d", "ok"),
    "int64": (serdes.INT64, 2**70, 1),
    "int16": (serdes.INT16, 2**15, 1),
    "float32": (serdes.FLOAT32, 1e300, 1.0),
    "own": (OWN, "odd", "ok"),
    "list": (serdes.list_of(serdes.STRING), ["\ud83d"], ["ok"]),
}
WRONG = {
    "class": (serdes.json(Order), {"id": 1}),
    "string": (serdes.STRING, 5),
    "bytes": (serdes.BYTES, "text"),
    "int64": (serdes.INT64, "text"),
    "int64 of bool": (serdes.INT64, True),
    "float64": (serdes.FLOAT64, "text"),
    "float32": (serdes.FLOAT32, True),
    "bool": (serdes.BOOL, 1),
    "uuid": (serdes.UUID, "text"),
    "void": (serdes.VOID, 1),
    "list": (serdes.list_of(serdes.STRING), "text"),
    "items of a list": (serdes.list_of(serdes.STRING), [1]),
}


class Asked:
    def __init__(self) -> None:
        self.calls: list[tuple[Origin | None, OutgoingRecord]] = []

    def __call__(self, context: ErrorContext, record: OutgoingRecord, error: Exception) -> Answer | Response:
        self.calls.append((context.origin, record))
        return Answer.CONTINUE


def run(topology: Topology, handler: Asked) -> list[Any]:
    """Return the numbers of the records that reach ``out``."""
    config = {"production.exception.handler": handler, "statestore.cache.max.bytes": 0}
    with TopologyTestDriver(topology, config) as driver:
        source = driver.input_topic("in", key=serdes.STRING, value=serdes.STRING)
        source.send("k", "bad")
        source.send("k", "good")
        return driver.output_topic("out", key=serdes.BYTES, value=serdes.BYTES).read_all()


def to_sink(serde: Serde[Any], bad: object, good: object, *, is_key: bool) -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    stream: Any = builder.stream("in")
    if is_key:
        stream.select_key(lambda _, value: bad if value == "bad" else good).to("out", key=serde)
    else:
        stream.map_values(lambda value: bad if value == "bad" else good).to("out", value=serde)
    return builder.build()


@pytest.mark.parametrize("is_key", [True, False])
@pytest.mark.parametrize("name", UNWRITABLE)
def test_handler_is_asked_about_a_value_of_the_declared_type(name: str, is_key: bool) -> None:
    serde, bad, good = UNWRITABLE[name]
    handler = Asked()
    assert len(run(to_sink(serde, bad, good, is_key=is_key), handler)) == 1
    ((origin, record),) = handler.calls
    assert origin is (Origin.KEY if is_key else Origin.VALUE)
    assert (record.key if is_key else record.value) is bad


@pytest.mark.parametrize("is_key", [True, False])
@pytest.mark.parametrize("name", WRONG)
def test_value_of_another_type_ends_the_application_and_no_handler_is_asked(name: str, is_key: bool) -> None:
    serde, bad = WRONG[name]
    handler = Asked()
    with pytest.raises(SerializationError, match=f"serde {serde.name}".replace("(", r"\(").replace(")", r"\)")):
        run(to_sink(serde, bad, bad, is_key=is_key), handler)
    assert handler.calls == []


@pytest.mark.parametrize("of_table", [True, False])
def test_handler_is_asked_about_a_record_of_a_repartition_topic(of_table: bool) -> None:
    """Tables send pairs of values to the topic, with a serde that wraps the serde of the values."""
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)

    def change(value: str) -> Any:
        return decimal.Decimal(1) if value == "bad" else {"n": 1}

    if of_table:
        table = builder.table("in").map_values(change)
        grouped: Any = table.group_by(lambda key, value: (key, value), key=serdes.STRING, value=serdes.JSON)
    else:
        stream = builder.stream("in").map_values(change)
        grouped = stream.group_by(lambda key, _: key, key=serdes.STRING, value=serdes.JSON)
    grouped.count().to_stream().map_values(str, value=serdes.STRING).to("out")
    handler = Asked()
    run(builder.build(), handler)
    assert handler.calls
    assert {origin for origin, _ in handler.calls} == {Origin.VALUE}


def test_wrong_type_in_a_repartition_topic_of_a_table_ends_the_application() -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    grouped: Any = builder.table("in").group_by(lambda key, value: (key, value), key=serdes.STRING, value=serdes.INT64)  # type: ignore[arg-type, return-value]  # the fault
    grouped.count().to_stream().map_values(str, value=serdes.STRING).to("out")
    handler = Asked()
    with pytest.raises(SerializationError, match="int64"):
        run(builder.build(), handler)
    assert handler.calls == []
