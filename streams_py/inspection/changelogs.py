"""The changelog topics of each sub-topology. The protocol does not carry this information.

The names of changelog topics start with the group's name, and a changelog topic has as many partitions as its
sub-topology has tasks. If several sub-topologies match, the repartition topic of the same store decides, because Kafka
Streams names both topics after the store. Topics that still match several sub-topologies are guessed in the order of
the program, in which sub-topologies and stores are numbered. Guesses are marked as such.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from streams_py.inspection.view import GroupView, Subtopology
from streams_py.topology.topic_owners import Owner, owners_of

_CHANGELOG: Final = "-changelog"
_REPARTITION: Final = "-repartition"
_NUMBER: Final = re.compile(r"\d{10}")


@dataclass(frozen=True, slots=True)
class Changelogs:
    """Changelog topics by sub-topology, in ascending order.

    Topics in ``guessed`` may belong to another sub-topology.
    """

    certain: Mapping[Subtopology, tuple[str, ...]] = field(default_factory=dict)
    guessed: Mapping[Subtopology, tuple[str, ...]] = field(default_factory=dict)

    def of(self, subtopology: Subtopology) -> tuple[str, ...]:
        """Return the certain and the guessed topics together, in ascending order."""
        return tuple(sorted((*self.certain.get(subtopology, ()), *self.guessed.get(subtopology, ()))))


def changelogs_of(view: GroupView, partition_counts: Mapping[str, int], *, groups: Collection[str] = ()) -> Changelogs:
    """Return the group's changelog topics.

    Args:
        view: The group.
        partition_counts: Partition counts of all topics.
        groups: Names of all visible groups. A topic can belong to another group whose longer name starts with this
            group's name.
    """
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
    ambiguous: dict[str, list[Subtopology]] = {}
    for topic in _own_changelogs(view.group, partition_counts, groups):
        fitting = sorted(sub for sub, size in sizes.items() if size == partition_counts[topic])
        fitting = [sub for sub in fitting if sub in stateful] or fitting
        named = [sub for sub in fitting if topic.removesuffix(_CHANGELOG) + _REPARTITION in reads[sub]]
        if len(named or fitting) == 1:
            certain[(named or fitting)[0]].append(topic)
        elif fitting:
            ambiguous[topic] = fitting
    return Changelogs({sub: tuple(topics) for sub, topics in certain.items()}, _guess(ambiguous, stateful, certain))


def _own_changelogs(group: str, topics: Iterable[str], groups: Collection[str]) -> list[str]:
    owners = owners_of(group, topics, groups=groups)
    return sorted(
        topic for topic, found in owners.items() if topic.endswith(_CHANGELOG) and found.owner is not Owner.OTHER
    )


def _guess(
    ambiguous: Mapping[str, list[Subtopology]],
    stateful: Collection[Subtopology],
    certain: Mapping[Subtopology, Collection[str]],
) -> dict[Subtopology, tuple[str, ...]]:
    """Assign ambiguous topics to sub-topologies.

    Each stateful sub-topology without a changelog gets one topic, in order. The last sub-topology that matches gets the
    remaining topics.
    """
    found: defaultdict[Subtopology, list[str]] = defaultdict(list)
    for topic in sorted(ambiguous, key=_program_order):
        fitting = ambiguous[topic]
        empty = [sub for sub in fitting if sub in stateful and not certain.get(sub) and not found[sub]]
        found[(empty or fitting[-1:])[0]].append(topic)
    return {sub: tuple(topics) for sub, topics in found.items() if topics}


def _program_order(topic: str) -> tuple[str, str]:
    numbers = _NUMBER.findall(topic)
    return numbers[-1] if numbers else "", topic
