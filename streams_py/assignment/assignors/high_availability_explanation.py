"""The explanation of a high-availability decision: desired clients, movements, and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streams_protocol.types import TaskId
from streams_py.assignment.assignors.cluster import Cluster
from streams_py.assignment.assignors.movements import LagTable, Movement
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.explanation import Host, Limits, Rule, TaskExplanation
from streams_py.assignment.problem import Note


class HighAvailabilityExplanation:
    """Records facts between the steps and builds the explanation; used only on request."""

    def __init__(self, cluster: Cluster, configs: AssignmentConfigs) -> None:
        """Create it after stateful active tasks are placed and before the rack optimisation."""
        self._standby_rule = Rule.STANDBY_BY_LOAD
        self._remarks: dict[TaskId, tuple[str, ...]] = {}
        self._cluster = cluster
        self._configs = configs
        self._even = list(cluster.active)
        self._desired = list(cluster.active)

    def desired_placement_done(self, notes: Iterable[Note], *, by_tags: bool) -> None:
        """Record the placement of active tasks and standbys, before any movement.

        ``by_tags``: standbys were spread over tags.
        """
        self._standby_rule = Rule.STANDBY_BY_TAGS if by_tags else Rule.STANDBY_BY_LOAD
        for note in notes:
            if note.task is not None:
                self._remarks[note.task] = (*self._remarks.get(note.task, ()), note.text)
        self._desired = list(self._cluster.active)

    def tell(
        self, lags: LagTable, movements: Sequence[Movement], stateless: Sequence[TaskId], owners: Sequence[int]
    ) -> dict[TaskId, TaskExplanation]:
        """Return all explanations. ``owners`` are the clients of the stateless tasks."""
        cluster, configs = self._cluster, self._configs
        limits = Limits(
            configs.acceptable_recovery_lag,
            configs.max_warmup_replicas,
            sum(movement.warms_up for movement in movements),
            configs.num_standby_replicas,
        )
        count = list(cluster.count)
        for owner in owners:
            count[owner] += 1
        load = [tasks / capacity for tasks, capacity in zip(count, cluster.capacity)]
        of_task: dict[int, list[Movement]] = {}
        for movement in movements:
            of_task.setdefault(movement.task, []).append(movement)
        result = {
            task: self._stateful(number, lags, of_task.get(number, []), limits, load)
            for number, task in enumerate(cluster.tasks)
        }
        for task, owner in zip(stateless, owners):
            process_id = cluster.process_ids[owner]
            host = Host(process_id, Rule.FEWEST_ACTIVES, None, load[owner])
            result[task] = TaskExplanation(task, host, process_id, limits)
        return result

    def _stateful(
        self, task: int, lags: LagTable, movements: list[Movement], limits: Limits, load: list[float]
    ) -> TaskExplanation:
        cluster, desired = self._cluster, self._desired[task]
        ids, active = cluster.process_ids, cluster.active[task]
        rules: dict[int, Rule] = {}
        for movement in movements:
            if not movement.active:
                rules[movement.source] = Rule.STANDBY_MOVED
            if movement.swap:
                rules[movement.dest] = Rule.CHANGED_ROLES
            elif movement.warms_up:
                rules[movement.dest] = Rule.WARMING_UP
        waiting = [m.dest for m in movements if m.dest != active and m.dest not in cluster.standby[task]]

        def host(client: int, rule: Rule) -> Host:
            return Host(ids[client], rule, lags.lag(task, client), load[client])

        known = sorted((lag, client) for client, lag in (lags.reported[task] or {}).items())
        return TaskExplanation(
            cluster.tasks[task],
            host(active, self._active_rule(task, lags, movements)),
            ids[desired],
            limits,
            tuple(host(c, rules.get(c, self._standby_rule)) for c in sorted(cluster.standby[task])),
            tuple(ids[client] for client in sorted(waiting)),
            tuple((ids[client], lag) for lag, client in known),
            lags.end[task],
            self._remarks.get(cluster.tasks[task], ()),
        )

    def _active_rule(self, task: int, lags: LagTable, movements: list[Movement]) -> Rule:
        for movement in movements:
            if movement.active:
                if not lags.is_caught_up(task, movement.source):
                    return Rule.NEAREST
                return Rule.CAUGHT_UP_STANDBY if movement.swap else Rule.CAUGHT_UP
        return Rule.EVEN_SHARE if self._desired[task] == self._even[task] else Rule.RACKS
