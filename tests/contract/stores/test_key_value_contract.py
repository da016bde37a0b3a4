"""What every key-value store does, whatever it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_py.errors import InvalidStateStoreError, SerializationError
from streams_py.serdes import BYTES, INT64, JSON, STRING, list_of
from streams_py.topology.declare.stores import StoreKind, ValueAndTimestamp
from tests.support.contract.store_kit import LOGGED_SHAPES, SHAPES, Kit, Logged, Shape


@pytest.fixture(params=SHAPES, ids=str)
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(request.param, str(tmp_path))
    yield kit
    kit.close()


def test_get_gives_what_was_put_last(kit: Kit) -> None:
    assert kit.store.get("a") is None
    kit.put("a", 1, 10)
    kit.put("a", 2, 20)
    assert kit.store.get("a") == kit.stored(2, 20)
    assert kit.store.get("b") is None


def test_get_gives_a_value_with_its_timestamp_when_the_store_keeps_one(kit: Kit) -> None:
    kit.put("a", 1, 10)
    kit.store.flush_cache()
    found = kit.store.get("a")
    assert isinstance(found, ValueAndTimestamp) == kit.shape.timestamped
    assert found == kit.stored(1, 10)


def test_put_none_deletes(kit: Kit) -> None:
    kit.put("a", 1)
    kit.store.flush_cache()
    kit.put("a", None)
    assert kit.store.get("a") is None
    assert list(kit.store.all()) == []
    kit.store.flush_cache()
    assert kit.store.get("a") is None
    assert list(kit.store.all()) == []


def test_delete_gives_what_was_there(kit: Kit) -> None:
    kit.put("a", 1, 10)
    assert kit.store.delete("a") == kit.stored(1, 10)
    assert kit.store.delete("a") is None


def test_put_if_absent_stores_only_when_nothing_is_there(kit: Kit) -> None:
    assert kit.store.put_if_absent("a", kit.stored(1, 10)) is None
    assert kit.store.put_if_absent("a", kit.stored(2, 20)) == kit.stored(1, 10)
    assert kit.store.get("a") == kit.stored(1, 10)


def test_put_all_stores_each_and_deletes_none(kit: Kit) -> None:
    kit.put("b", 5)
    kit.store.put_all([("a", kit.stored(1, 10)), ("b", None), ("c", kit.stored(3, 30))])
    assert kit.pairs(kit.store.all()) == [("a", 1), ("c", 3)]


def test_ranges_include_both_ends_and_none_is_an_open_end(kit: Kit) -> None:
    for i, key in enumerate(["d", "b", "a", "c", "aa"]):
        kit.put(key, i)
        if key == "a":
            kit.store.flush_cache()  # some below, some in the cache
    keys = ["a", "aa", "b", "c", "d"]
    store = kit.store
    assert [key for key, _ in store.all()] == keys
    assert [key for key, _ in store.reverse_all()] == keys[::-1]
    assert [key for key, _ in store.range("aa", "c")] == ["aa", "b", "c"]
    assert [key for key, _ in store.reverse_range("aa", "c")] == ["c", "b", "aa"]
    assert [key for key, _ in store.range(None, "b")] == ["a", "aa", "b"]
    assert [key for key, _ in store.range("bb", None)] == ["c", "d"]
    assert [key for key, _ in store.reverse_range("bb", None)] == ["d", "c"]
    assert [key for key, _ in store.range(None, None)] == keys
    assert [key for key, _ in store.prefix_scan(b"a")] == ["a", "aa"]
    assert [key for key, _ in store.prefix_scan(b"")] == keys


def test_range_is_empty_with_a_warning_when_it_is_upside_down(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    kit.put("b", 1)
    assert list(kit.store.range("c", "a")) == []
    assert list(kit.store.reverse_range("c", "a")) == []
    assert "its first key is greater than its last" in caplog.text


def test_ranges_show_the_latest_value_when_it_is_above_an_older_one(kit: Kit) -> None:
    for key in "abcd":
        kit.put(key, 1)
    kit.store.flush_cache()
    kit.put("a", 2)
    kit.put("c", None)
    kit.put("d", 2)
    assert kit.pairs(kit.store.all()) == [("a", 2), ("b", 1), ("d", 2)]
    assert kit.pairs(kit.store.reverse_all()) == [("d", 2), ("b", 1), ("a", 2)]


def test_iterator_is_a_snapshot_when_the_store_changes_meanwhile(kit: Kit) -> None:
    for key in "abc":
        kit.put(key, 1)
    kit.store.flush_cache()
    kit.put("d", 1)
    entries = kit.store.all()
    assert kit.pairs(iter([next(entries)])) == [("a", 1)]
    kit.put("b", 2)
    kit.put("c", None)
    kit.put("bb", 3)
    kit.store.flush_cache()
    assert kit.pairs(entries) == [("b", 1), ("c", 1), ("d", 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_order_is_that_of_unsigned_key_bytes(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape, key_serde=BYTES)
    keys = [b"", b"\x00", b"\x00\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00", b"\xff\xff"]
    for key in reversed(keys):
        kit.put(key, 1)
    assert [key for key, _ in kit.store.all()] == keys
    assert [key for key, _ in kit.store.prefix_scan(b"\xff")] == keys[5:]
    assert [key for key, _ in kit.store.range(b"\x00", b"\xff")] == keys[1:6]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_negative_numbers_come_last(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape, key_serde=INT64)
    for key in (-1, 0, 5, -7):
        kit.put(key, 1)
    assert [key for key, _ in kit.store.all()] == [0, 5, -7, -1]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_that_can_change_are_copies(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape, key_serde=JSON, value_serde=JSON)
    mine = {"n": 1}
    kit.put({"k": 1, "l": 2}, mine)
    mine["n"] = 2
    found = kit.bare(kit.store.get({"l": 2, "k": 1}))
    assert found == {"n": 1}
    found["n"] = 3
    assert kit.bare(kit.store.get({"k": 1, "l": 2})) == {"n": 1}
    kit.store.flush_cache()
    assert kit.pairs(kit.store.all()) == [({"k": 1, "l": 2}, {"n": 1})]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("value", [True, "1", 1.5, 2**63], ids=repr)
def test_put_names_the_serde_when_the_value_does_not_fit(
    shape: Shape, value: object, make_kit: Callable[..., Kit]
) -> None:
    kit = make_kit(shape)

    def put_and_flush() -> None:
        kit.put("a", value)
        kit.store.flush_cache()

    with pytest.raises(SerializationError, match="value of topic 'app-s-changelog': serde 'int64'"):
        put_and_flush()
    assert kit.logged == []
    if not kit.shape.caching:
        assert kit.store.get("a") is None


def test_key_that_does_not_fit_is_named_by_every_call(kit: Kit) -> None:
    store: Any = kit.store
    for call in (
        lambda: store.get(1),
        lambda: kit.put(1, 1),
        lambda: store.delete(1),
        lambda: store.range(1, None),
        lambda: store.put_if_absent(1, kit.stored(1, 1)),
    ):
        with pytest.raises(SerializationError, match="key of topic 'app-s-changelog': serde 'string'"):
            call()


def test_stored_bytes_that_do_not_fit_are_named(kit: Kit) -> None:
    kit.store.restore([(b"a", b"short", 1)])
    with pytest.raises(SerializationError, match="value of topic 'app-s-changelog': serde 'int64' cannot decode"):
        kit.store.get("a")
    with pytest.raises(SerializationError, match="cannot decode"):
        list(kit.store.all())


def test_closed_store_says_so_whatever_is_asked(kit: Kit) -> None:
    kit.put("a", 1)
    store: Any = kit.store
    kit.close()
    assert not store.is_open
    for call in (
        lambda: store.get("a"),
        lambda: store.peek("a"),
        lambda: kit.put("a", 1),
        lambda: kit.put("a", None),
        lambda: store.delete("a"),
        store.all,
        lambda: store.range("b", "a"),
        lambda: store.prefix_scan(b"a"),
        store.approximate_num_entries,
        lambda: store.restore([]),
        store.clear,
    ):
        with pytest.raises(InvalidStateStoreError, match="closed"):
            call()
    store.close()
    assert kit.cache.used_bytes == 0


def test_iterator_fails_or_goes_on_when_the_store_is_closed_meanwhile(kit: Kit) -> None:
    for key in "abc":
        kit.put(key, 1)
    kit.store.flush_cache()
    entries = kit.store.all()
    next(entries)
    kit.close()
    try:
        assert [key for key, _ in entries] == ["b", "c"]
    except InvalidStateStoreError as error:
        assert "closed" in str(error)  # noqa: PT017  # both endings are right


def test_store_can_be_opened_again_when_an_iterator_was_left_open(kit: Kit) -> None:
    kit.put("a", 1)
    kit.store.flush_cache()
    kit.commit()
    entries = kit.store.all()
    kit.close()
    kit.open()
    assert kit.pairs(kit.store.all()) == ([("a", 1)] if kit.shape.persistent else [])
    del entries


def test_clear_removes_everything_and_logs_nothing(kit: Kit) -> None:
    kit.put("a", 1)
    kit.store.flush_cache()
    kit.put("b", 1)
    kit.logged.clear()
    kit.store.clear()
    assert list(kit.store.all()) == []
    assert kit.store.get("a") is None
    assert kit.logged == []
    kit.put("c", 1)
    kit.store.flush_cache()
    assert kit.pairs(kit.store.all()) == [("c", 1)]


def test_approximate_num_entries_counts_what_is_flushed(kit: Kit) -> None:
    for key in "abc":
        kit.put(key, 1)
    kit.store.flush_cache()
    assert kit.store.approximate_num_entries() == 3


def test_name_and_persistence_are_those_of_the_declaration(kit: Kit) -> None:
    assert kit.store.name == "s"
    assert kit.store.persistent == kit.shape.persistent
    assert kit.store.is_open
    assert kit.store.is_cached == kit.shape.caching


# -- changelog ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", LOGGED_SHAPES, ids=str)
def test_every_change_is_logged(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape)
    kit.put("a", 1, 10)
    kit.store.flush_cache()
    kit.put("b", 2, 20)
    kit.store.flush_cache()
    kit.put("a", None, 30)
    kit.store.flush_cache()
    kit.put("x", None, 40)  # also when there was nothing
    kit.store.delete("y")
    kit.store.flush_cache()
    kit.store.put_if_absent("b", kit.stored(9, 50))
    kit.store.flush_cache()
    one, two = (1).to_bytes(8, "big"), (2).to_bytes(8, "big")
    put = [Logged(b"a", one, 10), Logged(b"b", two, 20)]
    assert kit.logged == [*put, *(Logged(key, None, at) for key, at in ((b"a", 30), (b"x", 40), (b"y", 40)))]


@pytest.mark.parametrize("shape", LOGGED_SHAPES, ids=str)
def test_value_is_logged_with_its_own_timestamp_and_a_deletion_with_the_records(
    shape: Shape, make_kit: Callable[..., Kit]
) -> None:
    kit = make_kit(shape)
    kit.at(7)
    kit.store.put("a", kit.stored(1, 99))
    kit.store.flush_cache()
    kit.store.put("a", None)
    kit.store.flush_cache()
    assert [record.timestamp_ms for record in kit.logged] == [99 if shape.timestamped else 7, 7]


def test_nothing_is_logged_without_logging(make_kit: Callable[..., Kit]) -> None:
    for shape in SHAPES:
        if not shape.logging:
            kit = make_kit(shape)
            kit.put("a", 1)
            kit.put("a", None)
            kit.put("b", 1)
            kit.store.flush_cache()
            assert kit.logged == []


@pytest.mark.parametrize("shape", LOGGED_SHAPES, ids=str)
def test_restored_store_equals_the_logged_one(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit, copy = make_kit(shape), make_kit(shape)
    for i in range(300):
        kit.put(f"key-{i * 7 % 50}", None if i % 5 == 0 else i, i)
        if i % 40 == 0:
            kit.store.flush_cache()
    kit.store.flush_cache()
    assert copy.store.restore(kit.logged) == len(kit.logged)
    assert list(copy.store.all()) == list(kit.store.all())
    assert copy.logged == []


def test_restore_skips_records_without_a_key(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    records: list[Any] = [(b"a", bytes(8), 1), (None, bytes(8), 2), (b"b", None, 3)]
    assert kit.store.restore(records) == 2
    assert kit.pairs(kit.store.all()) == [("a", 0)]
    assert "without a key" in caplog.text


def test_restore_takes_more_than_one_batch(kit: Kit) -> None:
    kit.store.restore((f"{i:05}".encode(), i.to_bytes(8, "big"), i) for i in range(2500))
    assert kit.pairs(kit.store.range("02499", None)) == [("02499", 2499)]
    assert sum(1 for _ in kit.store.all()) == 2500


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.persistent], ids=str)
def test_flushed_content_is_there_after_a_restart(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape)
    kit.put("a", 1, 10)
    kit.put("b", 2, 20)
    kit.put("b", None, 30)
    kit.store.flush_cache()
    kit.commit()
    kit.close()
    kit.open()
    assert list(kit.store.all()) == [("a", kit.stored(1, 10))]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_list_values_round_trip(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape, value_serde=list_of(STRING))
    kit.put("a", ["x", None])
    kit.store.flush_cache()
    assert kit.bare(kit.store.get("a")) == ["x", None]


# -- timestamped only --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.timestamped], ids=str)
def test_put_value_is_put_in_parts(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape)
    store: Any = kit.store
    store.put_value("a", 1, 10)
    assert store.get("a") == ValueAndTimestamp(1, 10)
    assert store.get_parts("a") == (1, 10)
    assert store.get_parts("b") is None
    store.flush_cache()
    assert store.get_parts("a") == (1, 10)
    store.put_value("a", None, 20)
    assert store.get("a") is None
    store.put("a", ValueAndTimestamp(None, 30))
    assert store.get("a") is None
    with pytest.raises(SerializationError):
        store.get_parts(5)


@pytest.mark.parametrize("value_serde", [INT64, JSON], ids=["numbers", "json"])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.timestamped], ids=str)
def test_updater_does_what_get_and_put_do(shape: Shape, value_serde: Any, make_kit: Callable[..., Kit]) -> None:
    store: Any = make_kit(shape, value_serde=value_serde).store
    count = store.updater(lambda: 0, lambda key, value, old: old + value if value else None)
    assert count("a", 1, 10) == (1, 0, 10)
    assert count("a", 2, 5) == (3, 1, 10)
    assert store.get("a") == ValueAndTimestamp(3, 10)
    store.flush_cache()
    assert count("a", 4, 30) == (7, 3, 30)
    assert count("a", 0, 20) == (None, 7, 30)
    assert store.get("a") is None
    latest = store.updater(None, lambda key, value, old: max(value, old))
    assert latest("b", 3, 1) == (3, None, 1)
    assert latest("b", 2, 2) == (3, 3, 2)
    assert store.get("b") == ValueAndTimestamp(3, 2)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.timestamped], ids=str)
def test_updater_says_what_does_not_fit_and_changes_nothing(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    store: Any = make_kit(shape).store
    add = store.updater(lambda: 0, lambda key, value, old: old + value)
    add("a", 1, 1)
    with pytest.raises(SerializationError, match=r"key.*int"):
        add(5, 1, 2)
    with pytest.raises(SerializationError, match=r"value.*float"):
        add("a", 0.5, 2)
    with pytest.raises(TypeError, match="unsupported operand"):
        add("a", "text", 2)
    assert store.get("a") == ValueAndTimestamp(1, 1)
    store.close()
    with pytest.raises(InvalidStateStoreError):
        add("a", 1, 2)


@pytest.mark.parametrize("persistent", [False, True])
def test_timestamp_stands_in_front_of_the_value_in_the_store_only(
    persistent: bool, make_kit: Callable[..., Kit]
) -> None:
    kit = make_kit(Shape(StoreKind.TIMESTAMPED_KEY_VALUE, persistent, caching=False))
    kit.put("k", 3, 0x0A)
    assert kit.store.content.read(b"k") == bytes.fromhex("000000000000000a" + "0000000000000003")
    assert kit.logged == [Logged(b"k", bytes.fromhex("0000000000000003"), 0x0A)]


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.timestamped], ids=str)
def test_timestamp_zero_and_negative_are_kept(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape)
    kit.put("a", 1, 0)
    kit.put("b", 1, -5)
    kit.store.flush_cache()
    assert [stored.timestamp for _, stored in kit.store.all()] == [0, -5]
