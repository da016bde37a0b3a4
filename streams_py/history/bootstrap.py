"""A warm start: a live application, in Python or Java, begins with the state that its history has left.

In this order, so that whatever breaks off leaves an application that never saw a half-made state:

1. *plan*: what is refused, all of it; ranges with fixed ends; topics to be made. Nothing is changed.
2. *run*: make the internal topics, run the stages, write what is left of each changelog.
3. *verify*: read the changelogs back and compare.
4. *commit*: the positions after the ranges, with the partitions' times, in one request. Only now does the application
   have a position; the broker refuses the request when somebody has started it meanwhile.

Until the last step *abort* takes everything back: it deletes the internal topics. Those between stages as well, since
an application without a position reads them from their beginning: what another run has left there would count twice.
The plan is a file between the steps, which says how far it got. After *abort* the same plan can be run again. It says
so *before* the request of the last step, too: from then on what is committed may be what the application goes on from,
and nobody deletes it. What is written is in :mod:`streams_py.history.bootstrap_state`; both ends, *commit* and *abort*,
are in :mod:`streams_py.history.bootstrap_ends`.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

from streams_protocol.types import TopicPartition
from streams_py.errors import ConfigError, TopologyError
from streams_py.history.fingerprint import fingerprint_of
from streams_py.history.plan import HistoryPlan, circles, external_topics, plan_history, sinks_of
from streams_py.history.plan_files import read_plan, save_plan
from streams_py.history.refuse import Finding, RefusedTopologyError, findings
from streams_py.history.result_settings import marks_of
from streams_py.ports import OffsetAndMetadata, TopicSpec
from streams_py.ports.described_groups import DescribedMember, DescribedStreamsMember
from streams_py.topology.topology import Topology

__all__ = [
    "Allowances",
    "BootstrapCluster",
    "BootstrapPlan",
    "Step",
    "check_cluster",
    "check_file_is_free",
    "check_topics",
    "differences",
    "make_plan",
    "prepare",
]

_FORMAT: Final = 2
_START: Final = "start warm"


class BootstrapCluster(Protocol):
    """What is asked of the cluster."""

    def id(self) -> str | None: ...
    def partition_counts(self) -> Mapping[str, int]: ...
    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]: ...
    def starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def members(self, group: str) -> Sequence[DescribedMember | DescribedStreamsMember]: ...
    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def create(self, specs: Sequence[TopicSpec]) -> None: ...
    def delete(self, topics: Sequence[str]) -> None: ...
    def forget(self, group: str) -> None: ...
    def commit(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...


class Step(StrEnum):
    """How far a warm start got."""

    PLANNED = "planned"
    RUNNING = "running"
    WRITTEN = "written"
    VERIFIED = "verified"
    COMMITTING = "being committed"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Allowances:
    """What the user takes upon themselves. ``replace``: committed offsets and changelogs that are there are given up.
    ``partial_history``: the beginning of a topic is deleted already. ``side_effects``, ``outputs`` and
    ``frozen_tables``: see ``findings``."""

    replace: bool = False
    partial_history: bool = False
    side_effects: bool = False
    outputs: Collection[str] = ()
    frozen_tables: bool = False


@dataclass(frozen=True)
class BootstrapPlan:
    """One warm start. ``ranges``: (topic, partition, first offset, end). ``topics``: internal topics as they are made.
    ``read``: (topic, partition, records) that the run has read of the ranges, also of ``tables``. ``recounted``: what
    `verify` says of them. ``written``: changelog partition -> records and hash, once they are written; ``untimed``:
    changelogs whose records have the time of writing. ``positions``: what is committed. ``id``: part of the names under
    which outputs are written. ``ends``: where the internal topics ended when the changelogs were written.
    ``side_effects`` and ``outputs``: see :class:`Allowances`. ``given_up``: the committed offsets that are given up.
    ``cluster``: its id. ``tables``: as ``ranges``, of topics that global tables are filled from; nothing is committed
    for them.
    ``topic_ids``: the cluster's ids of what is read, and of what outputs were ever to be written to. ``settings``: see
    :mod:`streams_py.history.result_settings`. ``writers``: names of those of its outputs that brokers
    were told of, see :mod:`streams_py.adapters.confluent.bulk.once_writer`. ``outputs_begun``: some may be written, and
    not all; taking the rest back does not change that. ``written_to``: the topics that may have outputs of it."""

    application_id: str
    topology: str
    fingerprint: str
    ranges: list[tuple[str, int, int, int]]
    topics: list[tuple[str, int, dict[str, str]]]
    changelogs: dict[str, int]
    repartitions: dict[str, int]
    replace: bool = False
    step: Step = Step.PLANNED
    written: dict[str, tuple[int, int]] = field(default_factory=dict)
    untimed: list[str] = field(default_factory=list)
    positions: list[tuple[str, int, int, str]] = field(default_factory=list)
    ends: list[tuple[str, int, int]] = field(default_factory=list)
    side_effects: bool = False
    outputs: list[str] = field(default_factory=list)
    given_up: list[tuple[str, int, int]] = field(default_factory=list)
    cluster: str | None = None
    tables: list[tuple[str, int, int, int]] = field(default_factory=list)
    topic_ids: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    writers: list[str] = field(default_factory=list)
    outputs_begun: bool = False
    written_to: list[str] = field(default_factory=list)
    read: list[tuple[str, int, int]] = field(default_factory=list)
    recounted: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    format: int = _FORMAT

    @property
    def internal(self) -> list[str]:
        """Changelogs, and topics between stages."""
        return sorted({*self.changelogs, *self.repartitions})

    def aborted(self) -> BootstrapPlan:
        """The plan after everything was taken back. It can be run again: it reads the same records, so a writer of
        outputs finds those that it has written before. One of which nothing was begun stays as it is: it still has to
        give up what it was made to give up."""
        return (
            self
            if self.step is Step.PLANNED
            else replace(self, step=Step.ABORTED, written={}, untimed=[], positions=[], ends=[], read=[], recounted="")
        )

    def writing_to(self, topic_ids: Mapping[str, str]) -> BootstrapPlan:
        """The plan when outputs go to these topics, too. Ids that it knows stay: attempts before have written there."""
        return replace(self, topic_ids={**topic_ids, **self.topic_ids})

    def save(self, path: Path) -> None:
        """Write the file. ConfigError when that cannot be."""
        save_plan(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> BootstrapPlan:
        """Read the file. ConfigError when it is none."""
        try:
            found = read_plan(path, _FORMAT)
        except OSError as error:
            raise ConfigError(f"there is no plan {path} ({error.strerror}); make it with `bootstrap plan`") from None
        if found is not None:
            with contextlib.suppress(ValueError, TypeError, KeyError):
                return cls(**{**found, "step": Step(found["step"])})
        raise ConfigError(f"{path} is no plan of a warm start; make it with `bootstrap plan`")

    def standing(self) -> str:
        """How far it got, and what to do next."""
        remedy = {
            Step.PLANNED: "run it first",
            Step.RUNNING: "it broke off, so abort it, and run it again",
            Step.WRITTEN: "verify it, or abort it",
            Step.VERIFIED: "commit it, or abort it",
            Step.COMMITTING: "it broke off, so commit it once more",
            Step.COMMITTED: "there is nothing more to do",
            Step.ABORTED: "run it again, or plan again",
        }[self.step]
        return f"the warm start of {self.application_id} is {self.step.value}: {remedy}"

    def options_for(self, topic: str) -> dict[str, str]:
        """The ranges of a topic as options of ``streams-kafka``."""
        ranges = [at for at in (*self.ranges, *self.tables) if at[0] == topic]
        starts = {str(partition): start for _, partition, start, _ in ranges}
        ends = {str(partition): end for _, partition, _, end in ranges}
        return {"starting": json.dumps({topic: starts}), "ending": json.dumps({topic: ends})}

    def check(self, topology: Topology, *allowed: Step) -> None:
        """ConfigError when the plan is at another step, or was made for another topology."""
        if self.step not in allowed:
            raise ConfigError(self.standing())
        if fingerprint_of(topology) != self.fingerprint:
            raise ConfigError(
                f"the topology has changed since the warm start of {self.application_id} was planned; plan again"
            )

    def check_outputs(self, *, sinks: bool) -> None:
        """ConfigError when a run that does not write outputs (``sinks``) would leave some written, and the rest not:
        the application goes on behind all of them."""
        if self.outputs_begun and not sinks:
            raise ConfigError(
                f"an earlier run of the warm start of {self.application_id} has begun to write outputs, and abort does "
                "not take these back: without the rest the application would go on behind outputs that nobody has "
                "written; give --sinks, which writes what is missing, or leave it aborted, so that the application "
                "begins at the beginning"
            )


def check_file_is_free(path: Path) -> BootstrapPlan | None:
    """The plan whose place a new one would take, if any. ConfigError when that is not done with, or is something
    else."""
    if not path.exists():
        return None
    try:
        plan = BootstrapPlan.load(path)
    except ConfigError as error:
        raise ConfigError(f"{path} is there, and no plan to be replaced ({error}); name another file") from None
    if plan.step in (Step.RUNNING, Step.WRITTEN, Step.VERIFIED, Step.COMMITTING):
        first = "`bootstrap commit` it once more" if plan.step is Step.COMMITTING else "`bootstrap abort` it first"
        raise ConfigError(
            f"{path} is the plan of a warm start of {plan.application_id} that is {plan.step.value}: {first}, or name "
            "another file with --plan"
        )
    return plan


def make_plan(
    name: str,
    topology: Topology,
    application_id: str,
    config: Mapping[str, Any],
    cluster: BootstrapCluster,
    allowed: Allowances,
    before: BootstrapPlan | None = None,
) -> tuple[BootstrapPlan, HistoryPlan]:
    """The plan, with ends fixed now. RefusedTopologyError says everything that stands against it, of the topology and
    of the cluster. ``name``: ``module:name`` of the topology. ``before``: the plan whose place it takes."""
    found = findings(
        topology,
        application_id,
        config,
        outputs=allowed.outputs,
        allow_side_effects=allowed.side_effects,
        warm_start=True,
        frozen_tables=allowed.frozen_tables,
    )
    counts = cluster.partition_counts()
    inputs = _inputs_of(topology, application_id, config)
    tables = sorted(topology.global_topics) if allowed.frozen_tables else []
    missing = [topic for topic in (*inputs, *tables) if topic not in counts]
    found += [Finding(f"topic {topic}", "it does not exist", "create it, or check the name") for topic in missing]
    partitions = _partitions_of(inputs, counts)
    starts, ends = cluster.starts(partitions), cluster.ends(partitions)
    found += _of_ranges(starts, allowed)
    committed = cluster.committed(application_id, partitions)
    found += _of_group(application_id, cluster.members(application_id), committed, allowed)
    if before is not None and before.step is Step.ABORTED and not topology.has_patterns:
        outputs = sinks_of(topology, application_id) | set(allowed.outputs)
        found += _of_outputs(before, outputs & set(before.written_to), counts, cluster)
    if missing or topology.has_patterns or circles(topology.metadata(application_id, config)):
        raise RefusedTopologyError(found, name, _START)  # more cannot be known
    try:
        plan = plan_history(topology, application_id, config, counts)
    except TopologyError as error:  # such as topics of unequal partition counts that are joined
        found.append(Finding("the topology", str(error), "then plan again"))
        raise RefusedTopologyError(found, name, _START) from None
    whole = _partitions_of(tables, counts)
    table_starts, table_ends = cluster.starts(whole), cluster.ends(whole)
    metadata = topology.metadata(application_id, config)
    between = {
        topic: count for stage in plan.stages for topic, count in stage.inputs.items() if topic in stage.upstream
    }
    wanted = {**plan.changelogs, **between}
    found += _of_topics(wanted, plan.changelogs, counts, cluster, replace=allowed.replace)
    if found:
        raise RefusedTopologyError(found, name, _START)
    configs = {
        topic.name: dict(topic.config)
        for sub in metadata.subtopologies.values()
        for topic in (*sub.changelogs.values(), *sub.repartition_sources.values())
    }
    made = BootstrapPlan(
        application_id,
        name,
        fingerprint_of(topology),
        [(at.topic, at.partition, starts[at], ends[at]) for at in partitions],
        [(topic, count, configs[topic]) for topic, count in sorted(wanted.items())],
        plan.changelogs,
        between,
        allowed.replace,
        cluster=cluster.id(),
        side_effects=allowed.side_effects,
        outputs=sorted(allowed.outputs),
        given_up=[(*at, offset) for at, offset in sorted(committed.items())],
        tables=[(*at, table_starts[at], table_ends[at]) for at in whole],
        topic_ids=dict(cluster.topic_ids([*inputs, *tables])),
        settings=marks_of(config),
    )
    return made, plan


def _inputs_of(topology: Topology, application_id: str, config: Mapping[str, Any]) -> list[str]:
    if topology.has_patterns:
        return []
    return sorted(external_topics(topology.metadata(application_id, config)))


def _partitions_of(topics: Collection[str], counts: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, p) for topic in topics if topic in counts for p in range(counts[topic])]


def _of_ranges(starts: Mapping[TopicPartition, int], allowed: Allowances) -> list[Finding]:
    if allowed.partial_history:
        return []
    return [
        Finding(f"topic {at}", f"its first {start} offsets are gone", "accept that with --accept-partial-history")
        for at, start in sorted(starts.items())
        if start > 0
    ]


def _of_group(
    group: str,
    members: Sequence[DescribedMember | DescribedStreamsMember],
    committed: Mapping[TopicPartition, int],
    allowed: Allowances,
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
                "give them up with --replace, or reset the application",
            )
        )
    return found


def _of_outputs(
    before: BootstrapPlan, outputs: Collection[str], counts: Mapping[str, int], cluster: BootstrapCluster
) -> list[Finding]:
    """Outputs that an aborted plan has left: a new one has another end, so it would write them again, or, without
    --sinks, leave those out that are missing. ``outputs``: topics of both. What was deleted since counts no more."""
    if None not in (before.cluster, here := cluster.id()) and before.cluster != here:
        return []
    ids, present = cluster.topic_ids(outputs), _partitions_of(sorted(outputs), counts)
    starts, ends = cluster.starts(present), cluster.ends(present)
    full = sorted({at.topic for at, end in ends.items() if end > starts[at]})
    return [
        Finding(
            f"topic {topic}",
            f"the warm start that was aborted ({before.id}) has written outputs there, which abort does not take back",
            "run that plan again with --sinks, which writes what is missing; or delete the topic's records and plan "
            "again; or, if outputs may come twice, name another file with --plan",
        )
        for topic in full
        if ids.get(topic) in (None, before.topic_ids.get(topic, ids.get(topic)))
    ]


def _of_topics(
    wanted: Mapping[str, int],
    changelogs: Collection[str],
    counts: Mapping[str, int],
    cluster: BootstrapCluster,
    *,
    replace: bool,
) -> list[Finding]:
    found = []
    for topic, count in sorted(wanted.items()):
        if topic in counts and counts[topic] != count:
            rule = f"it has {counts[topic]} partitions, and {count} are needed"
            found.append(Finding(f"topic {topic}", rule, "reset the application (delete its internal topics)"))
    if replace:
        return found
    present = [TopicPartition(topic, p) for topic in changelogs if topic in counts for p in range(counts[topic])]
    starts, ends = cluster.starts(present), cluster.ends(present)
    full = sorted({at.topic for at, end in ends.items() if end > starts[at]})
    return found + [
        Finding(f"topic {topic}", "it is not empty", "give it up with --replace, or reset the application")
        for topic in full
    ]


def check_cluster(plan: BootstrapPlan, cluster: BootstrapCluster) -> None:
    """ConfigError when it is another one than that of the plan, where an application of this name may live, too."""
    here = cluster.id()
    if None not in (plan.cluster, here) and plan.cluster != here:
        raise ConfigError(
            f"the warm start of {plan.application_id} was planned for cluster {plan.cluster}, and this is {here}; name "
            "the other one with --bootstrap or --config"
        )


def check_topics(plan: BootstrapPlan, cluster: BootstrapCluster, *, skip_gone: bool = False) -> None:
    """RefusedTopologyError when the topics are not any more what they were when the plan was made: better now than when
    everything is written, and read back. ``skip_gone``: records that were deleted meanwhile may be passed over."""
    counts = cluster.partition_counts()
    wanted = {topic: count for topic, count, _ in plan.topics}
    found = differences(plan, cluster, {topic for topic, *_ in (*plan.ranges, *plan.tables)} | plan.topic_ids.keys())
    found += [] if skip_gone else _of_starts(plan, cluster, counts)
    found += _of_topics(wanted, plan.changelogs, counts, cluster, replace=plan.replace)
    if found:
        raise RefusedTopologyError(found, plan.topology, _START)


def _of_starts(plan: BootstrapPlan, cluster: BootstrapCluster, counts: Mapping[str, int]) -> list[Finding]:
    planned = {
        TopicPartition(topic, p): start
        for topic, p, start, end in (*plan.ranges, *plan.tables)
        if start < end and p < counts.get(topic, 0)
    }
    return [
        Finding(
            f"topic {at}",
            f"its first {start} offsets are gone by now, and {planned[at]} were when the plan was made",
            "plan again, or go on without them (--option on.gone=skip)",
        )
        for at, start in sorted(cluster.starts(list(planned)).items())
        if start > planned[at]
    ]


def differences(plan: BootstrapPlan, cluster: BootstrapCluster, topics: Collection[str]) -> list[Finding]:
    """How ``topics`` differ from those that the plan was made for. One that was deleted and created again is another
    one, whatever its offsets."""
    counts, ids = cluster.partition_counts(), cluster.topic_ids(topics)
    planned = Counter(topic for topic, *_ in (*plan.ranges, *plan.tables) if topic in topics)
    found = [
        Finding(
            f"topic {topic}",
            f"it has {counts[topic]} partitions, and {count} are planned" if topic in counts else "it does not exist",
            "plan again",
        )
        for topic, count in sorted(planned.items())
        if counts.get(topic) != count
    ]
    return found + [
        Finding(f"topic {topic}", "it was deleted and created again since the plan was made", "plan again")
        for topic, known in sorted(plan.topic_ids.items())
        if topic in topics and ids.get(topic, known) != known
    ]


def prepare(plan: BootstrapPlan, cluster: BootstrapCluster, replication_factor: int = -1) -> None:
    """Make the internal topics; with ``replace`` give up committed offsets and old internal topics before, in this
    order: an application that somebody starts meanwhile begins at the beginning. Begins RUNNING."""
    counts = cluster.partition_counts()
    if plan.replace:
        cluster.forget(plan.application_id)
        cluster.delete([topic for topic in plan.internal if topic in counts])
        counts = {topic: count for topic, count in counts.items() if topic not in plan.internal}
    missing = [
        TopicSpec(topic, count, replication_factor, config)
        for topic, count, config in plan.topics
        if topic not in counts
    ]
    cluster.create(missing)
