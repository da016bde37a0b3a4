"""Murmur2 on columns: the same as key by key, for every input."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.spark.partitioning import murmur2_column, partition_column
from streams_py.topology.partitioning import murmur2, partition_for

# Kafka's own examples (org.apache.kafka.common.utils.UtilsTest), and the empty key.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_column_agrees_with_kafkas_examples() -> None:
    assert murmur2_column(pa.array(list(KNOWN))).tolist() == list(KNOWN.values())


@given(st.lists(st.binary(max_size=40)))
def test_column_agrees_with_the_scalar(keys: list[bytes]) -> None:
    assert murmur2_column(pa.array(keys, pa.binary())).tolist() == [murmur2(key) for key in keys]


@given(st.lists(st.binary(max_size=12), min_size=1), st.data())
def test_sliced_column_agrees_with_the_scalar(keys: list[bytes], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(keys)))
    length = data.draw(st.integers(0, len(keys) - start))
    sliced = pa.array(keys, pa.binary()).slice(start, length)
    assert murmur2_column(sliced).tolist() == [murmur2(key) for key in keys[start : start + length]]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_many_random_keys_of_all_lengths_agree(kind: pa.DataType) -> None:
    source = random.Random(7)
    keys = [source.randbytes(source.choice([0, 1, 3, 8, 17, 1024, 1025, 3000])) for _ in range(2_000)]
    assert murmur2_column(pa.array(keys, kind)).tolist() == [murmur2(key) for key in keys]


def test_text_is_hashed_as_utf8() -> None:
    assert murmur2_column(pa.array(["größe"])).tolist() == [murmur2("größe".encode())]
    assert murmur2_column(pa.array(["größe"], pa.large_string())).tolist() == [murmur2("größe".encode())]


def test_chunks_are_joined() -> None:
    keys = pa.chunked_array([[b"a", b"b"], [], [b"c"]], pa.binary())
    assert murmur2_column(keys).tolist() == [murmur2(b"a"), murmur2(b"b"), murmur2(b"c")]
    assert murmur2_column(pa.chunked_array([], pa.binary())).tolist() == []


@pytest.mark.parametrize("count", [1, 2, 7, 1000, 2**31 - 1])
def test_partition_is_kafkas(count: int) -> None:
    keys = [b"%d" % number for number in range(500)]
    assert partition_column(pa.array(keys), count).tolist() == [partition_for(key, count) for key in keys]


def test_null_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="1 keys are null"):
        murmur2_column(pa.array([b"a", None]))


def test_other_types_are_refused() -> None:
    for wrong in (pa.array([1]), [b"a"]):
        with pytest.raises(TypeError, match="binary keys"):
            murmur2_column(wrong)
    with pytest.raises(ValueError, match="must be at least 1"):
        partition_column(pa.array([b"a"]), 0)
