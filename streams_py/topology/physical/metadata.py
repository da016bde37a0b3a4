"""Facts about a built topology for the other packages: sub-topologies, topics, groups.

These are plain values. The leader derives repartition counts, tasks and internal topics from them, members derive
subscriptions. Topic names are *full* here (``<application.id>-<name>`` for internal topics).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class InternalTopicKind(Enum):
    """The purpose of an internal topic."""

    REPARTITION = "repartition"
    CHANGELOG = "changelog"


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """An internal topic as the leader creates it.

    ``partitions`` is the count set by the user, or None if the leader derives it. ``config`` is the complete topic
    configuration (library defaults, then ``topic.`` settings, then settings of the store), with values as text.
    """

    name: str
    kind: InternalTopicKind
    partitions: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubtopologyTopics:
    """Topics and stores of one sub-topology (Kafka Streams' ``TopicsInfo``).

    ``source_topics`` includes the repartition topics that it reads, but never global topics. ``source_changelogs`` are
    source topics that also serve as changelogs (optimised source tables); they are not in ``changelogs``.
    """

    source_topics: frozenset[str]
    sink_topics: frozenset[str]
    repartition_sources: Mapping[str, InternalTopic]
    changelogs: Mapping[str, InternalTopic]
    source_changelogs: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()

    @property
    def is_logged(self) -> bool:
        """Whether its tasks have at least one changelog ("logged-stateful")."""
        return bool(self.changelogs or self.source_changelogs)

    @property
    def changelog_topics(self) -> frozenset[str]:
        """All changelog topics, including source topics that serve as changelogs."""
        return frozenset(self.changelogs) | self.source_changelogs


@dataclass(frozen=True, slots=True)
class TopologyMetadata:
    """The sub-topologies with tasks, by id, and the co-partition groups (sets of full topic names).

    ``copartitioned_by`` has, for each group, the nodes that join its topics, with their lines of the program (None if
    unknown).
    """

    subtopologies: Mapping[int, SubtopologyTopics]
    copartition_groups: tuple[frozenset[str], ...] = ()
    copartitioned_by: Mapping[frozenset[str], Mapping[str, str | None]] = field(default_factory=dict, compare=False)

    @property
    def source_topics(self) -> frozenset[str]:
        """All source topics of all sub-topologies, to which a member subscribes."""
        return frozenset().union(*(sub.source_topics for sub in self.subtopologies.values()))

    @property
    def internal_topics(self) -> frozenset[str]:
        """Topics that the application creates: repartition topics, and changelogs that are not sources."""
        subs = self.subtopologies.values()
        return frozenset().union(*(sub.repartition_sources.keys() | sub.changelogs.keys() for sub in subs))

    @property
    def topics(self) -> frozenset[str]:
        """All topics that tasks read or write."""
        subs = self.subtopologies.values()
        return frozenset().union(*(sub.source_topics | sub.sink_topics | sub.changelogs.keys() for sub in subs))
