"""The record cache: merging, the order of flushing, and the record context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_py.errors import BrokerUnavailableError, ProcessingError, StateError
from streams_py.serdes import STRING
from streams_py.state.caching.cache import flush_until_clean
from streams_py.state.caching.cached_plain import CachedPlainStore
from streams_py.state.caching.cached_timestamped import CachedTimestampedStore
from tests.support.contract.store_kit import CACHED_SHAPES, CACHED_TIMESTAMPED, Kit, Logged, Shape, listen


@pytest.mark.parametrize("shape", CACHED_SHAPES, ids=str)
def test_only_the_last_update_of_a_key_leaves_the_cache(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape)
    forwarded = listen(kit)
    kit.put("a", 1, 10)
    kit.put("a", 2, 20)
    kit.put("b", 3, 30)
    assert kit.logged == []
    assert forwarded == []
    assert kit.store.content.read(b"a") is None
    kit.store.flush_cache()
    assert [(record.key, record.timestamp_ms) for record in kit.logged] == [(b"a", 20), (b"b", 30)]
    assert forwarded == [("a", 2, None, 20), ("b", 3, None, 30)]
    kit.store.flush_cache()
    assert len(forwarded) == 2


@pytest.mark.parametrize("shape", CACHED_SHAPES, ids=str)
def test_flush_goes_in_the_order_of_the_last_write(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape)
    forwarded = listen(kit)
    for key in ("a", "b", "c", "a", "d", "b"):
        kit.put(key, 1)
    kit.store.get("c")
    kit.store.flush_cache()
    assert [change[0] for change in forwarded] == ["c", "a", "d", "b"]
    assert [record.key for record in kit.logged] == [b"c", b"a", b"d", b"b"]


@pytest.mark.parametrize("shape", CACHED_SHAPES, ids=str)
def test_old_value_is_that_of_the_last_flush(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape)
    forwarded = listen(kit)
    for value in (1, 2, None, 3):
        kit.put("a", value, 10)
    kit.store.flush_cache()
    kit.put("a", 4, 20)
    kit.put("a", 5, 30)
    kit.store.flush_cache()
    kit.put("a", None, 40)
    kit.store.flush_cache()
    assert forwarded == [("a", 3, None, 10), ("a", 5, 3, 30), ("a", None, 5, 40)]


@pytest.mark.parametrize("shape", CACHED_SHAPES, ids=str)
def test_old_value_is_absent_when_nobody_wants_it(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape)
    forwarded = listen(kit, send_old_values=False)
    kit.put("a", 1)
    kit.store.flush_cache()
    kit.put("a", 2)
    kit.store.flush_cache()
    kit.put("a", None)
    kit.store.flush_cache()
    assert [change[1:3] for change in forwarded] == [(1, None), (2, None), (None, None)]


@pytest.mark.parametrize("shape", CACHED_SHAPES, ids=str)
@pytest.mark.parametrize("send_old_values", [False, True])
def test_deletion_of_what_was_never_flushed_leaves_no_trace(
    shape: Shape, send_old_values: bool, make_kit: Callable[..., Kit]
) -> None:
    kit = make_kit(shape)
    forwarded = listen(kit, send_old_values=send_old_values)
    kit.put("a", 1)
    kit.put("a", None)
    kit.store.flush_cache()
    assert forwarded == []
    assert kit.logged == []
    assert kit.cache.used_bytes == 0


def test_value_keeps_its_timestamp_and_a_deletion_has_that_of_its_record(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(CACHED_TIMESTAMPED)
    forwarded = listen(kit)
    kit.at(10)
    kit.store.put("a", kit.stored(1, 99))
    kit.store.flush_cache()
    kit.at(50)
    kit.store.put("a", None)
    kit.at(60)
    kit.store.flush_cache()
    assert [change[3] for change in forwarded] == [99, 50]
    assert [record.timestamp_ms for record in kit.logged] == [99, 50]


@pytest.mark.parametrize("shape", CACHED_SHAPES, ids=str)
def test_context_is_that_of_the_entry_while_it_is_flushed_and_restored_afterwards(
    shape: Shape, make_kit: Callable[..., Kit]
) -> None:
    kit = make_kit(shape)
    seen: list[Any] = []
    context = kit.context

    def where() -> Any:
        return (context.topic, context.partition, context.offset, context.timestamp, list(context.headers))

    kit.store.set_flush_listener(lambda *_: seen.append(where()), send_old_values=False)
    first = ("one", 3, 100, 10, [("h", b"1")])
    second = ("two", 4, 200, 20, [])
    third = ("three", 5, 300, 30, [("i", None)])
    for place, key in ((first, "a"), (second, "b")):
        context.topic, context.partition, context.offset, context.timestamp = place[:4]
        context.headers = place[4]
        kit.put(key, 1)
    context.topic, context.partition, context.offset, context.timestamp, context.headers = third
    kit.store.flush_cache()
    assert seen == [first, second]
    assert where() == third


@pytest.mark.parametrize("shape", CACHED_SHAPES, ids=str)
def test_context_is_restored_when_forwarding_fails(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape)

    def fail(*_: object) -> None:
        raise ProcessingError("downstream")

    kit.store.set_flush_listener(fail, send_old_values=False)
    kit.put("a", 1, 10)
    kit.at(77)
    with pytest.raises(ProcessingError):
        kit.store.flush_cache()
    assert kit.context.timestamp == 77


@pytest.mark.parametrize("shape", CACHED_SHAPES, ids=str)
def test_plain_and_timestamped_stores_flush_without_a_listener(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape)
    kit.put("a", 1, 10)
    kit.put("b", None, 20)
    kit.store.flush_cache()
    assert kit.logged == [Logged(b"a", (1).to_bytes(8, "big"), 10), Logged(b"b", None, 20)]


# -- circles -----------------------------------------------------------------------------------------------------


def test_write_during_the_flush_is_flushed_too(make_kit: Callable[..., Kit]) -> None:
    for shape in CACHED_SHAPES:
        kit = make_kit(shape)
        forwarded: list[Any] = []

        def downstream(key: str, new: int, *_: object, kit: Kit = kit, forwarded: list[Any] = forwarded) -> None:
            forwarded.append((key, new))
            if new < 3:
                kit.put(key, new + 1)

        kit.store.set_flush_listener(downstream, send_old_values=False)
        kit.put("a", 1)
        flush_until_clean([kit.store])
        assert forwarded == [("a", 1), ("a", 2), ("a", 3)]
        assert len(kit.logged) == 3
        assert kit.store.flush_cache() == 0


def test_earlier_store_that_a_later_one_fills_is_flushed_before_the_commit(make_kit: Callable[..., Kit]) -> None:
    first, second = make_kit(CACHED_TIMESTAMPED), make_kit(CACHED_TIMESTAMPED)
    first.store.set_flush_listener(lambda *_: None, send_old_values=False)
    second.store.set_flush_listener(lambda key, new, *_: first.put(f"back-{key}", new), send_old_values=False)
    second.put("a", 1)
    flush_until_clean([first.store, second.store])
    assert [record.key for record in first.logged] == [b"back-a"]
    assert first.store.content.read(b"back-a") is not None


@pytest.mark.parametrize("cache_bytes", [10_000, 100])
def test_caches_that_fill_each_other_without_end_are_refused_by_name(
    make_kit: Callable[..., Kit], cache_bytes: int
) -> None:
    kit = make_kit(CACHED_TIMESTAMPED, cache_bytes=cache_bytes)
    store: Any = kit.store
    store.set_flush_listener(lambda key, new, *_: store.put_value(key, new + 1, 1), send_old_values=False)
    kit.put("a", 1)
    kit.put("b", 1)
    with pytest.raises(StateError, match=r"caches of s fill each other endlessly.*caching=False"):
        flush_until_clean([store])
    assert store.get("a").value > 1


# -- failures ----------------------------------------------------------------------------------------------------


class Flaky:
    """A listener that records its calls, and fails for some keys a given number of times."""

    def __init__(self, **failures: int) -> None:
        self.failures = failures
        self.got: list[tuple[Any, Any, Any, int]] = []

    def __call__(self, key: Any, new: Any, old: Any, timestamp_ms: int) -> None:
        if self.failures.get(key, 0):
            self.failures[key] -= 1
            raise BrokerUnavailableError("the queue is full")
        self.got.append((key, new, old, timestamp_ms))


@pytest.mark.parametrize("shape", CACHED_SHAPES, ids=str)
def test_entry_whose_forwarding_failed_is_forwarded_by_the_next_flush(
    shape: Shape, make_kit: Callable[..., Kit]
) -> None:
    kit = make_kit(shape)
    kit.store.set_flush_listener(listener := Flaky(b=2), send_old_values=True)
    for at, key in enumerate("abc"):
        kit.put(key, 1, at)
    for _ in range(2):
        with pytest.raises(BrokerUnavailableError):
            kit.store.flush_cache()
        assert [change[0] for change in listener.got] == ["a"]
        assert kit.bare(kit.store.peek("b")) == 1
    kit.store.flush_cache()
    assert listener.got == [("a", 1, None, 0), ("b", 1, None, 1), ("c", 1, None, 2)]
    assert kit.store.flush_cache() == 0


@pytest.mark.parametrize("shape", CACHED_SHAPES, ids=str)
@pytest.mark.parametrize("newer", [2, 3, None])
def test_old_value_of_a_repeated_flush_is_the_one_that_was_forwarded_last(
    shape: Shape, newer: int | None, make_kit: Callable[..., Kit]
) -> None:
    kit = make_kit(shape)
    kit.store.set_flush_listener(listener := Flaky(), send_old_values=True)
    kit.put("a", 1, 10)
    kit.store.flush_cache()
    kit.put("a", 2, 20)
    listener.failures["a"] = 1
    with pytest.raises(BrokerUnavailableError):
        kit.store.flush_cache()
    kit.put("a", newer, 30)
    kit.store.flush_cache()
    kit.put("a", 9, 40)
    kit.store.flush_cache()
    assert listener.got == [("a", 1, None, 10), ("a", newer, 1, 30), ("a", 9, newer, 40)]


@pytest.mark.parametrize("shape", CACHED_SHAPES, ids=str)
@pytest.mark.parametrize("fails", ["listener", "log"])
def test_deletion_is_logged_and_forwarded_although_its_first_flush_failed(
    shape: Shape, fails: str, make_kit: Callable[..., Kit]
) -> None:
    kit = make_kit(shape)
    kit.store.set_flush_listener(listener := Flaky(), send_old_values=True)
    kit.put("a", 1, 10)
    kit.store.flush_cache()
    kit.put("a", None, 20)
    if fails == "listener":
        listener.failures["a"] = 1
    else:
        unavailable = BrokerUnavailableError("the queue is full")
        kit.store.rebind(log=lambda *_: (_ for _ in ()).throw(unavailable), context=kit.context)
    with pytest.raises(BrokerUnavailableError):
        kit.store.flush_cache()
    kit.store.rebind(log=kit.log, context=kit.context)
    kit.store.flush_cache()
    assert listener.got == [("a", 1, None, 10), ("a", None, 1, 20)]
    assert kit.logged[-1] == Logged(b"a", None, 20)
    assert kit.store.get("a") is None


@pytest.mark.parametrize("shape", CACHED_SHAPES, ids=str)
def test_value_that_was_perhaps_forwarded_is_taken_back_when_it_is_deleted_before_the_next_flush(
    shape: Shape, make_kit: Callable[..., Kit]
) -> None:
    kit = make_kit(shape)
    kit.store.set_flush_listener(listener := Flaky(a=1), send_old_values=True)
    kit.put("a", 1, 10)
    with pytest.raises(BrokerUnavailableError):
        kit.store.flush_cache()
    kit.put("a", None, 20)
    kit.store.flush_cache()
    assert listener.got == [("a", None, None, 20)]
    assert kit.store.content.read(b"a") is None
    assert kit.logged[-1] == Logged(b"a", None, 20)


def test_clear_cache_forgets_what_was_not_flushed(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(CACHED_TIMESTAMPED)
    kit.put("a", 1)
    kit.store.flush_cache()
    kit.put("a", 2)
    kit.put("b", 2)
    kit.store.clear_cache()
    assert kit.pairs(kit.store.all()) == [("a", 1)]
    kit.store.flush_cache()
    assert len(kit.logged) == 1


def test_subclasses_of_the_plain_type_are_kept_as_the_plain_type(make_kit: Callable[..., Kit]) -> None:
    class Text(str):
        __slots__ = ()

    for shape in CACHED_SHAPES:
        kit = make_kit(shape, value_serde=STRING)
        kit.put(Text("k"), Text("v"))
        assert type(kit.bare(kit.store.get("k"))) is str
        assert isinstance(kit.store, (CachedPlainStore, CachedTimestampedStore))
        assert [type(at) for at in kit.store._entries] == [str]  # a read may convert them
