"""The static assignor: each client lists the tasks that it runs (``static.tasks``).

Set ``task.assignor.class`` to ``static`` on all clients: the lists only take effect while the group's leader uses this
assignor. :mod:`~streams_py.assignment.assignors.static_rules` describes the rules. All settings are optional:

* ``static.tasks`` of a client: the tasks that it may run, as ``2_0``, ``2_0-5`` or ``2_*``. Absent: all tasks that no
  client lists. Empty: no tasks.
* ``static.tasks.spill`` of the leader (default false): if every client has a list, tasks that no client lists go to
  these clients. Otherwise no client runs them.
* ``static.tasks.warmup`` of the leader (default false): a task with state stays where it is until its new client has
  caught up (``acceptable.recovery.lag``, ``max.warmup.replicas``, ``probing.rebalance.interval.ms``).

Kafka Streams has no such assignor. It uses only KIP-924 (assignors) and KIP-708 (client tags).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from streams_protocol.task_list import STATIC_TASKS, TaskList
from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.api import (
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    KafkaStreamsState,
    TaskAssignment,
    TaskAssignor,
    TaskType,
)
from streams_py.assignment.assignment_map import explanations_of, has_changelog
from streams_py.assignment.assignors.static_rules import StaticClient, StaticPlacement, WarmUps, place_static
from streams_py.assignment.explanation import TaskExplanation
from streams_py.errors import ConfigError

STATIC_TASKS_SPILL: Final = "static.tasks.spill"
STATIC_TASKS_WARMUP: Final = "static.tasks.warmup"

_log = logging.getLogger("streams_py.assignment")
_NAMED_MAX: Final = 20  # ids in one warning


class StaticTaskAssignor(TaskAssignor):
    """Assigns clients the tasks that they list, and all other tasks to clients without a list."""

    def __init__(self, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """``now`` is called only for a follow-up rebalance, which needs an absolute time (KIP-924)."""
        self._now = now
        self._spill = False
        self._warmup = False

    def configure(self, configs: Mapping[str, object]) -> None:
        """Read the two switches. Raises ConfigError for values other than true and false."""
        self._spill = _flag(configs, STATIC_TASKS_SPILL)
        self._warmup = _flag(configs, STATIC_TASKS_WARMUP)

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place all tasks; returns one entry for each client."""
        ids, placed = self._place(application_state)
        _warn(placed)
        result = _entries(ids, placed)
        if placed.followup:
            delay_ms = application_state.assignment_configs().probing_rebalance_interval_ms
            result[0] = result[0].with_followup_rebalance(self._now() + timedelta(milliseconds=delay_ms))
        return TaskAssignment(result)

    def explanations(self, application_state: ApplicationState) -> Mapping[TaskId, TaskExplanation]:
        """Return why :meth:`assign` places each task where it does."""
        ids, placed = self._place(application_state, tell=True)
        number_of, rules = {process_id: number for number, process_id in enumerate(ids)}, placed.rules or {}
        return explanations_of(
            application_state,
            _entries(ids, placed),
            lambda task, client: rules[task, number_of[client]],
            {task: ids[client] for task, client in placed.desired.items()},
        )

    def _place(
        self, application_state: ApplicationState, *, tell: bool = False
    ) -> tuple[list[ProcessId], StaticPlacement]:
        configs = application_state.assignment_configs()
        infos = application_state.all_tasks()
        tasks = sorted(infos)
        states = application_state.kafka_streams_states(compute_task_lags=self._warmup)
        ids = sorted(states)
        by_subtopology: dict[int, list[TaskId]] = {}
        for task in tasks:
            if not task.name:
                by_subtopology.setdefault(task.subtopology, []).append(task)
        placed = place_static(
            [_client(states[process_id], by_subtopology) for process_id in ids],
            tasks,
            {task for task in tasks if has_changelog(infos[task])},
            standbys=configs.num_standby_replicas,
            spill=self._spill,
            warmups=WarmUps(configs.acceptable_recovery_lag, configs.max_warmup_replicas) if self._warmup else None,
            tell=tell,
        )
        return ids, placed


def _client(state: KafkaStreamsState, tasks: Mapping[int, Sequence[TaskId]]) -> StaticClient:
    value = state.client_tags.get(STATIC_TASKS)
    listed: set[TaskId] | None = None
    if value is not None:
        try:
            listed = set(TaskList.of_tag(value).among(tasks))
        except ValueError as error:
            _log.warning(
                "client %s has an invalid list and is treated as a client without %s: %s",
                state.process_id,
                STATIC_TASKS,
                error,
            )
    return StaticClient(
        state.num_processing_threads, listed, state.previous_active_tasks, state.previous_standby_tasks, state.lag_for
    )


def _entries(ids: Sequence[ProcessId], placed: StaticPlacement) -> list[KafkaStreamsAssignment]:
    entries = [KafkaStreamsAssignment(process_id) for process_id in ids]
    for task, client in placed.active.items():
        entries[client].assign_task(AssignedTask(task, TaskType.ACTIVE))
    for task, clients in placed.standby.items():
        for client in clients:
            entries[client].assign_task(AssignedTask(task, TaskType.STANDBY))
    return entries


def _warn(placed: StaticPlacement) -> None:
    if placed.unassigned:
        _log.warning(
            "%d tasks are not on any list, and every client has a list, so no client runs them: %s; start a client "
            "without %s, or set %s=true",
            len(placed.unassigned),
            _named(placed.unassigned),
            STATIC_TASKS,
            STATIC_TASKS_SPILL,
        )
    if placed.standbys_missing:
        _log.warning(
            "%d tasks have fewer standbys than num.standby.replicas, because too few clients may have them: %s; start "
            "clients without %s, or list the tasks on more clients",
            len(placed.standbys_missing),
            _named(placed.standbys_missing),
            STATIC_TASKS,
        )


def _named(tasks: Iterable[TaskId]) -> str:
    names = [str(task) for task in tasks]
    return ", ".join(names[:_NAMED_MAX]) + (", ..." if len(names) > _NAMED_MAX else "")


def _flag(configs: Mapping[str, object], key: str) -> bool:
    text = str(configs.get(key, False)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{key}={configs[key]!r} is not allowed; use true or false", key=key)
    return text == "true"
