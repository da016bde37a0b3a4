"""A whole group in one thread: real members, a real leader, real bytes, and the consumer's rules between them.

What the group coordinator and the consumers do (KIP-429) is played here: who gives up what before joining, what is
revoked after an assignment, who rejoins, and that the broker ignores a follower that rejoins with unchanged bytes.
After every single step the world is checked: no partition is usable on two members of one generation.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from streams_protocol import AssignmentInfo, decode_assignment_info, decode_subscription_info, encode_subscription_info
from streams_protocol.consumer import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from streams_protocol.types import HostInfo, TaskId, TopicPartition
from streams_py.leader.drive import run_assign
from streams_py.leader.effects import PublishAssignments
from streams_py.leader.events import AssignRequested
from streams_py.member import Member, MemberSettings, RebalanceProtocol
from streams_py.member.effects import (
    ApplyTasks,
    CloseLostTasks,
    CompleteRebalance,
    Effect,
    FailThread,
    Log,
    SendUserData,
    ShowHosts,
    StopApplication,
    SuspendTasks,
)
from streams_py.member.effects import RequestRejoin as RequestRejoinEffect
from streams_py.member.events import (
    AssignmentReceived,
    Event,
    LoopTurned,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    SubscriptionRequested,
)
from streams_py.ports import MemberSubscription
from streams_py.topology.physical.metadata import TopologyMetadata
from tests.unit.leader.kit import CheckedLeader, FakeCluster, pid, settings

RUNNING = -2


@dataclass
class SimulatedMember:
    """One stream thread. ``newest`` below 11 plays an older release, 12 a newer one."""

    name: str
    process: int
    member: Member
    newest: int = 11
    ahead: bool = False
    generation: int = -1
    owned: set[TopicPartition] = field(default_factory=set)
    active: dict[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    standby: set[TaskId] = field(default_factory=set)
    wants_rejoin: bool = False
    last_metadata: bytes = b""
    failure: Exception | None = None
    callbacks: list[tuple[str, frozenset[TopicPartition]]] = field(default_factory=list)

    def handle(self, event: Event) -> tuple[Effect, ...]:
        effects = self.member.handle(event)
        self.member.validate_state()
        for effect in effects:
            match effect:
                case ApplyTasks(tasks):
                    self.active, self.standby = dict(tasks.active), set(tasks.standby)
                case SuspendTasks(tasks) | CloseLostTasks(tasks):
                    for task in tasks:
                        self.active.pop(task, None)  # one that is lost may be suspended already
                case RequestRejoinEffect():
                    self.wants_rejoin = True
                case FailThread(error):
                    self.failure = error
                case SendUserData() | ShowHosts() | CompleteRebalance() | StopApplication() | Log():
                    pass  # nothing of them shows in this group
                case _:
                    assert_never(effect)
        return effects

    def user_data(self, sums: Mapping[TaskId, int]) -> bytes:
        [effect] = self.handle(SubscriptionRequested(sums))
        assert isinstance(effect, SendUserData)
        if self.ahead:
            return (12).to_bytes(4, "big") * 2
        info = decode_subscription_info(effect.user_data)
        if self.newest == 11 or info.version < 3:
            return effect.user_data
        return encode_subscription_info(
            replace(info, version=min(info.version, self.newest), latest_supported_version=self.newest)
        )

    def receive(self, partitions: tuple[TopicPartition, ...], user_data: bytes) -> None:
        self.handle(AssignmentReceived(partitions, user_data))
        if self.ahead:  # 11 < 12: step down, rejoin at once
            self.ahead, self.wants_rejoin = False, True


class SimulatedGroup:
    """Members by id, and what each process has on its disk (offset sum of every task it ever had)."""

    def __init__(self, topology: TopologyMetadata, cluster: FakeCluster, rng: random.Random, **changes: object) -> None:
        self.topology = topology
        self.cluster = cluster
        self.rng = rng
        self.changes = changes
        self.members: dict[str, SimulatedMember] = {}
        self.disks: dict[int, dict[TaskId, int]] = {}
        self.generation = 0
        self.rebalances = 0
        self.published: PublishAssignments | None = None
        self._born = 0

    # -- who is there ------------------------------------------------------------------------------------------------

    def join(self, process: int, *, newest: int = 11, upgrade_from: str | None = None) -> SimulatedMember:
        self._born += 1
        member = Member(MemberSettings(pid(process), endpoint=f"h{process}:1", upgrade_from=upgrade_from))
        name = f"p{process}-{self._born}"
        new = SimulatedMember(name, process, member, newest, ahead=newest > 11, wants_rejoin=True)
        self.members[name] = new
        self.disks.setdefault(process, {})
        return new

    def leave(self, name: str) -> None:
        """The broker noticed that it is gone; the others are told to rejoin."""
        del self.members[name]
        for member in self.members.values():
            member.wants_rejoin = True

    def lose_generation(self, name: str) -> None:
        self.members[name].generation = -1
        self.members[name].wants_rejoin = True

    # -- rebalances --------------------------------------------------------------------------------------------------

    def settle(self, *, rebalances_max: int) -> int:
        """Rebalance until nobody wants to any more, letting time pass; how often it took."""
        before = self.rebalances
        while self.step():
            assert self.rebalances - before <= rebalances_max, "the group does not come to rest"
        return self.rebalances - before

    def step(self) -> bool:
        """One rebalance, if somebody wants one now or later."""
        self.cluster.now_ms += 1
        self._turn_loops()
        if not any(member.wants_rejoin for member in self.members.values()):
            planned = [m.member.next_rebalance_ms for m in self.members.values()]
            if min(planned, default=2**63 - 1) == 2**63 - 1:
                return False
            self.cluster.now_ms = min(planned) + 1
            self._turn_loops()
        self.rebalance()
        return True

    def _turn_loops(self) -> None:
        for member in self.members.values():
            member.handle(LoopTurned(self.cluster.now_ms))

    def rebalance(self) -> None:
        if not self.members:
            return
        self.rebalances += 1
        protocol = self._protocol()
        joined = {}
        for member in self._shuffled():
            self._prepare(member, protocol)
            joined[member.name] = self._subscription(member)
        self.generation += 1
        leader = self.rng.choice(sorted(self.members))
        self.published = self._assign(self.members[leader], joined)
        if protocol is RebalanceProtocol.COOPERATIVE:
            self._check_as_the_consumer_does(joined)
        for member in self._shuffled():
            self._sync(member, protocol)
            self.check_usable()
        self._catch_up()

    def _shuffled(self) -> list[SimulatedMember]:
        order = sorted(self.members)
        self.rng.shuffle(order)
        return [self.members[name] for name in order]

    def _protocol(self) -> RebalanceProtocol:
        common = set.intersection(*(set(m.member.protocols) for m in self.members.values()))
        return RebalanceProtocol.COOPERATIVE if RebalanceProtocol.COOPERATIVE in common else RebalanceProtocol.EAGER

    def _prepare(self, member: SimulatedMember, protocol: RebalanceProtocol) -> None:
        """What the consumer gives up before it joins."""
        if member.generation == -1:
            if member.owned:
                self._call(member, "lost", member.owned)
                member.handle(PartitionsLost(tuple(sorted(member.owned))))
            member.owned = set()
        elif protocol is RebalanceProtocol.EAGER:
            self._call(member, "revoked", member.owned)
            member.handle(PartitionsRevoked(tuple(sorted(member.owned))))
            member.owned = set()

    def _subscription(self, member: SimulatedMember) -> MemberSubscription:
        data = member.user_data(self._sums(member))
        topics = tuple(sorted(self.topology.source_topics))
        sent = decode_subscription(
            encode_subscription(Subscription(topics, data, tuple(sorted(member.owned)), member.generation, None))
        )
        member.wants_rejoin = False
        generation = -1 if sent.generation_id is None else sent.generation_id
        return MemberSubscription(sent.topics, sent.user_data, sent.owned_partitions, generation, sent.rack_id)

    def _sums(self, member: SimulatedMember) -> dict[TaskId, int]:
        stateful = {sub for sub, topics in self.topology.subtopologies.items() if topics.is_logged}
        disk = self.disks[member.process]
        sums = {task: RUNNING for task in member.active if task.subtopology in stateful}
        sums |= {task: disk.get(task, 0) for task in member.standby}
        siblings = [m for m in self.members.values() if m.process == member.process]
        taken = {task for m in siblings for task in (*m.active, *m.standby)}
        if member is siblings[0]:  # it wins the locks of directories that nobody uses
            sums |= {task: offset for task, offset in disk.items() if task not in taken}
        return sums

    def _assign(self, leader: SimulatedMember, joined: Mapping[str, MemberSubscription]) -> PublishAssignments:
        topics = self.cluster.metadata(self.topology.source_topics)
        request = AssignRequested(self.cluster.now_ms, joined, topics, self.topology)
        own = replace(settings(**dict(self.changes)), process_id=pid(leader.process))
        outcome = run_assign(CheckedLeader(own), request, self.cluster.execute)
        assert isinstance(outcome, PublishAssignments), outcome
        assert outcome.assignments.keys() == joined.keys()
        return outcome

    def _check_as_the_consumer_does(self, joined: Mapping[str, MemberSubscription]) -> None:
        """The cooperative consumer's own check: nothing may be added here and revoked there."""
        assert self.published is not None
        added: set[TopicPartition] = set()
        revoked: set[TopicPartition] = set()
        for name, assignment in self.published.assignments.items():
            claimed, given = set(joined[name].owned), set(assignment.partitions)
            assert not added & (given - claimed), "given to two members"
            added |= given - claimed
            revoked |= claimed - given
        assert not added & revoked

    def _sync(self, member: SimulatedMember, protocol: RebalanceProtocol) -> None:
        assert self.published is not None
        sent = self.published.assignments[member.name]
        received = decode_assignment(encode_assignment(Assignment(sent.partitions, sent.user_data)))
        assert received.user_data is not None
        assigned = set(received.partitions)
        gone = member.owned - assigned
        if protocol is RebalanceProtocol.COOPERATIVE and gone:
            self._call(member, "revoked", gone)
            member.handle(PartitionsRevoked(tuple(sorted(gone))))
            member.owned -= gone
            member.wants_rejoin = True
        member.receive(received.partitions, received.user_data)
        added = assigned - member.owned
        member.owned, member.generation = assigned, self.generation
        self._call(member, "assigned", added)
        member.handle(PartitionsAssigned(tuple(sorted(added))))
        for task in (*member.active, *member.standby):
            if self.topology.subtopologies[task.subtopology].is_logged:
                self.disks[member.process].setdefault(task, 0)

    @staticmethod
    def _call(member: SimulatedMember, name: str, partitions: set[TopicPartition]) -> None:
        member.callbacks.append((name, frozenset(partitions)))

    def _catch_up(self) -> None:
        """Running tasks are at the end; standbys come some way closer."""
        end = self.cluster.end_offset
        for member in self.members.values():
            disk = self.disks[member.process]
            for task in (*member.active, *member.standby):
                if task in disk:
                    disk[task] = (
                        end if task in member.active else min(end, disk[task] + self.rng.randint(end // 4, end))
                    )

    # -- the world ---------------------------------------------------------------------------------------------------

    def check_usable(self) -> None:
        """No partition is usable twice, and a member works only on what its consumer owns."""
        usable: dict[TopicPartition, str] = {}
        for member in self.members.values():
            if member.generation != self.generation:
                continue  # not in this generation yet: it processes what it kept
            working = {tp for parts in member.active.values() for tp in parts}
            assert working <= member.owned, (member.name, working, member.owned)
        for member in self.members.values():
            for tp in member.owned if member.generation != -1 else ():
                assert usable.setdefault(tp, member.name) == member.name, f"{tp}: {usable[tp]} and {member.name}"

    def infos(self) -> dict[str, AssignmentInfo]:
        assert self.published is not None
        return {name: decode_assignment_info(a.user_data) for name, a in self.published.assignments.items()}

    def all_tasks(self) -> set[TaskId]:
        return {
            TaskId(number, p)
            for number, sub in self.topology.subtopologies.items()
            for p in range(max(self.cluster.topics[topic] for topic in sub.source_topics))
        }

    def target(self) -> tuple[dict[HostInfo, set[TopicPartition]], dict[HostInfo, set[TopicPartition]]]:
        """Where the last assignment wants every input partition, as active and as standby."""
        info = next(iter(self.infos().values()))
        return (
            {host: set(parts) for host, parts in info.partitions_by_host.items()},
            {host: set(parts) for host, parts in info.standby_partitions_by_host.items()},
        )
