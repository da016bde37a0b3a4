"""Sets of tasks as short text: ``"0:0-9,12;1:3"`` is ``0_0 .. 0_9 0_12 1_3``.

The text is canonical: equal sets have equal texts, so texts can be compared, hashed and diffed. Groups (one per
sub-topology) are in ascending order. So are the ranges within a group, which must not overlap or touch. A single number
is never written as a range. Any other text is refused, even if its meaning is clear, because two spellings of one set
would break comparisons.

    set   = "" | group *( ";" group )
    group = [ name "__" ] number ":" range *( "," range )
    range = number [ "-" number ]
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Final, overload

from streams_protocol import DecodeError
from streams_protocol.types import TaskId

# The limits are far above any application (Kafka supports about 200,000 partitions per cluster). They limit the memory
# that a damaged or hostile text of a few bytes ("0:0-2147483647") can use.
TASKS_MAX: Final = 1_000_000
"""Maximum number of tasks in one set."""
RECORD_TASKS_MAX: Final = 500_000
"""Maximum number of tasks in all sets of one record, because readers of records convert sets to objects."""
TEXT_BYTES_MAX: Final = 1 << 20
"""Maximum length of the text of a set, in characters."""

_NUMBER_MAX: Final = 2**31 - 1
_GROUP: Final = re.compile(r"(?:([^;:,]+)__)?(0|[1-9][0-9]{0,9})", re.ASCII)
_RANGE: Final = re.compile(r"(0|[1-9][0-9]{0,9})(?:-(0|[1-9][0-9]{0,9}))?", re.ASCII)
_SEPARATORS: Final = frozenset(";:,")


def format_task_set(tasks: Collection[TaskId]) -> str:
    """Return the canonical text of a set. Order and repetitions in ``tasks`` do not matter.

    Raises:
        ValueError: The name of a topology contains one of the separators ``; : ,``, which Kafka Streams does not allow.
    """
    groups = []
    for (name, sub), members in groupby(sorted(set(tasks)), key=lambda task: (task.name, task.subtopology)):
        if not _SEPARATORS.isdisjoint(name):
            raise ValueError(f"the topology name {name!r} contains one of ; : , and cannot be written")
        ranges = ",".join(_ranges(task.partition for task in members))
        groups.append(f"{name}__{sub}:{ranges}" if name else f"{sub}:{ranges}")
    return ";".join(groups)


def _ranges(numbers: Iterable[int]) -> Iterator[str]:
    first = last = -1
    for number in numbers:
        if first >= 0 and number == last + 1:
            last = number
            continue
        if first >= 0:
            yield str(first) if first == last else f"{first}-{last}"
        first = last = number
    if first >= 0:
        yield str(first) if first == last else f"{first}-{last}"


class TaskRanges(Sequence[TaskId]):
    """Tasks in ascending order, stored as ranges, because a text of a few bytes may contain hundreds of thousands."""

    __slots__ = ("_ends", "_ranges")

    def __init__(self, ranges: Iterable[tuple[str | None, int, int, int]]) -> None:
        self._ranges = tuple(ranges)
        self._ends = tuple(accumulate(high - low + 1 for _, _, low, high in self._ranges))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[TaskId]:
        for name, sub, low, high in self._ranges:
            for number in range(low, high + 1):
                yield TaskId(sub, number, name)

    @overload
    def __getitem__(self, at: int) -> TaskId: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[TaskId, ...]: ...

    def __getitem__(self, at: int | slice) -> TaskId | tuple[TaskId, ...]:
        if isinstance(at, slice):
            return tuple(self[number] for number in range(*at.indices(len(self))))
        index = at + len(self) if at < 0 else at
        if not 0 <= index < len(self):
            raise IndexError(f"index {at} is out of range for {len(self)} tasks")
        row = bisect_right(self._ends, index)
        name, sub, _, high = self._ranges[row]
        return TaskId(sub, high - (self._ends[row] - 1 - index), name)

    def __contains__(self, task: object) -> bool:
        return isinstance(task, TaskId) and any(
            (sub, name) == (task.subtopology, task.name or None) and low <= task.partition <= high
            for name, sub, low, high in self._ranges
        )

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TaskRanges):
            return self._ranges == other._ranges
        if isinstance(other, Sequence):
            return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"TaskRanges({_format_ranges(self._ranges)!r})"


def _format_ranges(ranges: Iterable[tuple[str | None, int, int, int]]) -> str:
    """Return the text of ascending ranges."""
    groups = []
    for (name, sub), of in groupby(ranges, key=lambda each: each[:2]):
        texts = (str(low) if low == high else f"{low}-{high}" for _, _, low, high in of)
        groups.append(f"{name}__{sub}:{','.join(texts)}" if name else f"{sub}:{','.join(texts)}")
    return ";".join(groups)


def parse_task_set(text: str) -> TaskRanges:
    """Parse the canonical text of a set.

    Raises:
        DecodeError: The text is not canonical, or exceeds a limit.
    """
    if len(text) > TEXT_BYTES_MAX:
        raise _refused(f"a task set of {len(text)} characters; the maximum is {TEXT_BYTES_MAX}", 0)
    if not text:
        return TaskRanges(())
    found: list[tuple[str | None, int, int, int]] = []
    count = 0
    previous: tuple[str, int] | None = None
    at = 0
    for part in text.split(";"):
        head, colon, ranges = part.partition(":")
        match = _GROUP.fullmatch(head)
        if match is None or not colon or int(match[2]) > _NUMBER_MAX:
            raise _refused(f"a task set with the group {part[:40]!r}, expected [name__]number:ranges", at)
        name, sub = match[1] or "", int(match[2])
        if previous is not None and (name, sub) <= previous:
            raise _refused(f"a task set whose groups are not in ascending order at {part[:40]!r}", at)
        previous = name, sub
        for low, high in _parse_ranges(ranges, at + len(head) + 1):
            count += high - low + 1
            if count > TASKS_MAX:
                raise _refused(f"a task set of more than {TASKS_MAX} tasks", at)
            found.append((name or None, sub, low, high))
        at += len(part) + 1
    return TaskRanges(found)


def _parse_ranges(text: str, at: int) -> Iterator[tuple[int, int]]:
    last = -2
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise _refused(f"a task set with the range {part[:40]!r}, expected number or number-number", at)
        low = int(match[1])
        high = low if match[2] is None else int(match[2])
        if high > _NUMBER_MAX or (match[2] is not None and high <= low):
            raise _refused(f"a task set with the range {part[:40]!r}, which is not ascending", at)
        if low <= last + 1:
            raise _refused(f"a task set whose ranges overlap, touch or are not ascending at {part[:40]!r}", at)
        yield low, high
        last = high
        at += len(part) + 1


def _refused(what: str, at: int) -> DecodeError:
    return DecodeError(what, offset=at, remedy="the text was not written by format_task_set")
