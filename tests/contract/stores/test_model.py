"""Every store behaves like a dict, and its changelog like the dict's history."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams_py.serdes import BYTES, INT64, JSON
from tests.support.contract.store_kit import SHAPES, Kit, Shape

KEYS = st.binary(max_size=2) | st.sampled_from([b"\xff", b"\xff\xff", b"\x00"])
VALUES = st.none() | st.integers(0, 99)

STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("put_if_absent"), KEYS, st.integers(0, 99)),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("range"), st.none() | KEYS, st.none() | KEYS),
    st.tuples(st.just("prefix"), KEYS),
    st.tuples(st.just("flush_cache")),
    st.tuples(st.just("commit")),
    st.tuples(st.just("shrink"), st.integers(1, 400)),
    st.tuples(st.just("reopen")),
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("value_serde", [INT64, JSON], ids=lambda serde: serde.name)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=40))
def test_store_behaves_like_a_dict(shape: Shape, value_serde: Any, steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        kit = Kit(shape, directory, key_serde=BYTES, value_serde=value_serde)
        try:
            model: dict[bytes, int] = {}
            for now, step in enumerate(steps):
                kit.at(now)
                take_step(kit, model, step)
            check_everything(kit, model)
        finally:
            kit.close()


def take_step(kit: Kit, model: dict[bytes, int], step: Any) -> None:
    store = kit.store
    match step:
        case ("put", key, value):
            kit.put(key, value)
            model.pop(key, None)
            if value is not None:
                model[key] = value
        case ("delete", key):
            assert kit.bare(store.delete(key)) == model.pop(key, None)
        case ("put_if_absent", key, value):
            stored = kit.stored(value, kit.context.timestamp)
            assert kit.bare(store.put_if_absent(key, stored)) == model.get(key)
            model.setdefault(key, value)
        case ("get", key):
            assert kit.bare(store.get(key)) == model.get(key)
            assert kit.bare(store.peek(key)) == model.get(key)
        case ("range", first, last):
            expected = [
                (key, model[key])
                for key in sorted(model)
                if (first is None or key >= first) and (last is None or key <= last)
            ]
            assert kit.pairs(store.range(first, last)) == expected
            assert kit.pairs(store.reverse_range(first, last)) == expected[::-1]
        case ("prefix", prefix):
            expected = [(key, model[key]) for key in sorted(model) if key.startswith(prefix)]
            assert kit.pairs(store.prefix_scan(prefix)) == expected
        case ("flush_cache",):
            store.flush_cache()
        case ("commit",):
            kit.commit()
        case ("shrink", max_bytes):
            kit.cache.max_bytes = max_bytes
        case ("reopen",):
            store.flush_cache()
            kit.commit()
            kit.close()
            kit.open()
            if not kit.shape.persistent:
                kit.store.restore(
                    (key, kit.store.codec.encode_value(value), kit.context.timestamp) for key, value in model.items()
                )


def check_everything(kit: Kit, model: dict[bytes, int]) -> None:
    expected = sorted(model.items())
    assert kit.pairs(kit.store.all()) == expected
    assert kit.pairs(kit.store.reverse_all()) == expected[::-1]
    kit.store.flush_cache()
    assert kit.pairs(kit.store.all()) == expected
    kit.store.clear_cache()
    assert kit.pairs(kit.store.all()) == expected
    assert kit.cache.used_bytes == 0
    if kit.shape.logging:
        folded: dict[bytes, bytes] = {}
        for key, value, _ in kit.logged:
            folded.pop(key, None)
            if value is not None:
                folded[key] = value
        assert {key: kit.store.codec.decode_value(value) for key, value in folded.items()} == model
