"""The order in which an uncommitted layer is read, however its keys came."""

from __future__ import annotations

import random

from streams_py.state.disk.layer import Layer


def test_a_layer_that_is_scanned_after_each_write_stays_sorted() -> None:
    chance = random.Random(1)
    layer, keys = Layer(), [chance.randbytes(8) for _ in range(5_000)]
    for number, key in enumerate(keys):
        layer.data[key] = b"x"
        if number % 40:  # now and then many at once
            assert layer.between(key, key + b"\0", reverse=False) == [(key, b"x")]
    every = sorted(keys)
    assert [key for key, _ in layer.between(None, None, reverse=False)] == every
    assert [key for key, _ in layer.between(every[7], every[-7], reverse=True)] == every[7:-7][::-1]
    assert layer.between(every[-1] + b"\0", None, reverse=False) == []
    assert layer.between(None, every[0], reverse=False) == []
