"""A model of the broker's group coordinator: classic protocol, dynamic and static members, generations, sessions.

It handles JoinGroup, SyncGroup, Heartbeat, LeaveGroup and OffsetCommit as Kafka's ``GroupCoordinator`` does, for one
group of protocol type ``consumer``:

* Member ids are assigned before the first join (KIP-394).
* A rebalance waits for all known members, up to the largest rebalance timeout.
* The leader stays leader as long as it rejoins.
* A follower that rejoins with an unchanged subscription gets the current generation.
* Members that do not sync in time are removed.
* Static members (KIP-345) return without a rebalance.
* When the coordinator moves, the group returns to the last generation that was written to Kafka's log.

Heartbeats are not simulated one by one. A running client always sends them in time, so the expiry of a session is
planned only for a client that has stopped (:meth:`GroupCoordinator.silent`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from streams_protocol.types import TopicPartition
from streams_py.testing.simulator.models.timeline import Timeline

_INITIAL_DELAY_MS = 3_000  # group.initial.rebalance.delay.ms


class Reply(Enum):
    """Error codes of the group protocol."""

    NONE = "none"
    MEMBER_ID_REQUIRED = "member id required"
    UNKNOWN_MEMBER_ID = "unknown member id"
    ILLEGAL_GENERATION = "illegal generation"
    REBALANCE_IN_PROGRESS = "rebalance in progress"
    FENCED_INSTANCE_ID = "fenced instance id"
    NOT_COORDINATOR = "not coordinator"


@dataclass(frozen=True, slots=True)
class JoinReply:
    """Answer to JoinGroup. ``members`` (id, subscription) is set for the leader only; if empty, it does not assign."""

    error: Reply
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    members: tuple[tuple[str, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncReply:
    """Answer to SyncGroup."""

    error: Reply
    assignment: bytes = b""


class Client(Protocol):
    """The client behind a member id, as the coordinator sees it."""

    @property
    def responsive(self) -> bool:
        """Whether it sends heartbeats."""

    def told_to_rejoin(self) -> None:
        """Called when the answer to its next heartbeat would be that a rebalance is in progress."""


class GroupState(Enum):
    """States of a group."""

    EMPTY = "empty"
    PREPARING = "preparing rebalance"
    COMPLETING = "completing rebalance"
    STABLE = "stable"


@dataclass(slots=True)
class _Member:
    id: str
    client: Client
    instance_id: str | None
    metadata: bytes
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignment: bytes = b""
    joined: Callable[[JoinReply], None] | None = None
    syncing: Callable[[SyncReply], None] | None = None
    synced: bool = False
    joined_generation: int = -1
    """Last generation for which it sent a JoinGroup. Static members may be in later ones without sending one."""


@dataclass(slots=True)
class _Written:
    """The group as written to the coordinator's log."""

    generation: int = 0
    leader: str = ""
    members: dict[str, _Member] = field(default_factory=dict)
    assignments: dict[str, bytes] = field(default_factory=dict)


class GroupCoordinator:
    """The coordinator of one group."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.state = GroupState.EMPTY
        self.generation = 0
        self.leader = ""
        self.members: dict[str, _Member] = {}
        self.rebalances = 0
        """Number of generations formed so far."""
        self.check_generations = True
        """False plants a bug: commits of any member are accepted."""
        self._static: dict[str, str] = {}
        self._pending: set[str] = set()
        self._fenced: set[str] = set()
        self._next_member = 0
        self._round = 0  # invalidates planned deadlines
        self._written = _Written()
        self.on_generation: Callable[[], None] = lambda: None

    # -- requests ------------------------------------------------------------------------------------------------

    def join(
        self,
        client: Client,
        client_id: str,
        member_id: str,
        instance_id: str | None,
        metadata: bytes,
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        reply: Callable[[JoinReply], None],
    ) -> None:
        """Handle JoinGroup; ``reply`` is called now or when the rebalance completes."""

        def new(id: str) -> _Member:
            return _Member(id, client, instance_id, metadata, session_timeout_ms, rebalance_timeout_ms)

        if instance_id is not None and not member_id:
            self._join_static(instance_id, new(self._new_id(instance_id)), reply)
        elif member_id in self._fenced:
            reply(JoinReply(Reply.FENCED_INSTANCE_ID))
        elif not member_id:
            id = self._new_id(client_id)
            self._pending.add(id)
            self._timeline.after(session_timeout_ms, self._forget_pending, id)
            reply(JoinReply(Reply.MEMBER_ID_REQUIRED, id))
        elif member_id in self._pending:
            self._pending.discard(member_id)
            self._add(new(member_id), reply)
        elif member_id in self.members:
            self._rejoin(self.members[member_id], metadata, reply)
        else:
            reply(JoinReply(Reply.UNKNOWN_MEMBER_ID))

    def sync(
        self, member_id: str, generation: int, assignments: Mapping[str, bytes], reply: Callable[[SyncReply], None]
    ) -> None:
        """Handle SyncGroup; the leader sends ``assignments``."""
        error = self._check(member_id, generation)
        if error is Reply.NONE and self.state is GroupState.PREPARING:
            error = Reply.REBALANCE_IN_PROGRESS
        if error is not Reply.NONE:
            reply(SyncReply(error))
            return
        member = self.members[member_id]
        member.synced = True
        if self.state is GroupState.STABLE:
            reply(SyncReply(Reply.NONE, member.assignment))
            return
        member.syncing = reply
        if member_id == self.leader:
            self._store(assignments)

    def heartbeat(self, member_id: str, generation: int) -> Reply:
        """Handle Heartbeat."""
        error = self._check(member_id, generation)
        if error is Reply.NONE and self.state is GroupState.PREPARING:
            return Reply.REBALANCE_IN_PROGRESS
        return error

    def leave(self, member_id: str) -> None:
        """Handle LeaveGroup."""
        self._pending.discard(member_id)
        self._remove(member_id)

    def evict(self, member_ids: Iterable[str]) -> int:
        """Handle a LeaveGroup that another client sends for these members. Return the number of removed members.

        A removed client that runs learns of it with its next heartbeat.
        """
        removed = 0
        for member_id in member_ids:
            if member_id in self._pending:
                self._pending.discard(member_id)
                self._maybe_complete_join()
            elif (member := self.members.get(member_id)) is not None:
                removed += 1
                self._remove(member_id)
                member.client.told_to_rejoin()
        return removed

    def commit(self, member_id: str, generation: int, partitions: frozenset[TopicPartition]) -> Reply:
        """Handle OffsetCommit of these partitions by a member."""
        if not self.check_generations:
            return Reply.NONE
        error = self._check(member_id, generation)
        if error is Reply.NONE and self.state is GroupState.COMPLETING:
            return Reply.REBALANCE_IN_PROGRESS
        return error

    def silent(self, client: Client, *, since_ms: int) -> None:
        """Plan the expiry of a client that sent its last heartbeat ``since_ms`` ago.

        The client may be a member without knowing it, if it was killed before the answer to its first JoinGroup.
        """
        for member in self.members.values():
            if member.client is client:
                self._timeline.after(member.session_timeout_ms - since_ms, self._expire, member.id)

    @property
    def known_ids(self) -> frozenset[str]:
        """Ids of all members, and of clients that have an id but have not joined yet."""
        return frozenset(self._pending | self.members.keys())

    def is_current(self, member_id: str) -> bool:
        """Return whether it is a member that sent a JoinGroup for the current generation."""
        member = self.members.get(member_id)
        return member is not None and member.joined_generation == self.generation

    # -- moving to another broker --------------------------------------------------------------------------------

    def move(self) -> None:
        """Fail over to another broker: pending requests are rejected, and the group is loaded from the log."""
        self._round += 1
        for member in self.members.values():
            self._answer_join(member, JoinReply(Reply.NOT_COORDINATOR))
            self._answer_sync(member, SyncReply(Reply.NOT_COORDINATOR))
        self._pending.clear()
        written = self._written
        self.members = dict(written.members)
        self.generation, self.leader = written.generation, written.leader
        self._static = {m.instance_id: m.id for m in self.members.values() if m.instance_id is not None}
        for member in self.members.values():
            member.assignment = written.assignments.get(member.id, b"")
            member.synced = True
            member.joined_generation = min(member.joined_generation, self.generation)
            self._watch(member)
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY

    # -- joining -------------------------------------------------------------------------------------------------

    def _new_id(self, prefix: str) -> str:
        self._next_member += 1
        return f"{prefix}-{self._next_member:04d}"

    def _forget_pending(self, id: str) -> None:
        if id in self._pending:
            self._pending.discard(id)
            self._maybe_complete_join()

    def _join_static(self, instance_id: str, new: _Member, reply: Callable[[JoinReply], None]) -> None:
        old_id = self._static.get(instance_id)
        old = self.members.pop(old_id, None) if old_id is not None else None
        self._static[instance_id] = new.id
        if old is None:
            self._add(new, reply)
            return
        self._fenced.add(old.id)
        self._answer_join(old, JoinReply(Reply.FENCED_INSTANCE_ID))
        self._answer_sync(old, SyncReply(Reply.FENCED_INSTANCE_ID))
        new.assignment = old.assignment
        self.members[new.id] = new
        was_leader = self.leader == old.id
        if was_leader:
            self.leader = new.id
        match self.state:
            case GroupState.STABLE:
                new.joined_generation = self.generation
                new.synced = True
                self._write()
                self._watch(new)
                members = self._subscriptions() if was_leader else ()
                reply(JoinReply(Reply.NONE, new.id, self.generation, self.leader, members, skip_assignment=was_leader))
            case GroupState.PREPARING:
                new.joined = reply
                self._maybe_complete_join()
            case _:
                new.joined = reply
                self._prepare()

    def _add(self, member: _Member, reply: Callable[[JoinReply], None]) -> None:
        member.joined = reply
        self.members[member.id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.id
        if self.state is GroupState.PREPARING:
            self._maybe_complete_join()
        else:
            self._prepare()

    def _rejoin(self, member: _Member, metadata: bytes, reply: Callable[[JoinReply], None]) -> None:
        same = member.metadata == metadata
        is_leader = member.id == self.leader
        if self.state is GroupState.COMPLETING and same:
            members = self._subscriptions() if is_leader else ()
            reply(JoinReply(Reply.NONE, member.id, self.generation, self.leader, members))
            return
        if self.state is GroupState.STABLE and same and not is_leader:
            reply(JoinReply(Reply.NONE, member.id, self.generation, self.leader))
            return
        member.metadata = metadata
        member.joined = reply
        if self.state is GroupState.PREPARING:
            self._maybe_complete_join()
        else:
            self._prepare()

    def _prepare(self) -> None:
        """Start a rebalance: all members must join again."""
        was_empty = self.state is GroupState.EMPTY
        if self.state is GroupState.COMPLETING:
            for member in self.members.values():
                self._answer_sync(member, SyncReply(Reply.REBALANCE_IN_PROGRESS))
        self.state = GroupState.PREPARING
        self._round += 1
        limit_ms = max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
        self._timeline.after(_INITIAL_DELAY_MS if was_empty else limit_ms, self._join_deadline, self._round)
        self._waits_for_more = was_empty
        for member in list(self.members.values()):
            if member.joined is None:
                member.client.told_to_rejoin()
        self._maybe_complete_join()

    _waits_for_more = False

    def _maybe_complete_join(self) -> None:
        if self.state is not GroupState.PREPARING or self._waits_for_more or self._pending:
            return
        if all(member.joined is not None for member in self.members.values()):
            self._complete_join()

    def _join_deadline(self, round: int) -> None:
        if round == self._round and self.state is GroupState.PREPARING:
            self._waits_for_more = False
            self._complete_join()

    def _complete_join(self) -> None:
        for id in [id for id, member in self.members.items() if member.joined is None and member.instance_id is None]:
            del self.members[id]
        if self.members and all(member.joined is None for member in self.members.values()):
            self._round += 1  # only static members, and no member has returned yet
            limit_ms = max(member.rebalance_timeout_ms for member in self.members.values())
            self._timeline.after(limit_ms, self._join_deadline, self._round)
            return
        self._round += 1
        self.generation += 1
        if not self.members:
            self.state = GroupState.EMPTY
            self.leader = ""
            self._write()
            return
        joined = [member for member in self.members.values() if member.joined is not None]
        if self.leader not in {member.id for member in joined}:
            self.leader = joined[0].id
        self.state = GroupState.COMPLETING
        self.rebalances += 1
        subscriptions = self._subscriptions()
        for member in self.members.values():
            member.synced = False
        for member in joined:
            member.joined_generation = self.generation
            members = subscriptions if member.id == self.leader else ()
            self._answer_join(member, JoinReply(Reply.NONE, member.id, self.generation, self.leader, members))
            self._watch(member)
        limit_ms = max(member.rebalance_timeout_ms for member in self.members.values())
        self._timeline.after(limit_ms, self._sync_deadline, self.generation, self._round)
        self.on_generation()

    def _subscriptions(self) -> tuple[tuple[str, bytes], ...]:
        return tuple((member.id, member.metadata) for member in self.members.values())

    # -- syncing -------------------------------------------------------------------------------------------------

    def _store(self, assignments: Mapping[str, bytes]) -> None:
        self.state = GroupState.STABLE
        for member in self.members.values():
            member.assignment = assignments.get(member.id, b"")
        self._write()
        for member in self.members.values():
            self._answer_sync(member, SyncReply(Reply.NONE, member.assignment))
            self._watch(member)

    def _sync_deadline(self, generation: int, round: int) -> None:
        if generation != self.generation or round != self._round:
            return
        late = [id for id, member in self.members.items() if not member.synced and member.instance_id is None]
        for id in late:
            self._remove(id)

    # -- leaving -------------------------------------------------------------------------------------------------

    def _expire(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None or member.client.responsive:
            return
        if member.joined is not None or member.syncing is not None:
            self._timeline.after(member.session_timeout_ms, self._expire, member_id)
            return
        self._remove(member_id)

    def _watch(self, member: _Member) -> None:
        if not member.client.responsive:
            self._timeline.after(member.session_timeout_ms, self._expire, member.id)

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.instance_id is not None and self._static.get(member.instance_id) == member_id:
            del self._static[member.instance_id]
        self._answer_join(member, JoinReply(Reply.UNKNOWN_MEMBER_ID))
        self._answer_sync(member, SyncReply(Reply.UNKNOWN_MEMBER_ID))
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._prepare()
        else:
            self._maybe_complete_join()

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _check(self, member_id: str, generation: int) -> Reply:
        if member_id in self._fenced:
            return Reply.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return Reply.UNKNOWN_MEMBER_ID
        return Reply.NONE if generation == self.generation else Reply.ILLEGAL_GENERATION

    def _write(self) -> None:
        self._written = _Written(
            self.generation,
            self.leader,
            dict(self.members),
            {member.id: member.assignment for member in self.members.values()},
        )

    @staticmethod
    def _answer_join(member: _Member, reply: JoinReply) -> None:
        callback, member.joined = member.joined, None
        if callback is not None:
            callback(reply)

    @staticmethod
    def _answer_sync(member: _Member, reply: SyncReply) -> None:
        callback, member.syncing = member.syncing, None
        if callback is not None:
            callback(reply)
