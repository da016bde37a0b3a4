"""Golden events, and the tables that follow from them."""

from __future__ import annotations

import pytest

from streams_py.journal.codec import decode_event, encode_value
from streams_py.journal.model import Event
from streams_py.spark.tables.schemas import TABLES
from tests.unit.spark.tables.golden import FOLDER, stored, tables
from tests.unit.spark.tables.history import fold, shuffled


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return tables(fold(shuffled(stored(), 11)))


@pytest.mark.parametrize("table", TABLES)
def test_ta1_table_follows_from_golden_events(table: str, found: dict[str, str]) -> None:
    assert found[table] == (FOLDER / f"{table}.csv").read_text(encoding="utf-8")


def test_golden_tables_have_rows() -> None:
    assert all((FOLDER / f"{table}.csv").stat().st_size for table in TABLES)


def test_golden_events_are_read_and_written_alike() -> None:
    for record in stored():
        event = decode_event(record.value)
        assert isinstance(event, Event)
        assert encode_value(event) == record.value
