"""From changelog records to what stores are restored from."""

from __future__ import annotations

import gc

import pytest

from streams_py.state.stores.changelog_entries import changelog_entries
from streams_py.testing.memory_clients import MemoryRecord


def test_entries_have_key_value_and_timestamp_of_each_record_in_order() -> None:
    records = [
        MemoryRecord("t", 0, 3, b"k", b"1", timestamp_ms=7),
        MemoryRecord("t", 0, 4, b"k", None, timestamp_ms=-1, headers=[("h", b"x")]),
        MemoryRecord("t", 0, 9, None, b"", timestamp_ms=0),
    ]
    assert list(changelog_entries(records)) == [(b"k", b"1", 7), (b"k", None, -1), (None, b"", 0)]


@pytest.mark.parametrize(
    ("values", "stamped", "removes"),
    [
        ([b"1", b"2"], [b"\0" * 7 + b"\x071", b"\0" * 7 + b"\x072"], False),
        ([b"1", b""], [b"\0" * 7 + b"\x071", b"\0" * 7 + b"\x07"], False),
        ([b"1", b"", None], [b"\0" * 7 + b"\x071", b"\0" * 7 + b"\x07", None], True),
    ],
)
def test_null_value_removes_and_an_empty_one_does_not(
    values: list[bytes | None], stamped: list[bytes | None], removes: bool
) -> None:
    entries = changelog_entries(
        [MemoryRecord("t", 0, n, b"k", value, timestamp_ms=7) for n, value in enumerate(values)]
    )
    assert entries.removes is removes
    assert list(entries.stamped()) == stamped


def test_there_are_no_entries_without_records() -> None:
    assert list(changelog_entries([])) == []


def test_no_object_is_kept_for_an_entry_that_was_taken() -> None:
    """A collection of garbage looks at every object that lives: what restores must not leave one per record."""
    records = [MemoryRecord("t", 0, n, b"%d" % n, b"v", timestamp_ms=n) for n in range(5_000)]
    gc.collect()
    before = len(gc.get_objects())
    kept = {key: value for key, value, _ in changelog_entries(records)}
    assert len(gc.get_objects()) - before < 1_000  # threads of other tests make some, too
    assert len(kept) == 5_000
