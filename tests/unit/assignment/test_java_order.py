"""Hash codes and iteration order of Java's hash tables, with known values."""

from __future__ import annotations

import pytest

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.java_order import (
    HashSizing,
    in_hash_order,
    process_hash,
    set_copy_buckets,
    string_hash,
    table_buckets,
    task_hash,
)


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (TaskId(0, 0), 29791),
        (TaskId(0, 1), 29822),
        (TaskId(1, 0), 30752),
        (TaskId(0, 31), 30752),
        (TaskId(2, 3, "topo"), 3597816),
    ],
)
def test_task_hash_is_javas(task: TaskId, expected: int) -> None:
    assert task_hash(task) == expected


def test_string_and_process_hashes_are_javas() -> None:
    assert string_hash("zone") == 3744684
    assert string_hash("\U0001f600") == 31 * 0xD83D + 0xDE00  # two UTF-16 units
    assert process_hash(ProcessId.parse("123e4567-e89b-12d3-a456-426614174000")) == 1256478162


def test_tasks_of_a_subtopology_come_out_backwards() -> None:
    assert in_hash_order([TaskId(0, p) for p in range(3)], task_hash) == [TaskId(0, p) for p in (2, 1, 0)]


def test_colliding_keys_keep_their_insertion_order() -> None:
    assert in_hash_order(["b", "a"], lambda _key: 5) == ["b", "a"]


@pytest.mark.parametrize(("keys", "buckets"), [(12, 16), (13, 32), (24, 32), (25, 64), (48, 64), (49, 128)])
def test_table_doubles_when_more_than_three_quarters_full(keys: int, buckets: int) -> None:
    assert table_buckets(list(range(keys))) == buckets


@pytest.mark.parametrize(("keys", "buckets"), [(8, 16), (9, 32), (10, 64), (11, 64)])
def test_small_table_doubles_early_when_a_chain_gets_its_ninth_key(keys: int, buckets: int) -> None:
    assert table_buckets([0] * keys) == buckets


@pytest.mark.parametrize(
    ("size", "older", "newer"), [(3, 16, 16), (11, 16, 16), (12, 32, 16), (13, 32, 32), (24, 64, 32), (48, 128, 64)]
)
def test_copied_set_is_sized_by_the_jdk(size: int, older: int, newer: int) -> None:
    assert set_copy_buckets(size, HashSizing.JDK_18_AND_OLDER) == older
    assert set_copy_buckets(size, HashSizing.JDK_19_AND_NEWER) == newer
