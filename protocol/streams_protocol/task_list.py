"""Lists of tasks for a client: the setting ``static.tasks`` and its encoding.

An item is ``2_0`` (one task), ``2_0-5`` (partitions 0 to 5 of sub-topology 2) or ``2_*`` (all partitions). The list is
sent as the client tag ``static.tasks`` (KIP-708): sorted, with adjacent items merged into ranges, and separated by
commas. An empty list is different from no list: its client requests no tasks, and gets none.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .types import TaskId

__all__ = ["STATIC_TASKS", "TAG_VALUE_CHARS_MAX", "TaskList"]

STATIC_TASKS: Final = "static.tasks"
"""Name of the setting, and key of the client tag."""

TAG_VALUE_CHARS_MAX: Final = 8192
"""Maximum characters of the encoded list.

Other client tags are limited to 30 characters, which is too short for a list.
"""

_ITEM: Final = re.compile(r"(\d{1,10})_(?:(\d{1,10})(?:-(\d{1,10}))?|(\*))")
_NUMBER_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TaskList:
    """Ranges of partitions by sub-topology.

    A range includes both ends. Ranges are ascending and do not touch.
    """

    ranges: Mapping[int, Sequence[tuple[int, int]]]

    @classmethod
    def of(cls, items: str | Iterable[str]) -> TaskList:
        """Parse a list of items or a comma-separated string.

        Raises:
            ValueError: names the first invalid item.
        """
        found: dict[int, list[tuple[int, int]]] = {}
        for item in items.split(",") if isinstance(items, str) else items:
            text = item.strip()
            if not text and isinstance(items, str) and not items.strip():
                continue
            match = _ITEM.fullmatch(text)
            numbers = [int(part) for part in match.groups()[:3] if part is not None] if match else []
            if match is None or max(numbers) > _NUMBER_MAX or numbers[1:] != sorted(numbers[1:]):
                raise ValueError(f"{text!r} is not a valid task list item; write 2_0, 2_0-5 or 2_*")
            first, last = (0, _NUMBER_MAX) if match[4] else (numbers[1], numbers[-1])
            found.setdefault(numbers[0], []).append((first, last))
        return cls({number: _joined(found[number]) for number in sorted(found)})

    @classmethod
    def of_tag(cls, value: str) -> TaskList:
        """Parse the list that another client sent. Raises ValueError also for a list over the limit."""
        if len(value) > TAG_VALUE_CHARS_MAX:
            raise ValueError(f"{len(value)} characters; at most {TAG_VALUE_CHARS_MAX} are allowed")
        return cls.of(value)

    @classmethod
    def to_tag(cls, items: str | Iterable[str]) -> str:
        """Return the encoding of a configured list. Raises ValueError if it is invalid or too long."""
        try:
            text = str(cls.of(items))
            cls.of_tag(text)
        except ValueError as error:
            raise ValueError(f"{STATIC_TASKS}: {error}") from None
        return text

    def __str__(self) -> str:
        """Return the encoding."""
        return ",".join(
            f"{number}_{_range_text(first, last)}" for number, ranges in self.ranges.items() for first, last in ranges
        )

    def among(self, tasks: Mapping[int, Sequence[TaskId]]) -> Iterator[TaskId]:
        """Yield the listed tasks among ``tasks``.

        ``tasks`` are given by sub-topology, each in ascending order.
        """
        for number, ranges in self.ranges.items():
            own = tasks.get(number, ())
            for first, last in ranges:
                start = bisect_left(own, first, key=lambda task: task.partition)
                yield from own[start : bisect_right(own, last, start, key=lambda task: task.partition)]


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def _range_text(first: int, last: int) -> str:
    if (first, last) == (0, _NUMBER_MAX):
        return "*"
    return str(first) if first == last else f"{first}-{last}"
