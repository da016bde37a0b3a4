"""``streams-py reset``: an application begins again. As Kafka Streams' reset tool, with the plan shown first."""

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
from streams_py.described_groups import DescribedMember, DescribedStreamsGroup, DescribedStreamsMember
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.inspection.gather import check_is_streams, describe
from streams_py.inspection.members import printable
from streams_py.ports import AdminError
from streams_py.state.directory import StateDirectory
from streams_py.topology.names import internal_topics

__all__ = ["Target", "reset_application"]

_MEMBERS_GONE_S: Final = 30.0
_SHOWN_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class Target:
    """Where input topics are to be read from: exactly one of these. ``earliest`` when none is given."""

    latest: bool = False
    offset: int | None = None
    datetime_ms: int | None = None
    shift: int | None = None

    @classmethod
    def of(cls, text: str) -> Target:
        """``earliest``, ``latest``, an offset, ``+N`` or ``-N``, or an ISO date and time. ValueError for others."""
        if text in ("earliest", "latest"):
            return cls(latest=text == "latest")
        if text[:1] in ("+", "-") and text[1:].isdecimal():
            return cls(shift=int(text))
        if text.isdecimal():
            return cls(offset=int(text))
        when = datetime.fromisoformat(text)
        at_ms = int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
        return cls(datetime_ms=max(0, at_ms))  # negative ones mean something else to a broker


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done: positions (old, new) of inputs, topics that go, members that are removed."""

    positions: Mapping[TopicPartition, tuple[int | None, int]]
    deleted: Sequence[str]
    left_alone: Mapping[str, str]
    """Topic that looks like one of the application's -> the group it belongs to."""
    removed: Sequence[DescribedMember]


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
) -> int:
    """Show the plan, ask, do it; the exit status. Nothing is changed before the whole plan is known to be possible."""
    try:
        state = None if state_dir is None else StateDirectory(state_dir, application_id)
        with connected(bootstrap, config, "streams-py-reset") as cluster:
            plan = _plan(cluster, application_id, inputs, target, force=force)
            _print(plan, application_id, state_dir)
            if dry_run:
                return 0
            if not confirmed():
                print("nothing was changed", file=sys.stderr)
                return FAILED
            _carry_out(cluster, plan, application_id, state)
    except (_RefusedError, StreamsError) as error:
        return refuse(error)
    print(f"{application_id} is reset")
    if state_dir is None:
        print("local state stays: delete it on each machine with --state-dir DIR, or call KafkaStreams.clean_up()")
    return 0


class _RefusedError(Exception):
    """A sentence for the user."""


def _plan(cluster: Connection, application_id: str, inputs: Collection[str], target: Target, *, force: bool) -> Plan:
    groups = cluster.groups.list_groups()
    members: tuple[DescribedMember | DescribedStreamsMember, ...] = ()
    if application_id in groups:
        described = describe(cluster, application_id)
        if not isinstance(described, DescribedStreamsGroup):
            check_is_streams(described)  # not even with --force: somebody else's members are no remains of ours
        members = described.members
    removed = [member for member in members if isinstance(member, DescribedMember)]
    if len(removed) < len(members) or (members and not force):
        clients = ", ".join(sorted({f"{member.client_id} at {member.client_host}" for member in members})[:5])
        count = f"{len(members)} member{'' if len(members) == 1 else 's'}"
        raise _RefusedError(
            f"{application_id} has {count} ({clients}); stop the application first"
            + (", or remove members that are gone with --force" if removed else ": nobody else can remove them")
        )
    partitions = {
        topic: [TopicPartition(topic, info.partition) for info in found]
        for topic, found in cluster.admin.describe_topics(None).items()
        if not isinstance(found, AdminError)
    }
    internal = internal_topics(application_id)
    mine = {topic for topic in partitions if topic.startswith(f"{application_id}-") and internal.fullmatch(topic)}
    others = {topic: owner for topic in mine if (owner := _other_owner(topic, application_id, groups))}
    everything = [at for topic in partitions.keys() - mine for at in partitions[topic] if not topic.startswith("__")]
    committed = cluster.admin.committed_offsets(application_id, everything) if everything else {}
    if inputs:
        for topic in inputs:
            if topic not in partitions:
                near = get_close_matches(topic, partitions, n=1)
                raise _RefusedError(f"there is no topic {topic}" + (f"; did you mean {near[0]}?" if near else ""))
            if topic in mine:
                raise _RefusedError(f"{topic} is an internal topic of {application_id}: it is deleted, not read again")
        chosen = [at for topic in inputs for at in partitions[topic]]
    else:
        read = {at.topic for at, offset in committed.items() if offset is not None}
        chosen = [at for topic in sorted(read) for at in partitions[topic]]
    if not chosen and not mine - others.keys():
        raise _RefusedError(
            f"{application_id} has neither committed offsets nor internal topics at {cluster.bootstrap}; is the name "
            f"right?" + _near_group(application_id, groups)
        )
    positions = _positions(cluster, chosen, committed, target)
    return Plan(
        {at: (committed.get(at), positions[at]) for at in sorted(chosen)}, sorted(mine - others.keys()), others, removed
    )


def _near_group(name: str, groups: Collection[str]) -> str:
    near = get_close_matches(name, groups, n=1)
    return f" There is a group {near[0]}." if near else ""


def _other_owner(topic: str, application_id: str, groups: Collection[str]) -> str | None:
    """The group that the topic belongs to when its name begins with a longer application.id than ours."""
    longer = [group for group in groups if group.startswith(f"{application_id}-") and topic.startswith(f"{group}-")]
    return max(longer, key=len, default=None)


def _positions(
    cluster: Connection,
    chosen: Collection[TopicPartition],
    committed: Mapping[TopicPartition, int | None],
    target: Target,
) -> dict[TopicPartition, int]:
    """New positions; what lies outside of a partition is its first or its end offset."""
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
            raise BrokerUnavailableError(f"the offsets of {at} are not known: {offset.message}")
        known[at] = offset
    return known


def _print(plan: Plan, application_id: str, state_dir: str | None) -> None:
    for member in plan.removed:
        print(printable(f"remove member {member.client_id} at {member.client_host}"))
    if not plan.positions:
        print(
            "no committed offsets are visible: none are there, or this user lacks DESCRIBE on topics; --input-topic "
            "names them"
        )
    if not plan.deleted:
        print("no internal topics are visible: none are there, or this user lacks DESCRIBE on them")
    moved = [(at, old, new) for at, (old, new) in plan.positions.items() if old != new]
    for at, old, new in moved[:_SHOWN_MAX]:
        print(f"read {at} from {new}" + ("" if old is None else f" (it stands at {old})"))
    if len(moved) > _SHOWN_MAX:
        print(f"and {len(moved) - _SHOWN_MAX} more partitions")
    for topic in plan.deleted:
        print(f"delete topic {topic}")
    for topic, owner in sorted(plan.left_alone.items()):
        print(printable(f"leave topic {topic} alone: it belongs to {owner}"))
    if state_dir is not None:
        there = Path(state_dir, application_id).is_dir()
        print(f"delete the local state of {application_id} in {state_dir}" + ("" if there else ": there is none"))


def _carry_out(cluster: Connection, plan: Plan, application_id: str, state: StateDirectory | None) -> None:
    """Members, offsets, topics, disk: begun again after a failure, it does what is left."""
    if plan.removed:
        cluster.groups.remove_members(application_id, plan.removed)
        _await_empty(cluster, application_id)
    if plan.positions:
        cluster.groups.set_offsets(application_id, {at: new for at, (_, new) in plan.positions.items()})
    if plan.deleted:
        cluster.groups.delete_topics(plan.deleted)
    if state is not None:
        for path in state.clean_up():
            print(f"the state in {path} stays: a process that runs uses it")


def _await_empty(cluster: Connection, application_id: str) -> None:
    until = time.monotonic() + _MEMBERS_GONE_S
    while members := cluster.groups.describe_group(application_id).members:
        if time.monotonic() > until:
            raise StreamsError(
                f"members of {application_id} come back: {members[0].client_id} at {members[0].client_host} is alive; "
                "stop it"
            )
        time.sleep(0.3)
