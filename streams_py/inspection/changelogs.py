"""Which changelog topics belong to which sub-topology: that is not on the wire.

Their names begin with the group's name, and they have as many partitions as their sub-topology has tasks. Where several
sub-topologies fit, a repartition topic of the same store tells (Kafka Streams names both after it). What is left after
that is a guess, and is called one: sub-topologies and stores are numbered in the order of the program.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from streams_py.inspection.view import GroupView, Subtopology
from streams_py.topology.topic_owners import Owner, owners_of

__all__ = ["Changelogs", "changelogs_of"]

_CHANGELOG: Final = "-changelog"
_REPARTITION: Final = "-repartition"
_NUMBER: Final = re.compile(r"\d{10}")


@dataclass(frozen=True, slots=True)
class Changelogs:
    """Sub-topology -> its changelog topics, ascending. ``guessed`` are those that might as well be another's."""

    certain: Mapping[Subtopology, tuple[str, ...]] = field(default_factory=dict)
    guessed: Mapping[Subtopology, tuple[str, ...]] = field(default_factory=dict)

    def of(self, subtopology: Subtopology) -> tuple[str, ...]:
        """The certain and the guessed ones together, ascending; empty when there are none."""
        return tuple(sorted((*self.certain.get(subtopology, ()), *self.guessed.get(subtopology, ()))))


def changelogs_of(view: GroupView, partition_counts: Mapping[str, int], *, groups: Collection[str] = ()) -> Changelogs:
    """The group's changelogs. ``partition_counts``: of all topics. ``groups``: the names of all groups, as far as they
    are known; a topic of a group whose longer name begins with this one's is not ours."""
    sizes: defaultdict[Subtopology, int] = defaultdict(int)
    stateful: set[Subtopology] = set()
    reads: defaultdict[Subtopology, set[str]] = defaultdict(set)
    for task in view.tasks:
        subtopology = task.subtopology
        sizes[subtopology] = max(sizes[subtopology], task.id.partition + 1)
        reads[subtopology].update(topic for topic, _ in task.partitions)
        if task.is_stateful:
            stateful.add(subtopology)
    certain: defaultdict[Subtopology, list[str]] = defaultdict(list)
    open_questions: dict[str, list[Subtopology]] = {}
    for topic in _own_changelogs(view.group, partition_counts, groups):
        fitting = sorted(sub for sub, size in sizes.items() if size == partition_counts[topic])
        fitting = [sub for sub in fitting if sub in stateful] or fitting
        named = [sub for sub in fitting if topic.removesuffix(_CHANGELOG) + _REPARTITION in reads[sub]]
        if len(named or fitting) == 1:
            certain[(named or fitting)[0]].append(topic)
        elif fitting:
            open_questions[topic] = fitting
    return Changelogs(
        {sub: tuple(topics) for sub, topics in certain.items()}, _guess(open_questions, stateful, certain)
    )


def _own_changelogs(group: str, topics: Iterable[str], groups: Collection[str]) -> list[str]:
    owners = owners_of(group, topics, groups=groups)
    return sorted(
        topic for topic, found in owners.items() if topic.endswith(_CHANGELOG) and found.owner is not Owner.OTHER
    )


def _guess(
    open_questions: Mapping[str, list[Subtopology]],
    stateful: Collection[Subtopology],
    certain: Mapping[Subtopology, Collection[str]],
) -> dict[Subtopology, tuple[str, ...]]:
    """Each sub-topology that must have one gets one in order; the last of those that fit gets the rest."""
    found: defaultdict[Subtopology, list[str]] = defaultdict(list)
    for topic in sorted(open_questions, key=_program_order):
        fitting = open_questions[topic]
        empty = [sub for sub in fitting if sub in stateful and not certain.get(sub) and not found[sub]]
        found[(empty or fitting[-1:])[0]].append(topic)
    return {sub: tuple(topics) for sub, topics in found.items() if topics}


def _program_order(topic: str) -> tuple[str, str]:
    numbers = _NUMBER.findall(topic)
    return numbers[-1] if numbers else "", topic
