"""The partition count of each repartition topic.

Without a count from the user, a repartition topic gets the largest count among the source topics of the sub-topologies
that write to it. These may be repartition topics themselves, so counts are propagated through the graph until all are
known. Then the topics of each co-partition group (topics whose partitions are processed by the same task) must have
equal counts. Source: Kafka Streams' ``RepartitionTopics`` and ``CopartitionedTopicsEnforcer``.

Kafka visits sub-topologies in hash order and derives a count from the counts known at that moment. So a topic with one
known and one unknown upstream topic can get different counts in different JVMs. Here sub-topologies and topics are
visited in ascending order, which always gives the same count. Users who need another count set it explicitly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streams_py.errors import IllegalStateError, TaskAssignmentError, TopologyError
from streams_py.ports import PartitionInfo
from streams_py.topology.declare.caller import locate
from streams_py.topology.physical.metadata import InternalTopic, SubtopologyTopics, TopologyMetadata


def partition_counts(topics: Mapping[str, Sequence[PartitionInfo]]) -> dict[str, int]:
    """Return the partition count of each topic that has partitions."""
    return {name: len(partitions) for name, partitions in topics.items() if partitions}


def missing_source_topics(topology: TopologyMetadata, counts: Mapping[str, int]) -> list[str]:
    """Return the external source topics that do not exist, ascending."""
    wanted: set[str] = set()
    for sub in topology.subtopologies.values():
        wanted |= sub.source_topics - sub.repartition_sources.keys()
    return sorted(topic for topic in wanted if topic not in counts)


def repartition_topics(topology: TopologyMetadata) -> dict[str, InternalTopic]:
    """Return all repartition topics that a sub-topology reads, by sub-topology and name."""
    return {name: topic for _, sub in _in_order(topology) for name, topic in sorted(sub.repartition_sources.items())}


def repartition_counts(
    topology: TopologyMetadata, counts: Mapping[str, int], *, reference_behaviour: bool = False
) -> dict[str, int]:
    """Return the partition count of every repartition topic.

    ``counts`` are the counts of the external topics. Kafka Streams checks co-partition groups only if the topology has
    a repartition topic; without one it joins the wrong partitions. ``reference_behaviour`` does the same.

    Raises:
        TaskAssignmentError: a count cannot be derived.
        TopologyError: the counts of a co-partition group do not match.
    """
    topics = repartition_topics(topology)
    if not topics and reference_behaviour:
        return {}
    known = _spread(topology, topics, counts)
    for group in sorted(topology.copartition_groups, key=sorted):
        try:
            _enforce(sorted(group), topics, known, counts)
        except TopologyError as error:
            joins = topology.copartitioned_by.get(group, {})
            named = TopologyError(f"{', '.join(joins)}: {error}" if joins else str(error))
            locate(named, ", ".join(dict.fromkeys(line for line in joins.values() if line is not None)) or None)
            raise named from None
    return known


def with_repartition(
    topics: Mapping[str, tuple[PartitionInfo, ...]], repartition: Mapping[str, int]
) -> dict[str, tuple[PartitionInfo, ...]]:
    """Return the metadata with the repartition topics added, without leaders and replicas."""
    full = dict(topics)
    for name, count in repartition.items():
        full[name] = tuple(PartitionInfo(name, p, None, (), frozenset()) for p in range(count))
    return full


def _in_order(topology: TopologyMetadata) -> list[tuple[int, SubtopologyTopics]]:
    return sorted(topology.subtopologies.items())


def _spread(
    topology: TopologyMetadata, topics: Mapping[str, InternalTopic], counts: Mapping[str, int]
) -> dict[str, int]:
    writers: dict[str, list[SubtopologyTopics]] = {}
    for _, sub in _in_order(topology):
        for sink in sub.sink_topics:
            writers.setdefault(sink, []).append(sub)
    known = {name: topic.partitions for name, topic in topics.items() if topic.partitions is not None}
    unset = [name for name in topics if name not in known]
    while unset:
        waiting = []
        for name in unset:
            count = _largest_upstream(writers.get(name, ()), topics, known, counts)
            if count is None:
                waiting.append(name)
            else:
                known[name] = count
        if len(waiting) == len(unset):
            raise TaskAssignmentError(
                f"the number of partitions of {', '.join(sorted(waiting))} cannot be derived: no upstream topic has a "
                "known count. Check that every pattern source matches a topic, or set the count in repartition(...)"
            )
        unset = waiting
    return known


def _largest_upstream(
    writers: Sequence[SubtopologyTopics],
    topics: Mapping[str, InternalTopic],
    known: Mapping[str, int],
    counts: Mapping[str, int],
) -> int | None:
    candidates = []
    for sub in writers:
        for upstream in sorted(sub.source_topics):
            if upstream in topics:
                if upstream in known:
                    candidates.append(known[upstream])
            elif upstream in counts:
                candidates.append(counts[upstream])
            else:
                raise TaskAssignmentError(f"no partition count is known for source topic {upstream}; does it exist?")
    return max(candidates, default=None)


def _enforce(
    group: Sequence[str], topics: Mapping[str, InternalTopic], known: dict[str, int], counts: Mapping[str, int]
) -> None:
    """Set every repartition topic of one group to the group's count, or raise an error."""
    internal = [name for name in group if name in topics]
    external = {name: counts.get(name) for name in group if name not in topics}
    enforced = {name: known[name] for name in internal if topics[name].partitions is not None}
    if not group:
        return
    if external:
        absent = [name for name, count in external.items() if count is None]
        if absent:
            raise IllegalStateError(f"topic {absent[0]} of the co-partition group {list(group)} is not in the metadata")
        _check_equal(external, "source topics")
        required = next(count for count in external.values() if count is not None)
    elif enforced:
        _check_equal(enforced, "repartition topics with a given number of partitions")
        required = next(iter(enforced.values()))
    else:
        required = max(known[name] for name in internal)
        if required == 0:
            raise IllegalStateError(f"no partition count is known for the co-partition group {list(group)}")
    for name, count in enforced.items():
        if count != required:
            raise TopologyError(
                f"repartition topic {name} is set to {count} partitions, but the topics it is joined with "
                f"({', '.join(other for other in group if other != name)}) need {required}; set it to {required}, or "
                "remove the number"
            )
    for name in internal:
        known[name] = required


def _check_equal(counts: Mapping[str, int | None], what: str) -> None:
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
        raise TopologyError(
            f"{what} that are joined must have the same number of partitions, but: {listed}. "
            "Recreate one of them, or repartition(...) one side before the join"
        )
