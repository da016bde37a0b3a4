"""Checks what happened to every record: lost, duplicated, or out of order.

The input of each key is the sequence 0, 1, 2, ..., in one partition. The output is read from the output topic.
At-least-once allows only repetition after a crash, and even then the *first* appearances of a key's records must be in
order. An owner processes and sends in order, and the next owner starts at or before the first record that was not
acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Place = tuple[str, int]
"""(Key, number in its sequence)."""


@dataclass
class Verdict:
    """Each list in the order of keys and numbers; of ``reordered`` the records that came after a later one."""

    lost: list[Place] = field(default_factory=list)
    invented: list[Place] = field(default_factory=list)
    duplicated: list[Place] = field(default_factory=list)
    reordered: list[Place] = field(default_factory=list)

    @property
    def is_at_least_once(self) -> bool:
        return not (self.lost or self.invented or self.reordered)

    @property
    def is_exact(self) -> bool:
        return self.is_at_least_once and not self.duplicated

    def __str__(self) -> str:
        found = ((name, getattr(self, name)) for name in ("lost", "invented", "duplicated", "reordered"))
        return "; ".join(f"{len(places)} {name}: {places[:5]}" for name, places in found if places) or "exact"


def judge(written: Mapping[str, int], seen: Iterable[Place]) -> Verdict:
    """``written``: how many records each key has; ``seen``: the output, the records of each key as they lie there."""
    times: Counter[Place] = Counter()
    highest: dict[str, int] = {}
    verdict = Verdict()
    for place in seen:
        key, number = place
        times[place] += 1
        if times[place] > 1:
            continue
        if number < highest.get(key, -1):
            verdict.reordered.append(place)
        highest[key] = max(number, highest.get(key, -1))
    every = {(key, number) for key, count in written.items() for number in range(count)}
    verdict.lost = sorted(every - times.keys())
    verdict.invented = sorted(times.keys() - every)
    verdict.duplicated = sorted(place for place, count in times.items() if count > 1)
    verdict.reordered.sort()
    return verdict
