"""The contract of custom stores, for the stores of the library and of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

from streams_py import CustomStateStore, KeyValueBytesStore, lru_map
from streams_py.testing.store_contract import CustomStateStoreContract, KeyValueBytesStoreContract
from tests.support.state.custom_stores import SqliteStore, TopStore


class TestSqliteStore(KeyValueBytesStoreContract):
    def make_store(self) -> KeyValueBytesStore:
        return SqliteStore()


class TestLruMap(KeyValueBytesStoreContract):
    def make_store(self) -> KeyValueBytesStore:
        return lru_map(10)()

    def test_least_recently_used_entry_goes_and_is_logged(self) -> None:
        with self._open(lru_map(2)()) as (store, logged):
            store.put(b"a", b"1")
            store.put(b"b", b"2")
            store.get(b"a")
            assert list(store.range(b"b", None)) == [(b"b", b"2")]  # no use of it
            store.put(b"c", b"3")
            assert dict(store.range(None, None)) == {b"a": b"1", b"c": b"3"}
            assert [(record.key, record.value) for record in logged] == [(b"b", None)]

    def test_readers_on_other_threads_disturb_nobody(self) -> None:
        with self._open(lru_map(50)()) as (store, _):
            failed: list[Exception] = []

            def read() -> None:
                try:
                    for number in range(3000):
                        store.get(b"%d" % (number % 100))
                        list(store.range(None, None))
                except Exception as error:
                    failed.append(error)

            readers = [Thread(target=read) for _ in range(3)]
            for reader in readers:
                reader.start()
            for number in range(20_000):
                store.put(b"%d" % (number % 100), b"")
            for reader in readers:
                reader.join()
            assert failed == []
            assert store.approximate_num_entries() == 50


class TestTopStore(CustomStateStoreContract):
    def make_store(self) -> CustomStateStore:
        return TopStore()

    def change(self, store: TopStore, step: int) -> None:
        if step % 5 == 4:
            store.remove("abc"[step % 3])
        else:
            store.add("abc"[step % 3], step * 7 % 11 + 1)

    def content(self, store: TopStore) -> object:
        return store.leaders(100)


class ForgetfulStore(TopStore):
    """Has a defect: deletions do not reach its changelog."""

    def remove(self, player: str) -> None:
        self._scores.pop(player, None)


class UnsortedStore(SqliteStore):
    """Has a defect: ranges include their end."""

    def range(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return super().range(first, None if end is None else end + b"\0", reverse=reverse)


class UncommittedStore(SqliteStore):
    """A store with a defect: uncommitted data reaches the file."""

    def close(self) -> None:
        self._db.commit()
        self._db.close()


class _ForgetfulContract(TestTopStore):
    __test__ = False

    def make_store(self) -> CustomStateStore:
        return ForgetfulStore()


class _UnsortedContract(KeyValueBytesStoreContract):
    def make_store(self) -> KeyValueBytesStore:
        return UnsortedStore()


class _UncommittedContract(KeyValueBytesStoreContract):
    def make_store(self) -> KeyValueBytesStore:
        return UncommittedStore()


def failures(contract: object) -> set[str]:
    found = set()
    for name in dir(contract):
        if name.startswith("test_"):
            try:
                getattr(contract, name)()
            except AssertionError:
                found.add(name)
    return found


def test_contract_finds_defects() -> None:
    assert failures(_ForgetfulContract()) >= {
        "test_restored_store_has_the_content_of_the_one_that_logged",
        "test_latest_record_of_each_key_is_enough",
    }
    assert failures(_UnsortedContract()) == {"test_range_goes_by_unsigned_bytes_without_its_end"}
    assert failures(_UncommittedContract()) == {"test_committed_content_is_found_again_when_the_store_says_so"}
