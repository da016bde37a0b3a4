"""Window and session stores behave like a dict of windows that forgets what is older than its retention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams_py.errors import InvalidStateStoreError
from streams_py.serdes import Windowed
from streams_py.state.caching.cache import RecordCache
from streams_py.topology.declare.stores import StoreKind, ValueAndTimestamp
from tests.support.contract.windowed_model import KEYS, RETENTION_MS, SIZE_MS, TIMES, opened

VALUES = st.none() | st.integers(0, 99)
WINDOW_STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, TIMES, VALUES),
    st.tuples(st.just("put"), KEYS, TIMES, VALUES),
    st.tuples(st.just("fetch"), KEYS, TIMES, TIMES),
    st.tuples(st.just("keys"), KEYS, KEYS, TIMES, TIMES),
    st.tuples(st.just("flush_cache")),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("restore")),
)


def alive(model: dict[Any, Any], time_of: Any) -> dict[Any, Any]:
    latest = max((time_of(key) for key in model), default=0)
    return {key: value for key, value in model.items() if value is not None and time_of(key) > latest - RETENTION_MS}


@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW], ids=lambda kind: kind.value)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(WINDOW_STEPS, max_size=30))
def test_window_store_behaves_like_a_dict_that_forgets(kind: StoreKind, persistent: bool, steps: list[Any]) -> None:
    timestamped = kind is StoreKind.TIMESTAMPED_WINDOW
    model: dict[tuple[bytes, int], int | None] = {}  # None: deleted; it counts for stream time

    def bare(stored: Any) -> Any:
        return stored[0] if timestamped else stored

    with opened(kind, persistent) as kit:
        for step in steps:
            now = alive(model, lambda place: place[1])
            match step:
                case ("put", key, start, value):
                    kit.context.timestamp = start
                    kit.store.put(
                        key, ValueAndTimestamp(value, start) if timestamped and value is not None else value, start
                    )
                    model[key, start] = value
                    if start not in {at for _, at in alive({**model, (key, start): 1}, lambda place: place[1])}:
                        model[key, start] = None
                case ("fetch", key, first, last):
                    expected = sorted((at, v) for (k, at), v in now.items() if k == key and first <= at <= last)
                    found = [(at, bare(stored)) for at, stored in kit.store.fetch_between(key, first, last)]
                    assert found == expected
                    backwards = [at for at, _ in kit.store.fetch_between(key, first, last, reverse=True)]
                    assert backwards == [at for at, _ in expected[::-1]]
                    found = kit.store.fetch(key, first)
                    assert (None if found is None else bare(found)) == now.get((key, first))
                case ("keys", low, high, first, last):
                    expected = sorted((at, k) for k, at in now if low <= k <= high and first <= at <= last)
                    assert [(w.start, w.key) for w, _ in kit.store.fetch_keys(low, high, first, last)] == expected
                case ("flush_cache",):
                    kit.store.flush_cache()
                case ("reopen",):
                    kit.reopen()
                case ("restore",):
                    kit.restore_from_the_beginning()
        expected = sorted((at, k, v) for (k, at), v in alive(model, lambda place: place[1]).items())
        assert [(w.start, w.key, bare(stored)) for w, stored in kit.store.all()] == expected
        assert all(w.end == w.start + SIZE_MS for w, _ in kit.store.all(reverse=True))


@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW], ids=lambda kind: kind.value)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(WINDOW_STEPS, max_size=40), budget=st.sampled_from([200, 1000, 1 << 20]))
def test_record_cache_shows_what_an_uncached_store_shows(kind: StoreKind, steps: list[Any], budget: int) -> None:
    """Nothing expires here, because a cache can return an entry that its store would have deleted."""
    timestamped = kind is StoreKind.TIMESTAMPED_WINDOW
    with opened(kind, False) as plain, opened(kind, False, cache=RecordCache(budget)) as cached:
        for step in steps:
            match step:
                case ("put", key, time, value):
                    start = time % RETENTION_MS
                    stored = ValueAndTimestamp(value, start) if timestamped and value is not None else value
                    for kit in (plain, cached):
                        kit.context.timestamp = start
                        kit.store.put(key, stored, start)
                case ("fetch", key, first, last):
                    for one, other in zip(
                        plain.store.fetch_between(key, first, last),
                        cached.store.fetch_between(key, first, last),
                        strict=True,
                    ):
                        assert one == other
                    assert plain.store.fetch(key, first) == cached.store.fetch(key, first)
                case ("keys", low, high, first, last):
                    assert list(plain.store.fetch_keys(low, high, first, last)) == list(
                        cached.store.fetch_keys(low, high, first, last)
                    )
                case ("reopen",):
                    cached.reopen()
                case (_,):
                    cached.store.flush_cache()
        assert list(plain.store.all()) == list(cached.store.all())
        cached.restore_from_the_beginning()  # its changelog says the same, although it says less
        assert list(plain.store.all()) == list(cached.store.all())


SESSION_STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, TIMES, st.integers(0, 30), VALUES),
    st.tuples(st.just("put"), KEYS, TIMES, st.integers(0, 30), VALUES),
    st.tuples(st.just("find"), KEYS, TIMES, TIMES),
    st.tuples(st.just("ended"), TIMES, TIMES),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("restore")),
)


def order_of_ended(persistent: bool) -> Callable[[Windowed[bytes]], Any]:
    """As in Kafka Streams: stores on disk have the key last."""
    return lambda s: (s.end, s.start, s.key) if persistent else (s.end, s.key, s.start)


@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
def test_sessions_of_one_end_are_in_the_order_of_kafka_streams(persistent: bool) -> None:
    a, b, later = Windowed(b"a", 5, 9), Windowed(b"b", 3, 9), Windowed(b"a", 10, 12)
    with opened(StoreKind.SESSION, persistent) as kit:
        for session in (later, b, a):
            kit.context.timestamp = session.end
            kit.store.put(session, 1)
        ended = [session for session, _ in kit.store.sessions_ended(0, 20)]
    assert ended == ([b, a, later] if persistent else [a, b, later])


@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(SESSION_STEPS, max_size=30))
def test_session_store_behaves_like_a_dict_that_forgets(persistent: bool, steps: list[Any]) -> None:
    model: dict[Windowed[bytes], int | None] = {}

    def end_of(session: Windowed[bytes]) -> int:
        return session.end

    with opened(StoreKind.SESSION, persistent) as kit:
        for step in steps:
            now = alive(model, end_of)
            match step:
                case ("put", key, start, length, value):
                    session = Windowed(key, start, start + length)
                    kit.context.timestamp = session.end
                    kit.store.put(session, value)
                    model[session] = value if session in alive({**model, session: 1}, end_of) else None
                case ("find", key, earliest_end, latest_start):
                    expected = sorted(
                        (s.end, s.start, v)
                        for s, v in now.items()
                        if s.key == key and s.end >= earliest_end and s.start <= latest_start
                    )
                    found = list(kit.store.find_sessions(key, earliest_end, latest_start))
                    assert [(s.end, s.start, v) for s, v in found] == expected
                    assert list(kit.store.find_sessions(key, earliest_end, latest_start, reverse=True)) == found[::-1]
                    for session, value in found:
                        assert kit.store.fetch_session(key, session.start, session.end) == value
                case ("ended", first, last):
                    ended = sorted((s for s in now if first <= s.end <= last), key=order_of_ended(persistent))
                    assert [session for session, _ in kit.store.sessions_ended(first, last)] == ended
                case ("reopen",):
                    kit.reopen()
                case ("restore",):
                    kit.restore_from_the_beginning()
        assert dict(kit.store.all()) == alive(model, end_of)


# -- single facts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
def test_expired_segments_are_removed_as_a_whole(persistent: bool) -> None:
    with opened(StoreKind.WINDOW, persistent) as kit:
        for start in range(1000):
            kit.store.put(b"k", start, start)
        kit.commit()
        # A read leaves expired entries out.
        assert len(list(kit.store._direct.content._below.scan(None, None))) <= RETENTION_MS + 7
        assert len(kit.logged) == 1000


def test_expired_put_is_logged_but_not_stored() -> None:
    with opened(StoreKind.WINDOW, False) as kit:
        kit.store.put(b"k", 1, 100)
        kit.store.put(b"k", 2, 100 - RETENTION_MS)
        assert kit.store.fetch(b"k", 60) is None
        assert len(kit.logged) == 2


def test_what_was_not_released_is_kept_however_old_it_is() -> None:
    with opened(StoreKind.WINDOW, False, holds_back=True) as kit:
        kit.store.put(b"k", 1, 10)
        kit.store.put(b"k", 2, 1000)
        assert kit.store.fetch(b"k", 10) == 1
        kit.store.release(500)
        assert kit.store.fetch(b"k", 10) is None
        assert kit.store.fetch(b"k", 1000) == 2


def test_standby_that_is_never_told_what_was_emitted_does_not_grow_for_ever() -> None:
    day_ms = 86_400_000
    with opened(StoreKind.WINDOW, False, holds_back=True, segment_ms=day_ms) as active:
        for day in range(10):
            active.store.put(b"k", day, day * day_ms)
        assert len(list(active.store.all())) == 10
        with opened(StoreKind.WINDOW, False, holds_back=True, segment_ms=day_ms) as standby:
            standby.store.restore(active.logged)
            assert [value for _, value in standby.store.all()] == [8, 9]


@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
def test_store_of_a_join_keeps_all_values_of_a_time_in_order(persistent: bool) -> None:
    with opened(StoreKind.WINDOW, persistent, keeps_duplicates=True) as kit:
        kit.context.timestamp, kit.context.headers = 12, (("h", b"v"),)
        for value in (3, 1, None, 2):
            kit.store.put(b"k", value, 12)
        assert [value for _, value in kit.store.fetch_between(b"k", 0, 20)] == [3, 1, 2]
        assert [entry.key[-4:] for entry in kit.logged] == [bytes((0, 0, 0, n)) for n in (1, 2, 3, 4)]
        assert [entry.value is None for entry in kit.logged] == [False, False, True, False]
        kit.restore_from_the_beginning()
        assert [value for _, value in kit.store.fetch_between(b"k", 0, 20)] == [3, 1, 2]


def test_numbers_of_the_values_of_a_join_begin_anew_after_the_largest() -> None:
    with opened(StoreKind.WINDOW, False, keeps_duplicates=True) as kit:
        kit.store._sequence = 2**31 - 2  # two billion records are too many for a test
        for value in (1, 2):
            kit.store.put(b"k", value, 12)
        assert [entry.key[-4:] for entry in kit.logged] == [b"\x7f\xff\xff\xff", bytes(4)]


def test_key_of_a_changelog_too_short_for_a_window_is_an_error() -> None:
    with opened(StoreKind.WINDOW, False) as kit, pytest.raises(InvalidStateStoreError, match="too short"):
        kit.store.restore([(b"short", b"v", 1)])
