"""A broker's group coordinator for members in one process, one step at a time; no threads, no clock.

Members are driven in turn by :meth:`FakeGroup.settle`. It chooses the protocol, names the leader, and answers rejoins
as Kafka does: a follower that comes back unchanged starts no rebalance.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streams_protocol.connect import Assignment
from streams_py.connect.assignment.jobs import Jobs
from streams_py.connect.assignment.leader import ConfigSnapshot, GroupLeader
from streams_py.connect.assignment.modes import Mode
from streams_py.connect.group.coordinator import GroupHandler
from streams_py.connect.group.member import GroupMember, MemberSettings
from tests.support.clocks import FakeClock
from tests.support.connect.trace import D, jobs


class FakeGroup:
    """The broker's state. ``rounds`` counts completed rebalances."""

    def __init__(self) -> None:
        self.generation = 0
        self.rounds = 0
        self.protocol = ""
        self.leader = ""
        self.members: dict[str, FakeCoordinator] = {}
        self.metadata: dict[str, dict[str, bytes]] = {}
        self.waiting: set[str] = set()
        self.answers: dict[str, bytes] = {}
        self.is_away = False
        self.clock = FakeClock()
        self._ids = 0

    def new_id(self) -> str:
        self._ids += 1
        return f"m{self._ids}"

    def join(self, member: FakeCoordinator) -> None:
        protocols = dict(member.handler.protocols())
        unchanged = self.metadata.get(member.id) == protocols and member.id in self.answers
        if not self.waiting and unchanged and member.id != self.leader:
            member.complete(self.answers[member.id])
            return
        self.metadata[member.id] = protocols
        self.waiting.add(member.id)
        for other in self.members.values():
            if other.id not in self.waiting:
                other.rejoin_needed = True
        if self.waiting >= self.members.keys():
            self._complete()

    def leave(self, member: FakeCoordinator) -> None:
        self.members.pop(member.id, None)
        self.metadata.pop(member.id, None)
        self.answers.pop(member.id, None)
        self.waiting.discard(member.id)
        for other in self.members.values():
            other.rejoin_needed = True
        if self.members and self.waiting >= self.members.keys():
            self._complete()

    def _complete(self) -> None:
        self.generation += 1
        self.rounds += 1
        common = set.intersection(*(set(self.metadata[name]) for name in self.members))
        first = self.metadata[min(self.members)]
        self.protocol = next(name for name in first if name in common)
        if self.leader not in self.members:
            self.leader = min(self.members, key=lambda name: int(name[1:]))
        leader = self.members[self.leader]
        for member in self.members.values():
            member.generation_id = self.generation
        self.answers = leader.handler.perform(
            self.leader,
            self.protocol,
            {name: self.metadata[name][self.protocol] for name in self.members},
            self.generation,
        )
        self.waiting.clear()
        for name, member in self.members.items():
            member.complete(self.answers[name])

    def settle(self, workers: list[Worker], rounds: int = 12) -> None:
        """Poll all members, and wait for delays, until no member wants to rejoin."""
        for _ in range(rounds * 4):
            for worker in workers:
                worker.turn()
            # A member that has joined asks for nothing until it has read its assignment.
            if self.waiting or any(worker.member.needs_rejoin() or worker.member._joined for worker in workers):
                continue
            delay = max(worker.delay_ms for worker in workers)
            if delay == 0:
                return
            self.clock.now += delay
            for worker in workers:
                worker.member.request_rejoin()
        raise AssertionError("the group does not come to rest")


class FakeCoordinator:
    """One member's connection to a :class:`FakeGroup`."""

    def __init__(self, group: FakeGroup, handler: GroupHandler) -> None:
        self.group, self.handler = group, handler
        self.id = ""
        self.generation_id = -1
        self.rejoin_needed = True
        self.is_joining = False

    def is_unknown(self) -> bool:
        return self.group.is_away

    def find(self, timeout_ms: int) -> bool:
        return not self.group.is_away

    def needs_rejoin(self) -> bool:
        return self.rejoin_needed

    def request_rejoin(self) -> None:
        self.rejoin_needed = True

    def join(self, timeout_ms: int) -> bool:
        if self.group.is_away:
            return False
        if not self.id:
            self.handler.protocols()  # the join that is answered with an id
            self.id = self.group.new_id()
            self.group.members[self.id] = self
        if self.id not in self.group.waiting:
            self.is_joining = True
            self.group.join(self)
        return not self.is_joining

    def complete(self, answer: bytes) -> None:
        self.is_joining = self.rejoin_needed = False
        self.handler.joined(self.group.generation, self.id, self.group.protocol, answer)

    def generation(self) -> tuple[int, str]:
        return (self.group.generation, self.id) if self.id and not self.is_joining else (-1, "")

    def poll_heartbeat(self) -> None:
        pass

    def leave(self, reason: str) -> None:
        if self.id:
            self.group.leave(self)
        self.id, self.rejoin_needed, self.is_joining = "", True, False

    def close(self) -> None:
        self.leave("closing")


@dataclass
class Worker:
    """A member and its jobs. ``log`` contains the calls of its listener, in order."""

    group: FakeGroup
    snapshot: ConfigSnapshot
    mode: Mode = Mode.STATIC
    lists: str | None = None
    log: list[tuple[str, Jobs]] = field(default_factory=list)
    running: Jobs = field(default_factory=Jobs)
    delay_ms: int = 0

    def __post_init__(self) -> None:
        listed = None if self.lists is None else jobs(self.lists)
        settings = MemberSettings(
            url="http://worker:8083/",
            mode=self.mode,
            static_connectors=None if listed is None else listed.connectors,
            static_tasks=None if listed is None else listed.tasks,
            retry_backoff_ms=0,
        )
        self.snapshots = 0
        self.member = GroupMember(
            settings,
            self._look,
            self,
            GroupLeader(D, self.group.clock.now_ms),
            lambda handler: FakeCoordinator(self.group, handler),
        )

    def _look(self) -> ConfigSnapshot:
        self.snapshots += 1
        return self.snapshot

    def on_revoked(self, revoked: Jobs) -> None:
        self.log.append(("revoked", revoked))
        self.running -= revoked

    def on_assigned(self, held: Assignment, generation: int) -> None:
        self.log.append(("assigned", Jobs.of(held.connectors, held.tasks)))
        self.delay_ms = held.delay_ms
        if not held.failed:
            self.running = Jobs.of(held.connectors, held.tasks)
        if held.revoked_connectors or held.revoked_tasks:
            self.member.request_rejoin()

    def turn(self) -> None:
        self.member.poll(0)
