"""The window store of a join behaves like a list of all records that forgets what is older than its retention."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams_py.state.windowed.recent import RecentMemory
from streams_py.topology.declare.stores import StoreKind
from tests.support.contract.windowed_model import KEYS, RETENTION_MS, TIMES, opened

STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, TIMES, st.integers(0, 99)),
    st.tuples(st.just("put"), KEYS, TIMES, st.integers(0, 99)),
    st.tuples(st.just("put"), KEYS, TIMES, st.integers(0, 99)),
    st.tuples(st.just("fetch"), KEYS, TIMES, TIMES),
    st.tuples(st.just("commit")),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("restore")),
    st.tuples(st.just("roll back")),
)


class Model:
    """Entries as (key, time, sequence number) -> value. Sequence numbers restart with each owner of the store."""

    def __init__(self) -> None:
        self.entries: dict[tuple[bytes, int, int], int] = {}
        self.sequence = 0

    @property
    def oldest(self) -> int:
        return max((at for _, at, _ in self.entries), default=0) - RETENTION_MS + 1

    def put(self, key: bytes, at: int, value: int) -> None:
        self.sequence += 1
        self.entries = dict(self.entries)
        if at >= self.oldest:
            self.entries[key, at, self.sequence] = value

    def between(self, key: bytes, first: int, last: int) -> list[tuple[int, int]]:
        places = sorted((at, n) for k, at, n in self.entries if k == key and max(first, self.oldest) <= at <= last)
        return [(at, self.entries[key, at, n]) for at, n in places]


@pytest.mark.parametrize("memory_bytes", [1 << 20, 2000, 0], ids=["all recent", "some recent", "nothing recent"])
@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=30))
def test_store_of_a_join_behaves_like_a_list_that_forgets(
    persistent: bool, memory_bytes: int, steps: list[Any]
) -> None:
    memory = RecentMemory(memory_bytes)
    with (
        patch("streams_py.state.opening.window_stores.shared_recent_memory", lambda: memory),
        opened(StoreKind.WINDOW, persistent, keeps_duplicates=True) as kit,
    ):
        model = Model()
        committed, committed_log = model.entries, 0
        for step in steps:
            match step:
                case ("put", key, at, value):
                    kit.store.put(key, value, at)
                    model.put(key, at, value)
                case ("fetch", key, first, last):
                    expected = model.between(key, first, last)
                    assert list(kit.store.fetch_between(key, first, last)) == expected
                    assert list(kit.store.fetch_between(key, first, last, reverse=True)) == expected[::-1]
                    at_first = [value for _, value in model.between(key, first, first)]
                    assert kit.store.fetch(key, first) == (at_first[0] if at_first else None)
                case ("commit",):
                    kit.commit()
                    committed, committed_log = model.entries, len(kit.logged)
                case ("reopen",):
                    kit.reopen()
                    committed, committed_log = model.entries, len(kit.logged)
                    model.sequence = 0
                case ("restore",):
                    kit.restore_from_the_beginning()
                case ("roll back",) if persistent:
                    kit.database.roll_back()
                    kit.store.roll_back()
                    model.entries = committed
                    del kit.logged[committed_log:]
