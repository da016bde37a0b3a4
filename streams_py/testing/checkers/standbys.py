"""A2: only stateful tasks have standbys, on other processes than the active task, as many as configured or possible.

Warm-up tasks are standbys beyond that number. Only the high-availability assignor creates them, and over all tasks at
most `max.warmup.replicas`. With the static assignor a client takes only the tasks that it requested, so there may be
fewer standbys than configured.
"""

from __future__ import annotations

from streams_protocol.types import HostInfo, TaskId
from streams_py.testing.checkers.observation import Checker, Published
from streams_py.testing.checkers.one_active import _info_with_hosts as info_with_hosts

_VERSION_STANDBY_HOSTS = 6


class Standbys(Checker):
    """Checks the number and placement of standbys.

    A standby on the same process as the active task fails together with it. Too few standbys delay a failover; too many
    cost disk space and network traffic.
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
        info = info_with_hosts(seen)
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
