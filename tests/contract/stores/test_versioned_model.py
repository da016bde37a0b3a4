"""A versioned store behaves like a list of versions per key."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams_py.serdes import BYTES, INT64
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.opening.stores import open_store
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.versioned_stores import (
    NOT_PUT,
    VALID_TO_UNDEFINED,
    VersionedRecord,
    versioned_key_value_store,
)
from tests.support.contract.store_kit import MEMORY

HISTORY_MS = 30
KEYS = st.sampled_from([b"", b"a", b"ab", b"a\x00\x00\x00\x00\x00\x00\x00\x05"])
TIMES = st.integers(0, 90)
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, TIMES, st.none() | st.integers(0, 9)),
    st.tuples(st.just("put"), KEYS, TIMES, st.none() | st.integers(0, 9)),
    st.tuples(st.just("delete"), KEYS, TIMES),
    st.tuples(st.just("get"), KEYS, TIMES),
    st.tuples(st.just("restore")),
)


class Model:
    """Every version of every key, and what the store may have forgotten."""

    def __init__(self) -> None:
        self.versions: dict[bytes, dict[int, int | None]] = {}
        self.stream_time_ms = -1

    def put(self, key: bytes, value: int | None, timestamp: int) -> int:
        if timestamp < self.stream_time_ms - HISTORY_MS:
            return NOT_PUT
        self.stream_time_ms = max(self.stream_time_ms, timestamp)
        versions = self.versions.setdefault(key, {})
        versions[timestamp] = value
        return min((at for at in versions if at > timestamp), default=VALID_TO_UNDEFINED)

    def get(self, key: bytes, as_of: int | None) -> VersionedRecord[int] | None:
        versions = self.versions.get(key, {})
        found = max((at for at in versions if as_of is None or at <= as_of), default=None)
        if found is None:
            return None
        value, following = versions[found], min((at for at in versions if at > found), default=None)
        if as_of is not None and as_of < self.stream_time_ms - HISTORY_MS and following is not None:
            return None
        return None if value is None else VersionedRecord(value, found, None if as_of is None else following)


@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=30))
def test_versioned_store_behaves_like_a_list_of_versions(persistent: bool, steps: list[Any]) -> None:
    model, logged = Model(), []
    builder = versioned_key_value_store("s", history=HISTORY_MS, key=BYTES, value=INT64, persistent=persistent)
    with tempfile.TemporaryDirectory() as directory:
        database = TaskDatabase(directory, ["s"], memory=MEMORY) if persistent else None
        disk = None if database is None else database.store
        store: Any = open_store(
            builder,
            application_id="app",
            context=RecordContext(),
            log=lambda key, value, at: logged.append((key, value, at)),
            disk=disk,
        )
        try:
            for step in steps:
                match step:
                    case ("put", key, at, value):
                        assert store.put(key, value, at) == model.put(key, value, at)
                    case ("delete", key, at):
                        expired = at < model.stream_time_ms - HISTORY_MS
                        expected = None if expired else model.get(key, at)
                        model.put(key, None, at)
                        assert store.delete(key, at) == expected
                    case ("get", key, at):
                        assert store.get(key, at) == model.get(key, at)
                    case _:
                        store.clear()
                        assert store.restore(logged) == len(logged)
                for key in (b"", b"a", b"ab"):
                    assert store.get(key) == model.get(key, None)
        finally:
            store.close()
            if database is not None:
                database.close()


def test_history_begins_at_its_very_millisecond() -> None:
    builder = versioned_key_value_store("s", history=10, key=BYTES, value=INT64, persistent=False)
    store: Any = open_store(builder, application_id="app", context=RecordContext())
    store.put(b"k", 1, 5)
    store.put(b"k", 2, 20)
    assert store.get(b"k", as_of=10) == VersionedRecord(1, 5, 20)
    assert store.get(b"k", as_of=9) is None
    assert store.delete(b"k", 9) is None
    assert store.get(b"k", as_of=10) == VersionedRecord(1, 5, 20)
    assert store.delete(b"k", 10) == VersionedRecord(1, 5, 20)
    assert store.get(b"k", as_of=10) is None


def test_forgotten_versions_are_removed() -> None:
    builder = versioned_key_value_store("s", history=HISTORY_MS, key=BYTES, value=INT64, persistent=False)
    store: Any = open_store(builder, application_id="app", context=RecordContext())
    for at in range(1000):
        store.put(b"k", at, at)
    assert store.approximate_num_entries() <= HISTORY_MS + 1
