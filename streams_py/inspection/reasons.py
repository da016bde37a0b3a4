"""Explains where each task of a running group is, and whether a rebalance now would move it."""

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

_REST_SECONDS_MAX: Final = 5.0
_PAUSE_SECONDS: Final = 0.3


class Outlook(Enum):
    """The effect of a rebalance now on a task."""

    STAYS = "stays"
    MOVES = "moves"
    STARTS = "starts"
    """No member runs it yet."""
    DEPENDS = "depends"
    """The task stays or moves, depending on the progress of copies since the last rebalance."""


class Lags(Enum):
    """How exactly the lags at the last rebalance are known. The changelogs may have grown since."""

    EXACT = "exact"
    BOUNDED = "bounded"
    """The lags in ``decided`` are upper bounds.

    With smaller lags, decision and reasons are the same.
    """
    UNKNOWN = "unknown"
    """The decision or its reasons depend on the lags, so ``decided`` is None."""


@dataclass(frozen=True, slots=True)
class TaskReason:
    """The reasons for the place of one task.

    Attributes:
        task: The task.
        outlook: The effect of a rebalance now.
        destination: The member that a rebalance now would select if copies have made no progress since the last one.
        destination_if_caught_up: The member that it would select if all copies have caught up. If it differs from
            ``destination``, ``outlook`` is DEPENDS and ``next`` is None.
        is_as_decided: Whether the group's own leader chose the same client as ``decided``. If not, the leader's
            settings or assignor differ from the assumed ones.
        lags: How exactly the lags at the last rebalance are known.
        decided: Why the last rebalance selected the task's member. None for a custom assignor.
        next: Why a rebalance now would select its member. None for a custom assignor.
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
    """The explanation of a group.

    ``configs`` and ``assignor`` are the basis of the decisions. ``assumed`` lists assumptions about them, as sentences.
    """

    view: GroupView
    assignor: str
    configs: Mapping[str, object]
    assumed: Assumptions
    warnings: tuple[str, ...]
    tasks: Mapping[TaskId, TaskReason]
    last: Answer
    next: Answer


def read_group_at_rest(cluster: Cluster, group: str) -> Reading:
    """Read the group when it is stable. Waits a few seconds for the end of a rebalance.

    Raises:
        StreamsError: The group has no members, or does not become stable in time.
    """
    until = time.monotonic() + _REST_SECONDS_MAX
    while (reading := read_group(cluster, group)).view.state != "Stable" and classic_group(reading):
        state = reading.view.state
        if state == "Empty":
            raise StreamsError(f"group {group} has no members that could run its tasks")
        if time.monotonic() > until:
            raise StreamsError(f"group {group} is rebalancing ({state}); try again after the rebalance")
        time.sleep(_PAUSE_SECONDS)
    return reading


def explain_group(
    cluster: Cluster, group: str, *, configs: Mapping[str, object] | None = None, assignor: str | None = None
) -> Reasons:
    """Explain a running group, Java or Python.

    Args:
        cluster: The cluster of the group.
        group: The application.id.
        configs: Known settings of the group (Kafka's keys). Other settings are derived from its visible state.
        assignor: As in ``task.assignor.class``.

    Raises:
        StreamsError: The group cannot be explained, with the reason.
    """
    return explain_reading(cluster, read_group_at_rest(cluster, group), configs=configs, assignor=assignor)


def explain_reading(
    cluster: Cluster, reading: Reading, *, configs: Mapping[str, object] | None = None, assignor: str | None = None
) -> Reasons:
    """Explain a group that has been read already, like :func:`explain_group`."""
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
        (*((f"derived from the members' tasks and tags: {shown}",) if shown else ()), *assumed),
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
    """Compare the answers of two questions each.

    ``last`` has the largest and the smallest possible lags. ``following`` has copies without progress and caught up.
    """
    destination, if_caught_up = (answer.owners.get(task.id) for answer in following)
    decided, nearest = (answer.explanations.get(task.id) for answer in last)
    coming = following[0].explanations.get(task.id)
    lags = Lags.EXACT if decided == nearest else Lags.BOUNDED
    if task.owner is None:
        outlook, as_decided = Outlook.STARTS, task.coming_from is not None
    else:
        outlook = Outlook.STAYS if destination in (task.owner, None) else Outlook.MOVES
        as_decided = any(_is_where_meant(view, task, answer) for answer in last)
    if _content(decided) != _content(nearest) or last[0].owners.get(task.id) != last[1].owners.get(task.id):
        lags, decided = Lags.UNKNOWN, None
    if destination != if_caught_up:
        outlook, coming = Outlook.DEPENDS, None
    return TaskReason(task, outlook, destination, if_caught_up, as_decided, lags, decided, coming)


def _content(explanation: TaskExplanation | None) -> object:
    """Return the content of an explanation without its numbers, for comparison."""
    if explanation is None:
        return None
    hosts = [(host.process_id, host.rule) for host in (explanation.active, *explanation.standbys)]
    return hosts, explanation.desired, explanation.waiting
