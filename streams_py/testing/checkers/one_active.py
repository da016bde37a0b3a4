"""A1: in every assignment that a leader publishes, each task is active on exactly one thread.

A task may be on no thread in one case only: another member claims one of its partitions and is about to revoke it, so
the leader withholds the task for this generation (KIP-429). If all processes have end points, the host map shows the
target placement including withheld tasks, so every partition must have exactly one host in it.
"""

from __future__ import annotations

from collections import Counter

from streams_protocol import AssignmentInfo
from streams_protocol.assignment_info import partitions_by_task
from streams_protocol.errors import ProtocolError
from streams_protocol.types import TaskId
from streams_py.testing.checkers.observation import Checker, Published

_VERSION_HOSTS = 2


class OneActive(Checker):
    """Checks that each task is active once. Two threads process it twice into two states; with none it makes no
    progress."""

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
    """Return an assignment whose host maps cover every client that can have tasks; None if that does not exist."""
    normal = {member: info for member, info in seen.infos.items() if info is not None and not info.error_code}
    if any(seen.subscriptions[member] is None for member in normal):
        return None  # a client of a future version: its end point is unknown here
    processes = {sent.process_id for member in normal if (sent := seen.subscriptions[member]) is not None}
    if not normal or set(seen.hosts.values()) != processes:
        return None
    info = next(iter(normal.values()))
    return info if info.version >= _VERSION_HOSTS else None
