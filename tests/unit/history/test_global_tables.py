"""A global table over a history has the contents of a live one that is filled from the same records."""

from __future__ import annotations

import pytest

from streams_py.errors import DeserializationError
from streams_py.history.global_tables import FrozenTables
from streams_py.history.records import HistoryRecord
from streams_py.runtime.tasks.settings.handlers import Handler, log_and_continue, log_and_fail
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.serdes import INT64, JSON
from streams_py.topology.dsl.builder import StreamsBuilder


def frozen(handler: Handler, *rows: tuple[bytes | None, bytes | None]) -> FrozenTables:
    builder = StreamsBuilder(key=JSON, value=INT64)
    builder.global_table("prices", store="names")
    topology = builder.build()
    (sub,) = topology.subtopologies()
    records = [HistoryRecord(("prices", 0, at, key, value, (1, 5), None)) for at, (key, value) in enumerate(rows)]
    declared = {"names": (topology.global_stores["names"], "prices")}
    settings = TaskSettings(application_id="app", deserialization_handler=handler)
    return FrozenTables(declared, sub.nodes, settings, {"prices": lambda: iter([records[:2], [], records[2:]])})


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def test_frozen_table_leaves_out_what_the_handler_drops() -> None:
    rows = [(b'"a"', number(1)), (b'"a"', b"bad"), (b"{", number(2)), (None, number(3)), (b' "b"', number(4))]
    tables = frozen(log_and_continue, *rows, (b'"b"', number(5)))
    assert {key: row.value for key, row in tables.stores["names"].all()} == {"a": 1, "b": 5}
    tables.close()


def test_frozen_table_names_the_record_that_cannot_be_read() -> None:
    with pytest.raises(DeserializationError, match=r"prices-0 at offset 1"):
        frozen(log_and_fail, (b'"a"', number(1)), (b'"a"', b"bad"))
