"""``streams-py reset``: shows a plan and resets an application, like Kafka's reset tool."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from streams_protocol.types import TopicPartition
from streams_py.cli.connecting import Connection, connected
from streams_py.cli.usage import FAILED, refuse
from streams_py.config.files import read_config_file
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.history.loading import load_topology
from streams_py.inspection.gather import check_is_streams, describe
from streams_py.ports import AdminError
from streams_py.ports.described_groups import DescribedMember, DescribedStreamsGroup, DescribedStreamsMember
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.system.printable import printable
from streams_py.topology.topic_owners import Owner, OwnerOfTopic, owners_of
from streams_py.topology.topology import Topology

_MEMBERS_GONE_S: Final = 30.0
_SHOWN_MAX: Final = 30
_INPUT: Final = OwnerOfTopic(Owner.OTHER, "the application reads it as input")


@dataclass(frozen=True, slots=True)
class Target:
    """The new position for input topics. At most one field is set; without any, ``earliest``."""

    latest: bool = False
    offset: int | None = None
    datetime_ms: int | None = None
    shift: int | None = None

    @classmethod
    def of(cls, text: str) -> Target:
        """Parse a target.

        Raises:
            ValueError: Not ``earliest``, ``latest``, an offset, ``+N``, ``-N`` or an ISO date and time.
        """
        if text in ("earliest", "latest"):
            return cls(latest=text == "latest")
        if text[:1] in ("+", "-") and text[1:].isdecimal():
            return cls(shift=int(text))
        if text.isdecimal():
            return cls(offset=int(text))
        when = datetime.fromisoformat(text)
        at_ms = int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
        return cls(datetime_ms=max(0, at_ms))  # negative times have a special meaning for brokers


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned changes: new positions of inputs, topics to delete, members to remove."""

    positions: Mapping[TopicPartition, tuple[int | None, int]]
    """Old and new position of each partition. The old one is None without a committed offset."""
    owners: Mapping[str, OwnerOfTopic]
    """Owner of each topic that is named like an internal topic of the application."""
    removed: Sequence[DescribedMember]
    refused: str
    """Why the application cannot be reset now; empty if it can."""

    def topics(self, owner: Owner) -> list[str]:
        """Return the topics of one kind of owner, in ascending order."""
        return sorted(topic for topic, found in self.owners.items() if found.owner is owner)


def reset_application(
    application_id: str,
    bootstrap: str | None,
    config: Path | None,
    *,
    inputs: Collection[str],
    target: Target,
    state_dir: str | None,
    dry_run: bool,
    force: bool,
    confirmed: Callable[[], bool],
    internal: Collection[str] = (),
    topology: str | None = None,
    is_own: Callable[[str], bool] = lambda topic: False,
) -> int:
    """Print the plan, ask for confirmation, and carry the plan out. Returns the exit status.

    Changes nothing before it has checked that the whole plan is possible.

    Args:
        internal: Internal topics that the user names. They are deleted even if their names fit other applications.
        topology: The application's program (``module:name``), which gives the names of its internal topics.
        is_own: Asks the user about a topic whose name also fits another application.
    """
    try:
        state = None if state_dir is None else StateDirectory(state_dir, application_id)
        settings = {} if config is None else read_config_file(config)
        program = None if topology is None else load_topology(topology, settings)
        with connected(bootstrap, config, "streams-py-reset") as cluster:
            plan = _plan(cluster, application_id, inputs, target, force=force, internal=internal, program=program)
            _print(plan, application_id, state_dir)
            if dry_run:
                if plan.refused:
                    print(printable(f"without --dry-run, the reset would be refused now: {plan.refused}"))
                return 0
            if plan.refused:
                raise _RefusedError(plan.refused)
            uncertain = plan.topics(Owner.UNCERTAIN)
            agreed = [topic for topic in uncertain if is_own(topic)]
            if not confirmed():
                print("nothing was changed", file=sys.stderr)
                return FAILED
            _carry_out(cluster, plan, [*plan.topics(Owner.APPLICATION), *agreed], application_id, state)
    except (_RefusedError, StreamsError) as error:
        return refuse(error)
    print(f"{application_id} has been reset")
    for topic in sorted({*uncertain} - {*agreed}):
        print(
            f"topic {topic} was kept: if it belongs to {application_id}, the application continues with the old "
            f"state in it; reset again with --internal-topic {topic}",
            file=sys.stderr,
        )
    if state_dir is None:
        print("local state was kept: delete it on each host with --state-dir DIR, or call KafkaStreams.clean_up()")
    return 0


class _RefusedError(Exception):
    """A request that cannot be carried out. Its text is shown to the user."""


def _plan(
    cluster: Connection,
    application_id: str,
    inputs: Collection[str],
    target: Target,
    *,
    force: bool,
    internal: Collection[str],
    program: Topology | None,
) -> Plan:
    groups = cluster.groups.list_groups()
    members: tuple[DescribedMember | DescribedStreamsMember, ...] = ()
    own = {*internal}
    if application_id in groups:
        described = describe(cluster, application_id)
        if not isinstance(described, DescribedStreamsGroup):
            check_is_streams(described)  # also with --force: members of another kind of group must not be removed
        else:
            for sub in described.subtopologies:
                own |= {*sub.changelog_topics, *sub.repartition_topics} - {*sub.source_topics}
        members = described.members
    removed = [member for member in members if isinstance(member, DescribedMember)]
    refused = ""
    if len(removed) < len(members) or (members and not force):
        clients = ", ".join(sorted({f"{member.client_id} at {member.client_host}" for member in members})[:5])
        count = f"{len(members)} member{'' if len(members) == 1 else 's'}"
        remedy = (
            ", or remove dead members with --force"
            if removed
            else ": --force cannot remove members of the streams protocol"
        )
        refused = f"{application_id} has {count} ({clients}); stop the application first{remedy}"
    partitions = {
        topic: [TopicPartition(topic, info.partition) for info in found]
        for topic, found in cluster.admin.describe_topics(None).items()
        if not isinstance(found, AdminError)
    }
    sources: frozenset[str] = frozenset()
    if program is not None:
        metadata = program.metadata(application_id, available_topics=partitions)
        own |= metadata.internal_topics
        sources = metadata.source_topics - metadata.internal_topics
    owners = owners_of(application_id, partitions, groups=groups, own=own)
    _check_internal(internal, application_id, owners, partitions)
    everything = [at for topic in partitions for at in partitions[topic] if not topic.startswith("__")]
    committed = cluster.admin.committed_offsets(application_id, everything) if everything else {}
    read = {at.topic for at, offset in committed.items() if offset is not None}
    for topic, found in owners.items():
        if found.owner is Owner.UNCERTAIN and (topic in inputs or (topic in read and topic.endswith("-changelog"))):
            owners[topic] = _INPUT
    owners |= dict.fromkeys(sources & owners.keys(), _INPUT)
    mine = {topic for topic, found in owners.items() if found.owner is not Owner.OTHER}
    if inputs:
        for topic in inputs:
            if topic not in partitions:
                near = get_close_matches(topic, partitions, n=1)
                raise _RefusedError(f"topic {topic} does not exist" + (f"; did you mean {near[0]}?" if near else ""))
            if topic in mine:
                raise _RefusedError(
                    f"{topic} is an internal topic of {application_id}: the reset deletes it and cannot read it again"
                )
        chosen = [at for topic in inputs for at in partitions[topic]]
    else:
        chosen = [at for topic in sorted(read - mine) for at in partitions[topic]]
    if not chosen and not mine:
        raise _RefusedError(
            f"{application_id} has neither committed offsets nor internal topics at {cluster.bootstrap}; check the "
            "name" + _near_group(application_id, groups)
        )
    positions = _positions(cluster, chosen, committed, target)
    return Plan(
        {at: (committed.get(at), positions[at]) for at in sorted(chosen)}, owners, [] if refused else removed, refused
    )


def _check_internal(
    internal: Collection[str], application_id: str, owners: Mapping[str, OwnerOfTopic], partitions: Collection[str]
) -> None:
    looks_internal = owners_of(application_id, internal)
    for topic in internal:
        if topic not in partitions:
            near = get_close_matches(topic, owners, n=1)
            raise _RefusedError(f"topic {topic} does not exist" + (f"; did you mean {near[0]}?" if near else ""))
        if topic not in looks_internal:
            raise _RefusedError(
                f"{topic} is not named like an internal topic of {application_id}, so the reset does not delete it"
            )


def _near_group(name: str, groups: Collection[str]) -> str:
    near = get_close_matches(name, groups, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _positions(
    cluster: Connection,
    chosen: Collection[TopicPartition],
    committed: Mapping[TopicPartition, int | None],
    target: Target,
) -> dict[TopicPartition, int]:
    """Return the new positions, limited to each partition's first and end offset."""
    if not chosen:
        return {}
    first = _known(cluster.admin.list_offsets(chosen, earliest=True))
    ends = _known(cluster.admin.list_offsets(chosen))
    if target.latest:
        return ends
    if target.datetime_ms is not None:
        at_time = cluster.groups.offsets_at(chosen, target.datetime_ms)
        return {at: ends[at] if (offset := at_time[at]) is None else offset for at in chosen}

    def wanted(at: TopicPartition) -> int:
        if target.offset is not None:
            return target.offset
        before = committed.get(at)
        return first[at] if target.shift is None or before is None else before + target.shift

    return {at: min(max(wanted(at), first[at]), ends[at]) for at in chosen}


def _known(offsets: Mapping[TopicPartition, int | AdminError]) -> dict[TopicPartition, int]:
    known: dict[TopicPartition, int] = {}
    for at, offset in offsets.items():
        if isinstance(offset, AdminError):
            raise BrokerUnavailableError(f"cannot fetch the offsets of {at}: {offset.message}")
        known[at] = offset
    return known


def _print(plan: Plan, application_id: str, state_dir: str | None) -> None:
    for member in plan.removed:
        print(printable(f"remove member {member.client_id} at {member.client_host}"))
    if not plan.positions:
        print(
            "no committed offsets are visible: none exist, or this user lacks DESCRIBE on topics; name topics with "
            "--input-topic"
        )
    if not plan.topics(Owner.APPLICATION):
        print("no internal topics are visible: none exist, or this user lacks DESCRIBE on them")
    moved = [(at, old, new) for at, (old, new) in plan.positions.items() if old != new]
    for at, old, new in moved[:_SHOWN_MAX]:
        print(f"read {at} from {new}" + ("" if old is None else f" (now at {old})"))
    if len(moved) > _SHOWN_MAX:
        print(f"and {len(moved) - _SHOWN_MAX} more partitions")
    for topic in plan.topics(Owner.APPLICATION):
        print(printable(f"delete topic {topic}: {plan.owners[topic].why}"))
    for topic in plan.topics(Owner.OTHER):
        print(printable(f"keep topic {topic}: {plan.owners[topic].why}"))
    for topic in plan.topics(Owner.UNCERTAIN):
        print(
            printable(
                f"keep topic {topic} unless you name it: {plan.owners[topic].why}; --internal-topic {topic} or "
                "--topology deletes it"
            )
        )
    if state_dir is not None:
        there = Path(state_dir, application_id).is_dir()
        print(f"delete the local state of {application_id} in {state_dir}" + ("" if there else ": no state found"))


def _carry_out(
    cluster: Connection, plan: Plan, deleted: Sequence[str], application_id: str, state: StateDirectory | None
) -> None:
    """Change members, offsets, topics and disk, in this order.

    A repeated run after a failure does the rest.
    """
    if plan.removed:
        cluster.groups.remove_members(application_id, plan.removed)
        _await_empty(cluster, application_id)
    if plan.positions:
        cluster.groups.set_offsets(application_id, {at: new for at, (_, new) in plan.positions.items()})
    if deleted:
        cluster.groups.delete_topics(deleted)
    if state is not None:
        for path in state.clean_up():
            print(f"the state in {path} was kept: a running process uses it")


def _await_empty(cluster: Connection, application_id: str) -> None:
    until = time.monotonic() + _MEMBERS_GONE_S
    while members := cluster.groups.describe_group(application_id).members:
        if time.monotonic() > until:
            raise StreamsError(
                f"members of {application_id} rejoin: {members[0].client_id} at {members[0].client_host} is running; "
                "stop it"
            )
        time.sleep(0.3)
