"""Kafka's default partitioning rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.topology.partitioning import murmur2, partition_for


@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"", 275646681),
        (b"k", -1567496736),
        (b"21", -973932308),
        (b"abc", 479470107),
        (b"foobar", -790332482),
        (bytes.fromhex("ff807f0001"), 69563401),
    ],
)
def test_murmur2_equals_kafkas_own_samples(data: bytes, hashed: int) -> None:
    assert murmur2(data) == hashed


def test_partition_clears_the_sign_bit_when_the_hash_is_negative() -> None:
    # -1567496736 & 0x7fffffff = 579986912; abs() or a plain modulo would give another partition.
    assert partition_for(b"k", 7) == 579986912 % 7


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_partition_exists_when_the_count_is_positive(key: bytes, count: int) -> None:
    assert 0 <= partition_for(key, count) < count


@given(st.binary(max_size=40))
def test_murmur2_is_a_signed_32_bit_number(data: bytes) -> None:
    assert -(2**31) <= murmur2(data) < 2**31


def test_partition_refuses_a_topic_without_partitions() -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        partition_for(b"k", 0)
