"""Why each task of a running group is where it is, and whether a rebalance now would move it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from streams_protocol.types import TaskId
from streams_py.assignment.assignors.registry import INTERNAL_TASK_ASSIGNOR_CLASS, TASK_ASSIGNOR_CLASS, assignor_name
from streams_py.assignment.explanation import TaskExplanation
from streams_py.errors import StreamsError
from streams_py.inspection.deciding import Answer, decide
from streams_py.inspection.gather import Cluster, Reading, read_group
from streams_py.inspection.question import (
    Assumptions,
    classic_group,
    last_question,
    leader_settings,
    next_question,
    observed_configs,
    topology_of,
)
from streams_py.inspection.view import GroupView, Task

__all__ = ["Lags", "Outlook", "Reasons", "TaskReason", "explain_group", "explain_reading", "read_group_at_rest"]

_REST_SECONDS_MAX: Final = 5.0
_PAUSE_SECONDS: Final = 0.3


class Outlook(Enum):
    """What a rebalance now would do to a task."""

    STAYS = "stays"
    MOVES = "moves"
    STARTS = "starts"
    """No member runs it yet."""
    DEPENDS = "depends"
    """It stays or moves, depending on how far copies have come since the last rebalance."""


class Lags(Enum):
    """What is known of the lags that the last rebalance was decided with. The changelogs may have grown since."""

    EXACT = "exact"
    BOUNDED = "bounded"
    """Those of ``decided`` are upper bounds. The decision and its reasons are the same with smaller ones."""
    UNKNOWN = "unknown"
    """The decision or its reasons depend on them, so there is no ``decided``."""


@dataclass(frozen=True, slots=True)
class TaskReason:
    """One task. ``decided``: why the last rebalance meant it for whom it did; ``next``: why one now would.

    ``destination`` is the member that one now would mean it for if all copies are where they were at the last
    rebalance, ``destination_if_caught_up`` if all copies have caught up. Where they differ, ``outlook`` is DEPENDS and
    ``next`` None. ``is_as_decided``: whether the group's own leader put it on the same client as ``decided`` does. If
    not, the leader's settings or assignor are others than assumed.

    ``lags``: what is known of the lags of then. Both explanations are None for an assignor of the application's own.
    """

    task: Task
    outlook: Outlook
    destination: str | None
    destination_if_caught_up: str | None
    is_as_decided: bool
    lags: Lags
    decided: TaskExplanation | None
    next: TaskExplanation | None


@dataclass(frozen=True, slots=True)
class Reasons:
    """A group explained. ``configs`` and ``assignor`` are what was decided with; ``assumed``, sentence by sentence,
    what of it nothing tells."""

    view: GroupView
    assignor: str
    configs: Mapping[str, object]
    assumed: Assumptions
    warnings: tuple[str, ...]
    tasks: Mapping[TaskId, TaskReason]
    last: Answer
    next: Answer


def read_group_at_rest(cluster: Cluster, group: str) -> Reading:
    """The group when no rebalance is under way; it is waited for a few seconds. StreamsError when it has no members, or
    does not come to rest."""
    until = time.monotonic() + _REST_SECONDS_MAX
    while (reading := read_group(cluster, group)).view.state != "Stable" and classic_group(reading):
        state = reading.view.state
        if state == "Empty":
            raise StreamsError(f"group {group} has no members: nobody runs its tasks")
        if time.monotonic() > until:
            raise StreamsError(f"group {group} is rebalancing ({state}); ask again when that is over")
        time.sleep(_PAUSE_SECONDS)
    return reading


def explain_group(
    cluster: Cluster, group: str, *, configs: Mapping[str, object] | None = None, assignor: str | None = None
) -> Reasons:
    """Explain a running group, Java or Python. ``configs``: its settings, as far as they are known (Kafka's keys);
    others are taken from what shows. ``assignor``: as in ``task.assignor.class``. StreamsError says why not."""
    return explain_reading(cluster, read_group_at_rest(cluster, group), configs=configs, assignor=assignor)


def explain_reading(
    cluster: Cluster, reading: Reading, *, configs: Mapping[str, object] | None = None, assignor: str | None = None
) -> Reasons:
    """As :func:`explain_group`, of what was read."""
    classic_group(reading)
    given = dict(configs or {})
    chosen = given.get(TASK_ASSIGNOR_CLASS) if assignor is None else assignor
    name = assignor_name(chosen or given.get(INTERNAL_TASK_ASSIGNOR_CLASS) or "high_availability")
    observed = observed_configs(reading.view)
    merged = {**observed, **given}
    settings = leader_settings(reading.view, merged, name if chosen else None)
    topology, assumed = topology_of(reading)
    now_ms = time.time_ns() // 1_000_000
    group = reading.view.group
    question = last_question(reading, topology, now_ms)
    last = decide(cluster.admin, group, question, settings)
    ends = last.gathered.ends.sums
    nearest = last
    nearest_question = last_question(reading, topology, now_ms, ends)
    if nearest_question.members != question.members:
        nearest = decide(cluster.admin, group, nearest_question, settings)
    following = caught_up = decide(cluster.admin, group, next_question(reading, topology, now_ms, ends), settings)
    if any(task.copies for task in reading.view.tasks):
        best_question = next_question(reading, topology, now_ms, ends, caught_up=True)
        caught_up = decide(cluster.admin, group, best_question, settings)
    shown = ", ".join(f"{key}={_text(value)}" for key, value in observed.items() if key not in given)
    return Reasons(
        reading.view,
        name,
        merged,
        (*((f"taken from what the members have: {shown}",) if shown else ()), *assumed),
        tuple(dict.fromkeys((*last.warnings, *following.warnings))),
        {task.id: _reason(reading.view, task, (last, nearest), (following, caught_up)) for task in reading.view.tasks},
        last,
        following,
    )


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _is_where_meant(view: GroupView, task: Task, answer: Answer) -> bool:
    process = {member.member_id: member.process for member in view.members}
    return process.get(answer.owners.get(task.id) or "") == process.get(task.owner or "")


def _reason(view: GroupView, task: Task, last: tuple[Answer, Answer], following: tuple[Answer, Answer]) -> TaskReason:
    """``last``: with the largest and the smallest lags of then; ``following``: with copies of then, and caught up."""
    destination, if_caught_up = (answer.owners.get(task.id) for answer in following)
    decided, nearest = (answer.explanations.get(task.id) for answer in last)
    coming = following[0].explanations.get(task.id)
    lags = Lags.EXACT if decided == nearest else Lags.BOUNDED
    if task.owner is None:
        outlook, as_decided = Outlook.STARTS, task.coming_from is not None
    else:
        outlook = Outlook.STAYS if destination in (task.owner, None) else Outlook.MOVES
        as_decided = any(_is_where_meant(view, task, answer) for answer in last)
    if _ways(decided) != _ways(nearest) or last[0].owners.get(task.id) != last[1].owners.get(task.id):
        lags, decided = Lags.UNKNOWN, None
    if destination != if_caught_up:
        outlook, coming = Outlook.DEPENDS, None
    return TaskReason(task, outlook, destination, if_caught_up, as_decided, lags, decided, coming)


def _ways(explanation: TaskExplanation | None) -> object:
    """What an explanation says, without its figures."""
    if explanation is None:
        return None
    hosts = [(host.process_id, host.rule) for host in (explanation.active, *explanation.standbys)]
    return hosts, explanation.desired, explanation.waiting
