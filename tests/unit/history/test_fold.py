"""The fold of a changelog: the last record of each key, without tombstones and expired windows."""

from __future__ import annotations

import pytest

from streams_py.history.fold import Expiry, Fold, fold_of
from streams_py.state.custom.lru import lru_map
from streams_py.state.stores.bytes_store import MemoryBytes
from streams_py.state.windowed.layout import SESSION_LAYOUT, WINDOW_LAYOUT
from streams_py.topology.declare.stores import StoreBuilder, StoreKind, WindowRetention

RETENTION_MS = 1_000


def store(kind: StoreKind, *, holds_back: bool = False) -> StoreBuilder:
    retention = WindowRetention.of(RETENTION_MS, 10, step_ms=10, holds_back=holds_back)
    return StoreBuilder("windows", kind, windows=retention)


def left(fold: Fold) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in fold.entries()}


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("kind", [StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION])
def test_expired_windows_and_sessions_are_left_out(kind: StoreKind, on_disk: bool) -> None:
    suffix = SESSION_LAYOUT.suffix if kind is StoreKind.SESSION else WINDOW_LAYOUT.suffix
    fold = Fold(MemoryBytes, Expiry.of(store(kind)), in_memory_max=0 if on_disk else 100)
    for time_ms in (5_000, 5_999, 6_000, 7_000):
        fold.put("changelog", b"%d" % time_ms, b"key" + suffix(time_ms, 0), timestamp_ms=time_ms)
        fold.relieve()
    assert sorted(left(fold).values()) == [b"7000"]
    fold = Fold(MemoryBytes, Expiry.of(store(kind)), in_memory_max=0 if on_disk else 100)
    for time_ms, value in ((6_001, b"alive"), (5_999, b"old"), (7_000, None)):  # a deletion moves stream time, too
        fold.put("changelog", value, b"key" + suffix(time_ms, 0), timestamp_ms=time_ms)
        fold.relieve()
    assert list(left(fold).values()) == [b"alive"]


def test_what_waits_for_the_window_to_close_is_kept() -> None:
    assert Expiry.of(store(StoreKind.TIMESTAMPED_WINDOW, holds_back=True)) is None
    assert Expiry.of(StoreBuilder("plain", StoreKind.KEY_VALUE)) is None


def test_last_record_of_a_key_is_left_and_tombstones_are_gone() -> None:
    fold = Fold(MemoryBytes, in_memory_max=1)
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), (b"b", None)):
        fold.put("changelog", value, key, timestamp_ms=7)
        fold.relieve()
    assert left(fold) == {b"a": b"3", b"c": b"4"}


def test_few_large_entries_go_to_disk_like_many_small_ones() -> None:
    opened: list[MemoryBytes] = []

    def disk() -> MemoryBytes:
        opened.append(MemoryBytes())
        return opened[-1]

    fold = Fold(disk, bytes_in_memory_max=100)
    for key, value in ((b"a", b"x" * 60), (b"b", None), (b"c", b"y" * 41)):
        assert not opened
        fold.put("changelog", value, key, timestamp_ms=7)
        fold.relieve()
    assert len(opened) == 1
    assert left(fold) == {b"a": b"x" * 60, b"c": b"y" * 41}


@pytest.mark.parametrize("in_memory_max", [0, 2, 100])
def test_records_of_a_store_that_drops_the_oldest_stay_in_the_order_of_their_updates(in_memory_max: int) -> None:
    builder = StoreBuilder("last", StoreKind.TIMESTAMPED_KEY_VALUE, supplier=lru_map(2))
    fold = fold_of(builder, MemoryBytes, in_memory_max=in_memory_max)
    for key, value in ((b"c", b"1"), (b"a", b"2"), (b"d", b"3"), (b"c", b"4"), (b"b", b"5"), (b"d", None)):
        fold.put("changelog", value, key, timestamp_ms=7, headers=[("h", b"x")] if key == b"c" else None)
        fold.relieve()
    assert [(entry.key, entry.value) for entry in fold.entries()] == [(b"a", b"2"), (b"c", b"4"), (b"b", b"5")]
    assert [entry.headers for entry in fold.entries()] == [None, [("h", b"x")], None]
