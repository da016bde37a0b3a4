"""A warm start: a live application, in Python or Java, starts with the state that results from its old records.

The order of the steps ensures that the application never uses an incomplete state, wherever a step is interrupted:

1. *plan*: report all obstacles, fix the offsets to read, and list the internal topics. This changes nothing.
2. *run*: create the internal topics, run the stages, and write the changelogs.
3. *verify*: read the changelogs back and compare them.
4. *commit*: commit the end offsets of the ranges and the partition times in one request. Only now does the application
   have committed offsets. The broker refuses the request if the application has members.

Before *commit*, *abort* undoes everything: it deletes the internal topics. This includes the topics between stages. An
application without committed offsets reads them from their beginning, so leftover records would count twice.

The plan is a file that records the last step. After *abort* the same plan can run again. The plan also records that
*commit* is about to send its request. From then on the application may have continued from the committed offsets, so
*abort* does not delete them.

:mod:`streams_py.history.bootstrap_planning` creates the plan, :mod:`streams_py.history.bootstrap_topics` creates and
checks its topics. *commit* and *abort* are in :mod:`streams_py.history.bootstrap_ends`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from streams_protocol.types import TopicPartition
from streams_py.errors import ConfigError
from streams_py.history.fingerprint import fingerprint_of
from streams_py.history.plan_files import load_plan, save_plan
from streams_py.ports import OffsetAndMetadata, TopicSpec
from streams_py.ports.described_groups import DescribedMember, DescribedStreamsMember
from streams_py.topology.topology import Topology

_FORMAT: Final = 2


class BootstrapCluster(Protocol):
    """The requests to the cluster that a warm start needs."""

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
    """The last step of a warm start."""

    PLANNED = "planned"
    RUNNING = "running"
    WRITTEN = "written"
    VERIFIED = "verified"
    COMMITTING = "being committed"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True)
class BootstrapPlan:
    """The plan of one warm start.

    Attributes:
        application_id: the application.
        topology: ``module:name`` of the topology.
        fingerprint: identifies the topology, see :mod:`streams_py.history.fingerprint`.
        ranges: (topic, partition, first offset, end offset) of the inputs.
        topics: (topic, partitions, configuration) of the internal topics.
        changelogs: changelog topic -> partitions.
        repartitions: topic between stages -> partitions.
        replace: see :class:`~streams_py.history.bootstrap_planning.BootstrapAllowances`.
        step: the last step.
        written: changelog partition -> record count and hash, after the changelogs are written.
        untimed: changelogs whose records have the time of writing as their timestamp.
        positions: (topic, partition, offset, metadata) to commit.
        ends: end offsets of the internal topics when the changelogs were written.
        side_effects: see :class:`~streams_py.history.bootstrap_planning.BootstrapAllowances`.
        outputs: see :class:`~streams_py.history.bootstrap_planning.BootstrapAllowances`.
        given_up: committed offsets at the time of the plan, which ``replace`` allows to delete.
        cluster: the id of the cluster.
        tables: like ``ranges``, for the topics of global tables. No offsets are committed for them.
        topic_ids: the cluster's ids of all input topics, and of all topics that any run was to write outputs to.
        settings: see :mod:`streams_py.history.fingerprint`.
        writers: names of output writers that brokers know, see
            :mod:`streams_py.adapters.confluent.bulk.once_writer`.
        outputs_begun: whether some outputs, but not all, may be written. *abort* does not change it.
        written_to: topics that may contain outputs of this plan.
        read: (topic, partition, records) that the run has read of ``ranges`` and ``tables``.
        recounted: the result of *verify*'s second count of these records.
        id: part of the names of output writers.
        format: the version of the file's layout.
    """

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
        """The changelogs and the topics between stages."""
        return sorted({*self.changelogs, *self.repartitions})

    def aborted(self) -> BootstrapPlan:
        """Return the plan after *abort*.

        It can run again. It then reads the same records, so writers find the outputs that they have written before. A
        plan that has not started is returned unchanged: it still has to delete the offsets in ``given_up``.
        """
        return (
            self
            if self.step is Step.PLANNED
            else replace(self, step=Step.ABORTED, written={}, untimed=[], positions=[], ends=[], read=[], recounted="")
        )

    def writing_to(self, topic_ids: Mapping[str, str]) -> BootstrapPlan:
        """Return the plan with these output topics added.

        Known ids are kept, because earlier attempts may have written to the topics with these ids.
        """
        return replace(self, topic_ids={**topic_ids, **self.topic_ids})

    def save(self, path: Path) -> None:
        """Write the file. Raises ConfigError when it cannot be written."""
        save_plan(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> BootstrapPlan:
        """Read the file. Raises ConfigError when it is missing, damaged or not the plan of a warm start."""
        remedy = "create one with `bootstrap plan`"
        found = load_plan(cls, path, _FORMAT, "the plan of a warm start", remedy)
        if found is None:
            raise ConfigError(f"the plan {path} does not exist; {remedy}")
        return found

    def next_step(self) -> str:
        """Return a sentence with the last step and the next one."""
        remedy = {
            Step.PLANNED: "run it first",
            Step.RUNNING: "it was interrupted, so abort it and run it again",
            Step.WRITTEN: "verify it, or abort it",
            Step.VERIFIED: "commit it, or abort it",
            Step.COMMITTING: "it was interrupted, so commit it again",
            Step.COMMITTED: "no step is left",
            Step.ABORTED: "run it again, or plan again",
        }[self.step]
        return f"the warm start of {self.application_id} is {self.step.value}: {remedy}"

    def options_for(self, topic: str) -> dict[str, str]:
        """Return the ranges of a topic as options of the data source ``streams-kafka``."""
        ranges = [at for at in (*self.ranges, *self.tables) if at[0] == topic]
        starts = {str(partition): start for _, partition, start, _ in ranges}
        ends = {str(partition): end for _, partition, _, end in ranges}
        return {"starting": json.dumps({topic: starts}), "ending": json.dumps({topic: ends})}

    def check(self, topology: Topology, *allowed: Step) -> None:
        """Raise ConfigError when the last step is not in ``allowed``, or the topology has changed."""
        if self.step not in allowed:
            raise ConfigError(self.next_step())
        if fingerprint_of(topology) != self.fingerprint:
            raise ConfigError(
                f"the topology has changed since the warm start of {self.application_id} was planned; plan again"
            )

    def check_outputs(self, *, sinks: bool) -> None:
        """Raise ConfigError when a run without outputs would leave the outputs of an earlier run incomplete.

        The application continues after all of these outputs, so it would never write the missing ones.
        """
        if self.outputs_begun and not sinks:
            raise ConfigError(
                f"an earlier run of the warm start of {self.application_id} has written some outputs, and abort does "
                "not delete them: without the other outputs the application would continue after outputs that were "
                "never written; pass --sinks, which writes the missing outputs, or leave the plan aborted, so that the "
                "application starts from the beginning"
            )


def check_file_is_free(path: Path) -> BootstrapPlan | None:
    """Return the plan in the file that a new plan would replace, or None when the file does not exist.

    Raises:
        ConfigError: the plan is in progress, or the file is not a plan.
    """
    if not path.exists():
        return None
    try:
        plan = BootstrapPlan.load(path)
    except ConfigError as error:
        raise ConfigError(f"{path} exists and cannot be replaced ({error}); name another file with --plan") from None
    if plan.step in (Step.RUNNING, Step.WRITTEN, Step.VERIFIED, Step.COMMITTING):
        first = "run `bootstrap commit` again" if plan.step is Step.COMMITTING else "run `bootstrap abort` first"
        raise ConfigError(
            f"{path} is the plan of a warm start of {plan.application_id} that is {plan.step.value}: {first}, or name "
            "another file with --plan"
        )
    return plan


def check_cluster(plan: BootstrapPlan, cluster: BootstrapCluster) -> None:
    """Raise ConfigError when this is not the plan's cluster.

    Another cluster may have an application with the same name.
    """
    here = cluster.id()
    if None not in (plan.cluster, here) and plan.cluster != here:
        raise ConfigError(
            f"the warm start of {plan.application_id} was planned for cluster {plan.cluster}, but this is cluster "
            f"{here}; name the planned cluster with --bootstrap or --config"
        )
