"""Changelog records as Kafka Streams 4.3.1 writes them, byte for byte (keys and values are strings)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streams_py.serdes import INT64, STRING
from streams_py.topology.declare.stores import StoreKind
from tests.support.contract.store_kit import Kit, Logged, Shape


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_count_changelog_equals_kafkas(persistent: bool, flushed: bool, tmp_path: Path) -> None:
    """count: key k at time 10, then at time 5; the cache is flushed after each record, or not used."""
    kit = Kit(Shape(StoreKind.TIMESTAMPED_KEY_VALUE, persistent, caching=flushed), str(tmp_path), value_serde=INT64)
    store: Any = kit.store
    for record_ms in (10, 5):
        kit.at(record_ms)
        stored = store.get("k")
        count, stored_ms = (0, record_ms) if stored is None else stored
        store.put_value("k", count + 1, max(record_ms, stored_ms))
        store.flush_cache()
    assert kit.logged == [
        Logged(bytes.fromhex("6b"), bytes.fromhex("0000000000000001"), 10),
        Logged(bytes.fromhex("6b"), bytes.fromhex("0000000000000002"), 10),
    ]
    kit.close()


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_table_changelog_equals_kafkas(persistent: bool, flushed: bool, tmp_path: Path) -> None:
    """table: put at time 10, deletion at time 11."""
    kit = Kit(Shape(StoreKind.TIMESTAMPED_KEY_VALUE, persistent, caching=flushed), str(tmp_path), value_serde=STRING)
    store: Any = kit.store
    kit.at(10)
    store.put_value("k", "v", 10)
    store.flush_cache()
    kit.at(11)
    store.put_value("k", None, 11)
    store.flush_cache()
    assert kit.logged == [Logged(bytes.fromhex("6b"), bytes.fromhex("76"), 10), Logged(bytes.fromhex("6b"), None, 11)]
    kit.close()


def test_restored_record_gets_its_timestamp_back_in_front_of_the_value(tmp_path: Path) -> None:
    kit = Kit(Shape(StoreKind.TIMESTAMPED_KEY_VALUE, persistent=True, caching=False), str(tmp_path))
    kit.store.restore([(b"k", bytes.fromhex("0000000000000002"), 10)])
    assert kit.store.content.read(b"k") == bytes.fromhex("000000000000000a" + "0000000000000002")
    kit.close()


def test_restored_record_of_a_plain_store_is_kept_as_it_is(tmp_path: Path) -> None:
    kit = Kit(Shape(StoreKind.KEY_VALUE, persistent=True, caching=False), str(tmp_path), value_serde=STRING)
    kit.store.restore([(b"k", b"v", 10), (b"l", b"", 11)])
    assert kit.store.content.read(b"k") == b"v"
    assert list(kit.store.all()) == [("k", "v"), ("l", "")]
    kit.close()
