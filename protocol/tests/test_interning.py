from __future__ import annotations

from streams_protocol import TaskId
from streams_protocol.interning import INTERNED_TASKS_MAX, plain_task_ids


def key(subtopology: int, partition: int) -> int:
    halves = subtopology.to_bytes(4, "big", signed=True) + partition.to_bytes(4, "big", signed=True)
    return int.from_bytes(halves, "big", signed=True)


def test_equal_ids_are_one_object() -> None:
    first, second = plain_task_ids([key(3, 4), key(3, 4)])
    assert first == TaskId(3, 4)
    assert first is second


def test_every_pair_of_numbers_is_read_with_its_signs() -> None:
    edges = [-(2**31), -1, 0, 1, 2**31 - 1]
    tasks = [TaskId(subtopology, partition) for subtopology in edges for partition in edges]
    assert list(plain_task_ids(key(task.subtopology, task.partition) for task in tasks)) == tasks


def test_ids_are_right_when_the_table_is_full() -> None:
    keys = [key(77, partition) for partition in range(INTERNED_TASKS_MAX + 10)]
    assert list(plain_task_ids(keys)) == [TaskId(77, partition) for partition in range(INTERNED_TASKS_MAX + 10)]
    assert list(plain_task_ids(keys[-1:])) == [TaskId(77, INTERNED_TASKS_MAX + 9)]
