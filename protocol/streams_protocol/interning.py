"""One object per task id, shared by all messages that were read.

A leader reads the same ids over and over: from every member that has state for a task, at every rebalance. Looking an
id up costs a third of making it, saves its memory, and makes later lookups in dictionaries faster, because equal ids
are then mostly the *same* object. The table stops growing at a fixed size, so that no sender can bloat it; ids that
find no room are simply made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from .types import TaskId

__all__ = ["INTERNED_TASKS_MAX", "plain_task_ids"]

INTERNED_TASKS_MAX: Final = 32_768
"""Ids in the table; some 6 MiB when it is full."""

_LOW_HALF: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000


class _Interned(dict[int, TaskId]):
    """Task ids without topology name by their 8 bytes on the wire, read as one signed integer."""

    def __missing__(self, key: int) -> TaskId:
        task = TaskId(key >> 32, (key & _LOW_HALF ^ _SIGN) - _SIGN)
        if len(self) < INTERNED_TASKS_MAX:
            self[key] = task
        return task


_interned: Final = _Interned()


def plain_task_ids(keys: Iterable[int]) -> Iterator[TaskId]:
    """The ids whose sub-topology and partition, each an int32, were read together as one int64."""
    return map(_interned.__getitem__, keys)
