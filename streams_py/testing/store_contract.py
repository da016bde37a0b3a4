"""Tests that every custom store must pass. Derive a test class from one of these and run it with pytest.

    class TestMyStore(KeyValueBytesStoreContract):
        def make_store(self) -> KeyValueBytesStore:
            return MyStore()

The tests find errors that would cause damage in production: a range scan that sees later writes, a deletion that is
lost in a restore, a committed offset that the store's files do not contain.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from streams_py.ports import Headers
from streams_py.state.custom.context import CustomStoreContext
from streams_py.topology.declare.custom_stores import ChangelogRecord, CustomStateStore, CustomStore, KeyValueBytesStore
from streams_py.topology.declare.nodes import RecordContext

__all__ = ["CustomStateStoreContract", "KeyValueBytesStoreContract"]

AnyStore = TypeVar("AnyStore", bound=CustomStore)


class _Contract:
    @contextmanager
    def _open(self, store: AnyStore, directory: str | None = None) -> Iterator[tuple[AnyStore, list[ChangelogRecord]]]:
        """Open the store as a task does; yield it with the list of changelog records that it logs."""
        logged: list[ChangelogRecord] = []

        def log(key: bytes, value: bytes | None, timestamp_ms: int, headers: Headers = ()) -> None:
            logged.append(ChangelogRecord(key, value, timestamp_ms, tuple(headers)))

        context = CustomStoreContext("store", "app", None, "app-store-changelog", directory, RecordContext(), log)
        if isinstance(store, KeyValueBytesStore):
            store.evicted = lambda key: context.log_change(key, None)
        store.open(context)
        if store.committed_offset() is None:
            store.clear()
        if isinstance(store, CustomStateStore):
            store.is_open = True
        try:
            yield store, logged
        finally:
            store.close()


class KeyValueBytesStoreContract(_Contract, ABC):
    """Tests of a :class:`~streams_py.KeyValueBytesStore`, which may evict entries only if it has more than ten."""

    @abstractmethod
    def make_store(self) -> KeyValueBytesStore:
        """Return a new store, as its supplier creates it."""

    @contextmanager
    def _store(self) -> Iterator[KeyValueBytesStore]:
        with self._open(self.make_store()) as (store, _):
            yield store

    def test_supplier_makes_a_new_store_each_time(self) -> None:
        assert self.make_store() is not self.make_store()

    def test_get_gives_what_was_put_last(self) -> None:
        with self._store() as store:
            assert store.get(b"k") is None
            store.put(b"k", b"1")
            store.put(b"k", b"2")
            assert store.get(b"k") == b"2"
            assert store.get(b"kk") is None
            assert store.approximate_num_entries() >= 1

    def test_empty_keys_and_values_are_kept(self) -> None:
        with self._store() as store:
            store.put(b"", b"")
            store.put(b"\x00\xff", b"\x00")
            assert store.get(b"") == b""
            assert list(store.range(None, None)) == [(b"", b""), (b"\x00\xff", b"\x00")]

    def test_delete_removes_and_may_find_nothing(self) -> None:
        with self._store() as store:
            store.put(b"k", b"1")
            store.delete(b"k")
            store.delete(b"absent")
            assert store.get(b"k") is None
            assert list(store.range(None, None)) == []

    def test_range_goes_by_unsigned_bytes_without_its_end(self) -> None:
        keys = [b"", b"\x00", b"a", b"a\x00", b"ab", b"b", b"\x80", b"\xff", b"\xff\xff"]
        with self._store() as store:
            for key in keys[::2] + keys[1::2]:
                store.put(key, key + b"!")
            entries = [(key, key + b"!") for key in keys]
            assert list(store.range(None, None)) == entries
            assert list(store.range(None, None, reverse=True)) == entries[::-1]
            assert list(store.range(b"a", b"b")) == entries[2:5]
            assert list(store.range(b"a", b"b", reverse=True)) == entries[2:5][::-1]
            assert list(store.range(b"aa", None)) == entries[4:]
            assert list(store.range(None, b"a")) == entries[:2]
            assert list(store.range(b"b", b"a")) == []

    def test_range_is_of_the_moment_it_was_asked_for(self) -> None:
        with self._store() as store:
            for number in range(5):
                store.put(bytes([number]), b"before")
            found = store.range(None, None)
            first = next(found)
            store.put(b"\x03", b"after")
            store.delete(b"\x04")
            store.put(b"\x02\x02", b"new")
            assert [first, *found] == [(bytes([number]), b"before") for number in range(5)]

    def test_clear_removes_everything_and_logs_nothing(self) -> None:
        with self._open(self.make_store()) as (store, logged):
            store.put(b"a", b"1")
            store.clear()
            assert store.get(b"a") is None
            assert list(store.range(None, None)) == []
            store.put(b"a", b"2")
            assert store.get(b"a") == b"2"
            assert logged == []

    def test_committed_content_is_found_again_when_the_store_says_so(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with self._open(self.make_store(), folder) as (store, _):
                store.put(b"a", b"1")
                store.commit(41)
                store.put(b"a", b"2")
                store.put(b"b", b"2")
            with self._open(self.make_store(), folder) as (store, _):
                offset = store.committed_offset()
                assert offset in (None, 41)
                assert list(store.range(None, None)) == ([] if offset is None else [(b"a", b"1")])


class CustomStateStoreContract(_Contract, ABC):
    """Tests of a :class:`~streams_py.CustomStateStore`."""

    @abstractmethod
    def make_store(self) -> CustomStateStore:
        """Return a new store, as its supplier creates it."""

    @abstractmethod
    def change(self, store: Any, step: int) -> None:
        """Change the store. ``step`` counts from 0. Some of 20 steps should undo or replace earlier changes."""

    @abstractmethod
    def content(self, store: Any) -> object:
        """Return the whole content of the store, as a value that supports ``==``."""

    def test_supplier_makes_a_new_store_each_time(self) -> None:
        assert self.make_store() is not self.make_store()

    def _made(self, steps: int) -> tuple[object, list[ChangelogRecord]]:
        with self._open(self.make_store()) as (store, logged):
            for step in range(steps):
                self.change(store, step)
            store.flush()
            return self.content(store), list(logged)

    def test_restored_store_has_the_content_of_the_one_that_logged(self) -> None:
        for steps in (1, 7, 20):
            content, logged = self._made(steps)
            with self._open(self.make_store()) as (store, echo):
                middle = len(logged) // 2
                store.restore(logged[:middle])
                store.restore(logged[middle:])
                assert self.content(store) == content
                assert echo == [], "restoring must log nothing"

    def test_latest_record_of_each_key_is_enough(self) -> None:
        content, logged = self._made(20)
        latest = {record.key: index for index, record in enumerate(logged)}
        compacted = [logged[index] for index in sorted(latest.values())]
        with self._open(self.make_store()) as (store, _):
            store.restore([record for record in compacted if record.value is not None])
            assert self.content(store) == content

    def test_clear_makes_it_as_new(self) -> None:
        with self._open(self.make_store()) as (store, _):
            empty = self.content(store)
            for step in range(20):
                self.change(store, step)
            store.clear()
            assert self.content(store) == empty
            store.restore(self._made(20)[1])
            assert self.content(store) == self._made(20)[0]

    def test_committed_content_is_found_again_when_the_store_says_so(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with self._open(self.make_store(), folder) as (store, _):
                empty = self.content(store)
                for step in range(10):
                    self.change(store, step)
                store.flush()
                committed = self.content(store)
                store.commit(41)
                self.change(store, 10)
            with self._open(self.make_store(), folder) as (store, _):
                offset = store.committed_offset()
                assert offset in (None, 41)
                assert self.content(store) == (empty if offset is None else committed)
