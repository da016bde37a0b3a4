"""Creates the plan of a warm start, and finds everything that prevents it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streams_protocol.types import TopicPartition
from streams_py.errors import TopologyError
from streams_py.history.bootstrap import BootstrapCluster, BootstrapPlan, Step
from streams_py.history.bootstrap_topics import START, findings_of_topics
from streams_py.history.fingerprint import fingerprint_of, marks_of
from streams_py.history.plan import HistoryPlan, circles, external_topics, plan_history, sinks_of
from streams_py.history.refuse import Allowances, Finding, RefusedTopologyError, findings
from streams_py.ports.described_groups import DescribedMember, DescribedStreamsMember
from streams_py.topology.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapAllowances(Allowances):
    """Permissions that the user gives for a warm start.

    Attributes:
        replace: whether existing committed offsets and internal topics may be deleted.
        partial_history: whether the beginning of a topic may be deleted already.
    """

    replace: bool = False
    partial_history: bool = False


def make_plan(
    name: str,
    topology: Topology,
    application_id: str,
    config: Mapping[str, Any],
    cluster: BootstrapCluster,
    allowed: BootstrapAllowances,
    before: BootstrapPlan | None = None,
) -> tuple[BootstrapPlan, HistoryPlan]:
    """Create a plan. The current end offsets become the ends of its ranges.

    Args:
        name: ``module:name`` of the topology.
        topology: the topology.
        application_id: the application.
        config: settings of the application.
        cluster: the cluster of the application.
        allowed: permissions of the user.
        before: the plan that the new one replaces.

    Raises:
        RefusedTopologyError: lists all obstacles, of the topology and of the cluster.
    """
    return _Planner(name, topology, application_id, config, cluster, allowed).plan(before)


class _Planner:
    """A topology and its cluster, as a new plan finds them."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        application_id: str,
        config: Mapping[str, Any],
        cluster: BootstrapCluster,
        allowed: BootstrapAllowances,
    ) -> None:
        self._name = name
        self._topology = topology
        self._application_id = application_id
        self._config = config
        self._cluster = cluster
        self._allowed = allowed
        self._counts = cluster.partition_counts()
        self._inputs = _inputs_of(topology, application_id, config)
        self._tables = sorted(topology.global_topics) if allowed.frozen_tables else []
        self._ranges = self._ranges_of(self._inputs)
        self._committed = cluster.committed(application_id, _partitions_of(self._inputs, self._counts))

    def _ranges_of(self, topics: Collection[str]) -> list[tuple[str, int, int, int]]:
        """Return (topic, partition, first offset, end offset) of all partitions."""
        partitions = _partitions_of(topics, self._counts)
        starts, ends = self._cluster.starts(partitions), self._cluster.ends(partitions)
        return [(at.topic, at.partition, starts[at], ends[at]) for at in partitions]

    def plan(self, before: BootstrapPlan | None) -> tuple[BootstrapPlan, HistoryPlan]:
        """Create the plan; see :func:`make_plan`."""
        allowed, cluster = self._allowed, self._cluster
        found = self._obstacles(before)
        stages = self._stages(found)
        between = {
            topic: count for stage in stages.stages for topic, count in stage.inputs.items() if topic in stage.upstream
        }
        wanted = {**stages.changelogs, **between}
        found += findings_of_topics(wanted, stages.changelogs, self._counts, cluster, replace=allowed.replace)
        if found:
            raise RefusedTopologyError(found, self._name, START)
        configs = self._topic_configs()
        made = BootstrapPlan(
            self._application_id,
            self._name,
            fingerprint_of(self._topology),
            self._ranges,
            [(topic, count, configs[topic]) for topic, count in sorted(wanted.items())],
            stages.changelogs,
            between,
            allowed.replace,
            cluster=cluster.id(),
            side_effects=allowed.side_effects,
            outputs=sorted(allowed.outputs),
            given_up=[(*at, offset) for at, offset in sorted(self._committed.items())],
            tables=self._ranges_of(self._tables),
            topic_ids=dict(cluster.topic_ids([*self._inputs, *self._tables])),
            settings=marks_of(self._config),
        )
        return made, stages

    def _obstacles(self, before: BootstrapPlan | None) -> list[Finding]:
        """Find all obstacles that are known before the stages are planned."""
        allowed, counts, group = self._allowed, self._counts, self._application_id
        found = findings(self._topology, group, self._config, allowed, warm_start=True)
        found += [
            Finding(f"topic {topic}", "it does not exist", "create it, or check the name") for topic in self._missing()
        ]
        found += [] if allowed.partial_history else _of_ranges(self._ranges)
        found += _of_group(group, self._cluster.members(group), self._committed, allowed)
        if before is not None and before.step is Step.ABORTED and not self._topology.has_patterns:
            outputs = sinks_of(self._topology, group) | set(allowed.outputs)
            found += _of_outputs(before, outputs & set(before.written_to), counts, self._cluster)
        return found

    def _missing(self) -> list[str]:
        return [topic for topic in (*self._inputs, *self._tables) if topic not in self._counts]

    def _stages(self, found: list[Finding]) -> HistoryPlan:
        """Plan the stages.

        Raises:
            RefusedTopologyError: They cannot be planned, so no other check is possible.
        """
        topology, application_id, config = self._topology, self._application_id, self._config
        if self._missing() or topology.has_patterns or circles(topology.metadata(application_id, config)):
            raise RefusedTopologyError(found, self._name, START)
        try:
            return plan_history(topology, application_id, config, self._counts)
        except TopologyError as error:  # for example, joined topics with unequal partition counts
            found.append(Finding("the topology", str(error), "then plan again"))
            raise RefusedTopologyError(found, self._name, START) from None

    def _topic_configs(self) -> dict[str, dict[str, str]]:
        """Return internal topic -> its configuration."""
        metadata = self._topology.metadata(self._application_id, self._config)
        return {
            topic.name: dict(topic.config)
            for sub in metadata.subtopologies.values()
            for topic in (*sub.changelogs.values(), *sub.repartition_sources.values())
        }


def _inputs_of(topology: Topology, application_id: str, config: Mapping[str, Any]) -> list[str]:
    if topology.has_patterns:
        return []
    return sorted(external_topics(topology.metadata(application_id, config)))


def _partitions_of(topics: Collection[str], counts: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, p) for topic in topics if topic in counts for p in range(counts[topic])]


def _of_ranges(ranges: Sequence[tuple[str, int, int, int]]) -> list[Finding]:
    return [
        Finding(
            f"topic {TopicPartition(topic, partition)}",
            f"its first {start} offsets are deleted",
            "accept that with --accept-partial-history",
        )
        for topic, partition, start, _ in sorted(ranges)
        if start > 0
    ]


def _of_group(
    group: str,
    members: Sequence[DescribedMember | DescribedStreamsMember],
    committed: Mapping[TopicPartition, int],
    allowed: BootstrapAllowances,
) -> list[Finding]:
    found = []
    if members:
        clients = ", ".join(sorted({member.client_id for member in members})[:3])
        found.append(Finding(f"group {group}", f"{len(members)} members run ({clients})", "stop the application"))
    if committed and not allowed.replace:
        at = min(committed)
        found.append(
            Finding(
                f"group {group}",
                f"it has committed offsets ({at} at {committed[at]})",
                "delete them with --replace, or reset the application",
            )
        )
    return found


def _of_outputs(
    before: BootstrapPlan, outputs: Collection[str], counts: Mapping[str, int], cluster: BootstrapCluster
) -> list[Finding]:
    """Find topics that contain outputs of the aborted plan ``before``.

    A new plan has other end offsets. With --sinks it would write these outputs twice. Without --sinks the missing
    outputs would never be written. A topic whose records were deleted, or that was recreated, is not reported.

    Args:
        before: the aborted plan.
        outputs: topics that both plans write to.
        counts: topic -> partitions, for all topics of the cluster.
        cluster: the cluster of the new plan.
    """
    if None not in (before.cluster, here := cluster.id()) and before.cluster != here:
        return []
    ids, present = cluster.topic_ids(outputs), _partitions_of(sorted(outputs), counts)
    starts, ends = cluster.starts(present), cluster.ends(present)
    full = sorted({at.topic for at, end in ends.items() if end > starts[at]})
    return [
        Finding(
            f"topic {topic}",
            f"the aborted warm start ({before.id}) has written outputs to it, which abort does not delete",
            "run that plan again with --sinks, which writes the missing outputs; or delete the topic's records and "
            "plan again; or, if duplicate outputs are acceptable, name another file with --plan",
        )
        for topic in full
        if ids.get(topic) in (None, before.topic_ids.get(topic, ids.get(topic)))
    ]
