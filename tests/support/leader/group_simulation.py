"""A whole group in one thread, with real members, a real leader and real bytes.

The simulation plays the group coordinator and the consumers (KIP-429): the partitions that members give up before
joining, the partitions revoked after an assignment, and the members that rejoin. It also plays the broker, which
ignores a follower that rejoins with unchanged bytes. The group is checked after every step: no partition is usable on
two members of one generation.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

from streams_protocol import (
    LATEST_SUPPORTED_VERSION,
    NO_FOLLOW_UP,
    AssignmentInfo,
    decode_assignment_info,
    decode_subscription_info,
    encode_subscription_info,
)
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
from streams_py.member.events import LoopTurned
from streams_py.member.group_model.copies import Copies
from streams_py.member.group_model.member import ModelMember
from streams_py.member.group_model.ownership import Ownership, Partitions
from streams_py.member.group_model.rest import Round, follow
from streams_py.ports import MemberSubscription
from streams_py.topology.physical.metadata import TopologyMetadata
from tests.support.leader.kit import CheckedLeader, FakeCluster, pid, settings


class SimulatedMember(ModelMember):
    """One stream thread. ``newest`` is the newest version of its release."""

    def __init__(self, name: str, process: int, member: Member, newest: int) -> None:
        super().__init__(member)
        self.name = name
        self.process = process
        self.newest = newest
        self.ahead = newest > LATEST_SUPPORTED_VERSION
        self.generation = -1
        self.ownership = Ownership(self)
        self.wants_rejoin = True
        self.failure: Exception | None = None
        self.callbacks: list[tuple[str, Partitions]] = []

    @property
    def owned(self) -> Partitions:
        return self.ownership.owned

    def request_rejoin(self) -> None:
        self.wants_rejoin = True

    def complete_rebalance(self) -> None:
        """Do nothing: tasks run as soon as they are assigned."""

    def stop_application(self) -> None:
        """Do nothing: no test requests a shutdown here."""

    def fail_thread(self, error: Exception) -> None:
        self.failure = error

    def on_lost(self, partitions: Partitions) -> None:
        self.callbacks.append(("lost", partitions))
        super().on_lost(partitions)

    def on_revoked(self, partitions: Partitions) -> None:
        self.callbacks.append(("revoked", partitions))
        super().on_revoked(partitions)

    def on_owned(self, before: Partitions, now: Partitions) -> None:
        """Do nothing: ``owned`` has the partitions."""

    def on_assigned(self, added: Partitions) -> None:
        self.callbacks.append(("assigned", added))
        super().on_assigned(added)

    def user_data(self, sums: Mapping[TaskId, int]) -> bytes:
        user_data = self.subscribe(sums)
        if self.ahead:
            return (LATEST_SUPPORTED_VERSION + 1).to_bytes(4, "big") * 2
        info = decode_subscription_info(user_data)
        if self.newest == LATEST_SUPPORTED_VERSION or info.version < 3:
            return user_data
        return encode_subscription_info(
            replace(info, version=min(info.version, self.newest), latest_supported_version=self.newest)
        )

    def on_assignment(self, partitions: tuple[TopicPartition, ...], user_data: bytes) -> None:
        super().on_assignment(partitions, user_data)
        if self.ahead:  # the group uses an older version: step down, rejoin immediately
            self.ahead, self.wants_rejoin = False, True


class SimulatedGroup:
    """Members by id, and the tasks on each process's disk: all tasks that the process ever had."""

    def __init__(self, topology: TopologyMetadata, cluster: FakeCluster, rng: random.Random, **changes: object) -> None:
        self.topology = topology
        self.cluster = cluster
        self.rng = rng
        self.changes = changes
        self.members: dict[str, SimulatedMember] = {}
        self.disks: dict[int, Copies] = {}
        self.generation = 0
        self.rebalances = 0
        self.published: PublishAssignments | None = None
        self._born = 0

    # -- members -----------------------------------------------------------------------------------------------------

    def join(
        self, process: int, *, newest: int = LATEST_SUPPORTED_VERSION, upgrade_from: str | None = None
    ) -> SimulatedMember:
        self._born += 1
        member = Member(MemberSettings(pid(process), endpoint=f"h{process}:1", upgrade_from=upgrade_from))
        name = f"p{process}-{self._born}"
        new = self.members[name] = SimulatedMember(name, process, member, newest)
        self.disks.setdefault(process, Copies())
        return new

    def leave(self, name: str) -> None:
        """Remove a member as the broker does; the other members must rejoin."""
        del self.members[name]
        for member in self.members.values():
            member.wants_rejoin = True

    def lose_generation(self, name: str) -> None:
        self.members[name].generation = -1
        self.members[name].wants_rejoin = True

    # -- rebalances --------------------------------------------------------------------------------------------------

    def settle(self, *, rebalances_max: int) -> int:
        """Rebalance until no member requests it, letting time pass; return the number of rebalances."""
        if not self._is_due():
            return 0
        rest = follow(self._rounds(), rebalances_max)
        assert rest.stable, f"the group does not come to rest: {rest}"
        return rest.rounds

    def _rounds(self) -> Iterator[Round]:
        while True:
            self.rebalance()
            yield Round({name: set(member.active) for name, member in self.members.items()}, self._is_due())

    def _is_due(self) -> bool:
        """Whether a member requests a rebalance; if none does yet, let time pass until one does."""
        self.cluster.now_ms += 1
        self._turn_loops()
        if not any(member.wants_rejoin for member in self.members.values()):
            planned = min((m.member.next_rebalance_ms for m in self.members.values()), default=NO_FOLLOW_UP)
            if planned == NO_FOLLOW_UP:
                return False
            self.cluster.now_ms = planned + 1
            self._turn_loops()
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
            member.ownership.prepare_to_join(
                is_member=member.generation != -1, cooperative=protocol is RebalanceProtocol.COOPERATIVE
            )
            joined[member.name] = self._subscription(member)
        self.generation += 1
        leader = self.rng.choice(sorted(self.members))
        self.published = self._assign(self.members[leader], joined)
        if protocol is RebalanceProtocol.COOPERATIVE:
            self._check_as_the_consumer_does(joined)
        for member in self._shuffled():
            self._sync(member)
            self.check_usable()
        self._catch_up()

    def _shuffled(self) -> list[SimulatedMember]:
        order = sorted(self.members)
        self.rng.shuffle(order)
        return [self.members[name] for name in order]

    def _protocol(self) -> RebalanceProtocol:
        common = set.intersection(*(set(m.member.protocols) for m in self.members.values()))
        return RebalanceProtocol.COOPERATIVE if RebalanceProtocol.COOPERATIVE in common else RebalanceProtocol.EAGER

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
        reported = [task for task in member.active if task.subtopology in stateful] + sorted(member.standby)
        siblings = [m for m in self.members.values() if m.process == member.process]
        taken = {task for m in siblings for task in (*m.active, *m.standby)}
        if member is siblings[0]:  # this member gets the locks of unused directories
            reported += [task for task in disk if task not in taken]
        return disk.report(reported, running=member.active.keys())

    def _assign(self, leader: SimulatedMember, joined: Mapping[str, MemberSubscription]) -> PublishAssignments:
        topics = self.cluster.metadata(self.topology.source_topics)
        request = AssignRequested(self.cluster.now_ms, joined, topics, self.topology)
        own = replace(settings(**dict(self.changes)), process_id=pid(leader.process))
        outcome = run_assign(CheckedLeader(own), request, self.cluster.execute)
        assert isinstance(outcome, PublishAssignments), outcome
        assert outcome.assignments.keys() == joined.keys()
        return outcome

    def _check_as_the_consumer_does(self, joined: Mapping[str, MemberSubscription]) -> None:
        """Check like the cooperative consumer: no partition may be added on one member and revoked on another."""
        assert self.published is not None
        added: set[TopicPartition] = set()
        revoked: set[TopicPartition] = set()
        for name, assignment in self.published.assignments.items():
            claimed, given = set(joined[name].owned), set(assignment.partitions)
            assert not added & (given - claimed), "given to two members"
            added |= given - claimed
            revoked |= claimed - given
        assert not added & revoked

    def _sync(self, member: SimulatedMember) -> None:
        assert self.published is not None
        sent = self.published.assignments[member.name]
        received = decode_assignment(encode_assignment(Assignment(sent.partitions, sent.user_data)))
        assert received.user_data is not None
        if member.ownership.taken_away_by(frozenset(received.partitions)):
            member.wants_rejoin = True
        member.ownership.take(received.partitions, received.user_data)
        member.generation = self.generation
        self.disks[member.process].open(
            task
            for task in (*member.active, *member.standby)
            if self.topology.subtopologies[task.subtopology].is_logged
        )

    def _catch_up(self) -> None:
        """Move running tasks to the end of their changelogs, and standbys part of the way."""
        end = self.cluster.end_offset
        for member in self.members.values():
            disk = self.disks[member.process]
            ends = dict.fromkeys(disk, end)
            disk.restore(member.active.keys() & ends.keys(), ends, None)
            for task in member.standby:
                disk.restore([task], ends, self.rng.randint(end // 4, end))

    # -- checks ------------------------------------------------------------------------------------------------------

    def check_usable(self) -> None:
        """Check that no partition is usable twice, and that members use only what their consumers own."""
        usable: dict[TopicPartition, str] = {}
        for member in self.members.values():
            if member.generation != self.generation:
                continue  # not in this generation yet: it processes the partitions that it kept
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
        """Return the active and standby host of every input partition in the last assignment."""
        info = next(iter(self.infos().values()))
        return (
            {host: set(parts) for host, parts in info.partitions_by_host.items()},
            {host: set(parts) for host, parts in info.standby_partitions_by_host.items()},
        )
