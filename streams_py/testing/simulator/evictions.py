"""Removal of members by other clients: dead members, living members by mistake, or any member by a hostile client.

Each process has its members on record, with the rules of :mod:`streams_py.state.directory.member_record`. While
``Fault.EVICTIONS`` is active, a process that starts removes the members of its former run. If a process is killed,
another process removes its members. A hostile client ("liar") names any members in its requests, including static ones.

A separate generator draws the random numbers, so schedules without these faults run as before.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from streams_py.state.directory.member_record import LockIdentity, MemberRecord, RecordedMember
from streams_py.testing.simulator.faults.faults import Fault

if TYPE_CHECKING:
    from streams_py.testing.simulator.process import SimulatedProcess
    from streams_py.testing.simulator.world import World

_GROUP: Final = "app"
_NOTICED_MS: Final = (10, 1_500)
"""Time until another process removes the members of a process that was killed, in ms."""


class MembersOnRecord:
    """The record in the state directory of a process. It survives a kill, but not the loss of the disk."""

    def __init__(self, number: int) -> None:
        self._lock = LockIdentity(0, number)
        self._members: dict[int, RecordedMember] = {}
        self._former: tuple[str, ...] = ()

    @property
    def removable(self) -> tuple[str, ...]:
        """Ids of the members that may be removed once the process has ended."""
        return MemberRecord(_GROUP, "", None, self._lock, tuple(self._members.values()), self._former).dynamic_ids()

    def joining(self, member: RecordedMember) -> None:
        """Put a member on record, before its JoinGroup request."""
        self._members[member.thread] = member

    def start_run(self) -> tuple[str, ...]:
        """Start the record of a new run. Return the ids of the former run's members, which stay on record."""
        self._former = self.removable
        self._members.clear()
        return self._former

    def former_removed(self) -> None:
        """Drop the ids of the former run's members."""
        self._former = ()

    def lose(self) -> None:
        """Lose the record with the disk."""
        self._members.clear()
        self._former = ()


class Evictions:
    """All LeaveGroup requests that clients send for members of other processes, or of a former run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(f"evictions {world.schedule.seed}")

    def started(self, process: SimulatedProcess) -> None:
        """Let a process that starts remove the members of its former run, before it joins."""
        former = process.on_record.start_run()
        if former and self._world.ongoing_faults.occurs(Fault.EVICTIONS, self._rng):
            self._send(f"{process.name}, of its former run", former)
            process.on_record.former_removed()

    def killed(self, process: SimulatedProcess) -> None:
        """Let another process notice that a process was killed, and remove its members."""
        ids = process.on_record.removable
        if ids and self._world.ongoing_faults.occurs(Fault.EVICTIONS, self._rng):
            self._world.timeline.after(self._rng.randrange(*_NOTICED_MS), self._by_sibling, process, ids)

    def _by_sibling(self, process: SimulatedProcess, ids: tuple[str, ...]) -> None:
        """Remove members, unless the process has started again. Then it has removed its former members itself."""
        siblings = [other for other in self._world.processes if other is not process and other.healthy_threads]
        if siblings and not process.alive and process.on_record.removable == ids:
            self._send(f"{siblings[0].name}, of {process.name}", ids)

    def late(self, process: SimulatedProcess, amount: int) -> None:
        """Kill a process, start it again, and remove the members of its former run at some time.

        The session timeout may have removed them already, and the process may be in the group again.
        """
        ids = self._kill_and_restart(process, amount)
        self._world.timeline.after(amount % 25_000, self._send, f"somebody, late, of {process.name}", ids)

    def several_times(self, process: SimulatedProcess, amount: int) -> None:
        """Kill a process, start it again, and let several clients remove the members of its former run."""
        ids = self._kill_and_restart(process, amount)
        for _ in range(2 + amount % 3):
            self._world.timeline.after(self._rng.randrange(4_000), self._send, f"several, of {process.name}", ids)

    def _kill_and_restart(self, process: SimulatedProcess, amount: int) -> tuple[str, ...]:
        ids = process.on_record.removable
        process.end(clean=False)
        process.start_after(amount // 7 % 15_000)
        return ids

    def alive(self, process: SimulatedProcess) -> None:
        """Remove the members of a process that runs or is frozen."""
        self._send(f"somebody by mistake, of {process.name}", process.on_record.removable)

    def lies(self, requests: int, lasts_ms: int) -> None:
        """Let a liar send requests for any members of the group and for ids that do not exist."""
        for _ in range(requests):
            self._world.timeline.after(self._rng.randrange(lasts_ms), self._lie)

    def _lie(self) -> None:
        if self._world.ongoing_faults.ended:
            return
        known = sorted(self._world.coordinator.known_ids)
        chosen = self._rng.sample(known, self._rng.randint(0, len(known)))
        self._send("a liar", (*chosen, "", "no-such-member", *chosen[:1]))

    def _send(self, whose: str, ids: tuple[str, ...]) -> None:
        self._world.timeline.after(self._rng.randrange(1, 20), self._arrives, whose, ids)

    def _arrives(self, whose: str, ids: tuple[str, ...]) -> None:
        removed = self._world.coordinator.evict(ids)
        self._world.note("{} of {} members removed by {}", removed, len(ids), whose)
