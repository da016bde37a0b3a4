"""A2: a standby exists only of a stateful task, never beside its active, as often as configured or as clients allow.

Warm-ups are standbys beyond that number; the high-availability assignor alone makes them, and over all tasks no more
than are configured. With the static assignor clients allow what they have asked for, so there may be fewer standbys.
"""

from __future__ import annotations

from streams_protocol.types import HostInfo, TaskId
from streams_py.testing.checkers.a1_one_active import _info_with_hosts as info_with_hosts
from streams_py.testing.checkers.observation import Checker, Published

__all__ = ["Standbys"]

_VERSION_STANDBY_HOSTS = 6


class Standbys(Checker):
    """A copy beside its active dies with it, one too few is missed when a process dies, and one too many is paid for in
    disk and traffic."""

    promise = "A2"

    def published(self, seen: Published) -> None:
        if not seen.normal:
            return
        self.looked += 1
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
                    self.report(seen.at_ms, f"{member} has a standby of {task} beside its active")
                elif (task, client) in held:
                    self.report(seen.at_ms, f"{member} and {held[task, client]} of one process have standbys of {task}")
                held[task, client] = member

    def _check_hosts(self, seen: Published) -> None:
        info = info_with_hosts(seen)
        if info is None or info.version < _VERSION_STANDBY_HOSTS:
            return
        replicas = seen.configs.num_standby_replicas
        extra = 0
        for task in sorted(seen.stateful):
            inputs = frozenset(seen.tasks[task])
            hosts: set[HostInfo] = {host for host, parts in info.standby_partitions_by_host.items() if inputs <= parts}
            beside = {host for host in hosts if inputs & info.partitions_by_host.get(host, frozenset())}
            if beside:
                self.report(seen.at_ms, f"the standby of {task} is to be beside its active, on {sorted(beside)}")
            wanted = min(replicas, len(seen.hosts) - 1)
            if len(hosts) < wanted and seen.assignor != "static":
                self.report(seen.at_ms, f"{task} is to have {len(hosts)} standbys, not {wanted}")
            extra += max(0, len(hosts) - replicas)
        allowed = seen.configs.max_warmup_replicas if seen.assignor == "high_availability" else 0
        if extra > allowed:
            self.report(seen.at_ms, f"{extra} standbys more than configured; {allowed} warm-ups are allowed")
