"""Golden events, and the tables that follow from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streams_py.events.codec import decode_event, encode_value
from streams_py.events.model import Event
from streams_py.telemetry.schemas import TABLES
from tests.support.telemetry.golden import FOLDER, stored, tables
from tests.support.telemetry.history import fold, shuffled

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return tables(fold(shuffled(stored(), 11)))


@pytest.mark.parametrize("table", TABLES)
def test_table_follows_from_golden_events(table: str, found: dict[str, str]) -> None:
    assert found[table] == (FOLDER / f"{table}.csv").read_text(encoding="utf-8")


def test_golden_tables_have_rows() -> None:
    assert all((FOLDER / f"{table}.csv").stat().st_size for table in TABLES)


def test_tables_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "import json; from tests.support.telemetry.golden import stored; "
        "from tests.support.telemetry.history import fold; print(json.dumps(fold(stored())))"
    )
    seeds = ("1", "2")
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in seeds
    }
    assert len(printed) == 1
    assert len(json.loads(printed.pop())) == len(fold(stored()))


def test_golden_events_are_read_and_written_alike() -> None:
    for record in stored():
        event = decode_event(record.value)
        assert isinstance(event, Event)
        assert encode_value(event) == record.value
