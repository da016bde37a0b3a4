"""Promises about every assignment that a leader publishes."""

from __future__ import annotations

import random
from collections import Counter

from streams_protocol import AssignmentInfo
from streams_protocol.assignment_info import partitions_by_task
from streams_protocol.errors import ProtocolError
from streams_protocol.types import HostInfo, TaskId
from streams_py.testing.checkers.observation import Checker, Published

_VERSION_HOSTS = 2


class OneActive(Checker):
    """A1: in every assignment that a leader publishes, each task is active on exactly one thread.

    A task may be on no thread in one case only: another member claims one of its partitions and is about to revoke it,
    so the leader withholds the task for this generation (KIP-429). If all processes have end points, the host map shows
    the target placement including withheld tasks, so every partition must have exactly one host in it.

    Checks that each task is active once. Two threads process it twice into two states; with none it makes no progress.
    """

    promise = "A1"

    def published(self, seen: Published) -> None:
        if seen.failure is not None:
            return
        self.checks += 1
        if seen.assignments.keys() != seen.members.keys():
            odd = sorted(seen.assignments.keys() ^ seen.members.keys())
            self.report(seen.at_ms, f"members without an assignment, or assignments without a member: {odd}")
        placed = self._placed(seen)
        for task, members in sorted(placed.items()):
            if task not in seen.tasks:
                self.report(seen.at_ms, f"task {task} does not exist, but is active on {members}")
            elif len(members) > 1:
                self.report(seen.at_ms, f"task {task} is active on {members}")
        if seen.normal:
            self._check_missing(seen, placed)
            self._check_hosts(seen)

    def _placed(self, seen: Published) -> dict[TaskId, list[str]]:
        placed: dict[TaskId, list[str]] = {}
        owners: Counter[object] = Counter()
        for member, info in sorted(seen.infos.items()):
            if info is None:
                self.report(seen.at_ms, f"{member} receives an assignment that no release can read")
                continue
            partitions = seen.assignments[member].partitions
            owners.update(partitions)
            try:
                by_task = partitions_by_task(partitions, info.active_tasks)
            except ProtocolError as error:
                self.report(seen.at_ms, f"{member}: {error}")
                continue
            for task, inputs in by_task.items():
                placed.setdefault(task, []).append(member)
                if task in seen.tasks and frozenset(seen.tasks[task]) != inputs:
                    self.report(seen.at_ms, f"{member} gets task {task} with {sorted(map(str, inputs))}")
        for partition, count in owners.items():
            if count > 1:
                self.report(seen.at_ms, f"{partition} is assigned {count} times")
        return placed

    def _check_missing(self, seen: Published, placed: dict[TaskId, list[str]]) -> None:
        claimed = {tp for member in seen.members.values() for tp in member.owned}
        for task, inputs in seen.tasks.items():
            if task not in placed and not claimed.intersection(inputs):
                self.report(seen.at_ms, f"task {task} is not active on any member, although no member claims it")

    def _check_hosts(self, seen: Published) -> None:
        info = _info_with_hosts(seen)
        if info is None:
            return
        count = Counter(tp for partitions in info.partitions_by_host.values() for tp in partitions)
        wanted = {tp for inputs in seen.tasks.values() for tp in inputs}
        if set(count) != wanted or set(count.values()) - {1}:
            odd = sorted(str(tp) for tp in wanted | set(count) if count[tp] != 1)
            self.report(seen.at_ms, f"the host map has not exactly one active host for {', '.join(odd[:5])}")


def _info_with_hosts(seen: Published) -> AssignmentInfo | None:
    """Return an assignment whose host maps cover every client that can have tasks; None if no assignment does."""
    normal = {member: info for member, info in seen.infos.items() if info is not None and not info.error_code}
    if any(seen.subscriptions[member] is None for member in normal):
        return None  # a client of a future version: its end point is unknown here
    processes = {sent.process_id for member in normal if (sent := seen.subscriptions[member]) is not None}
    if not normal or set(seen.hosts.values()) != processes:
        return None
    info = next(iter(normal.values()))
    return info if info.version >= _VERSION_HOSTS else None


_VERSION_STANDBY_HOSTS = 6


class Standbys(Checker):
    """A2: only stateful tasks have standbys, never with the active task, and as many as configured or possible.

    Warm-up tasks are standbys beyond that number. Only the high-availability assignor creates them, and over all tasks
    at most `max.warmup.replicas`. With the static assignor a client takes only the tasks that it requested, so there
    may be fewer standbys than configured.

    Checks the number and placement of standbys. A standby on the same process as the active task fails together with
    it. Too few standbys delay a failover; too many cost disk space and network traffic.
    """

    promise = "A2"

    def published(self, seen: Published) -> None:
        if not seen.normal:
            return
        self.checks += 1
        self._check_members(seen)
        self._check_hosts(seen)

    def _check_members(self, seen: Published) -> None:
        active: dict[TaskId, object] = {}
        held: dict[tuple[TaskId, object], str] = {}
        for member, info in seen.infos.items():
            if info is not None:
                active |= dict.fromkeys(info.active_tasks, seen.clients[member])
        for member, info in sorted(seen.infos.items()):
            for task in () if info is None else info.standby_tasks:
                client = seen.clients[member]
                if task not in seen.stateful:
                    self.report(seen.at_ms, f"{member} has a standby of {task}, which has no state")
                elif active.get(task) == client:
                    self.report(seen.at_ms, f"{member} has a standby of {task} in the process of the active task")
                elif (task, client) in held:
                    self.report(seen.at_ms, f"{member} and {held[task, client]} of one process have standbys of {task}")
                held[task, client] = member

    def _check_hosts(self, seen: Published) -> None:
        info = _info_with_hosts(seen)
        if info is None or info.version < _VERSION_STANDBY_HOSTS:
            return
        replicas = seen.configs.num_standby_replicas
        extra = 0
        for task in sorted(seen.stateful):
            inputs = frozenset(seen.tasks[task])
            hosts: set[HostInfo] = {host for host, parts in info.standby_partitions_by_host.items() if inputs <= parts}
            shared = {host for host in hosts if inputs & info.partitions_by_host.get(host, frozenset())}
            if shared:
                self.report(seen.at_ms, f"standby and active task of {task} are both placed on {sorted(shared)}")
            wanted = min(replicas, len(seen.hosts) - 1)
            if len(hosts) < wanted and seen.assignor != "static":
                self.report(seen.at_ms, f"{task} gets {len(hosts)} standbys, expected {wanted}")
            extra += max(0, len(hosts) - replicas)
        allowed = seen.configs.max_warmup_replicas if seen.assignor == "high_availability" else 0
        if extra > allowed:
            self.report(seen.at_ms, f"{extra} standbys more than configured; {allowed} warm-ups are allowed")


_ONE_IN = 6


class Determinism(Checker):
    """A6: the same input gives the same bytes, in any order of the members.

    One in several assign steps is repeated by a new leader, with members and topics in another order. The campaign
    compares the fingerprints of runs to check that other processes with other hash seeds give the same bytes.

    Checks that assignments are deterministic. Otherwise a change of the leader would move tasks, and a failed run could
    not be repeated.
    """

    promise = "A6"

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0

    def published(self, seen: Published) -> None:
        self._steps += 1
        if seen.again is None or seen.failure is not None or self._steps % _ONE_IN != 1:
            return
        repeated = seen.again(random.Random(self._steps))
        if repeated is None:
            return
        self.checks += 1
        different = sorted(m for m in seen.assignments if repeated.get(m) != seen.assignments[m])
        if different:
            self.report(seen.at_ms, f"the same step gives other bytes for {', '.join(different)}")
