"""A group as plain values for the page. Members are numbers: their positions in ``members``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from streams_py.inspection.labels import Labels
from streams_py.inspection.members import Member
from streams_py.inspection.view import STREAMS, CopyKind, GroupView, Task

_PROBLEMS_MAX: Final = 20


def held_over(last: GroupView, now: GroupView) -> GroupView:
    """Return the view to show during a rebalance, when the coordinator reports the members only.

    Members that have left run no task. The others keep the tasks of the last view.
    """
    known = {member.member_id: member for member in last.members}
    present = {member.member_id for member in now.members}
    tasks = tuple(
        replace(
            task,
            owner=task.owner if task.owner in present else None,
            coming_from=task.coming_from if task.coming_from in present else None,
            heading_to=None,
            copies=tuple(copy for copy in task.copies if copy.member_id in present),
        )
        for task in last.tasks
    )
    members = tuple(known.get(member.member_id, member) for member in now.members)
    return replace(last, state=now.state, members=members, tasks=tasks, follow_ups=(), problems=now.problems)


def picture(view: GroupView, labels: Labels) -> dict[str, Any]:
    """Return the group."""
    labels.see(view)
    shown = sorted(view.members, key=lambda member: _order(labels.of(member.member_id)))
    place = {member.member_id: number for number, member in enumerate(shown)}
    leader = None if view.election is None else view.election.leader
    return {
        "group": view.group,
        "state": view.state,
        "generation": view.generation,
        "exact": view.election is not None or view.protocol == STREAMS,
        "leader": None if leader is None else place.get(leader),
        "members": [_member(member, labels) for member in shown],
        "tasks": [_task(task, place) for task in view.tasks],
        "next": [
            {"member": place[each.member_id], "at": each.at_ms} for each in view.follow_ups if each.member_id in place
        ],
        "problems": [*view.problems[:_PROBLEMS_MAX]],
    }


def _order(label: str) -> tuple[int, str, int]:
    letters = label.rstrip("0123456789")
    return len(letters), letters, int(label[len(letters) :] or 0)


def _member(member: Member, labels: Labels) -> dict[str, Any]:
    said = member.subscription
    return {
        "label": labels.of(member.member_id),
        "id": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "rack": member.rack,
        "tags": member.tags,
        "version": None if said is None or member.protocol == STREAMS else said.version,
        "problems": list(member.problems),
    }


def _task(task: Task, place: Mapping[str, int]) -> list[Any]:
    """Return a task as a list.

    The items are: id, owner, member that must revoke it, has state, topics, standbys, warm-ups, next owner.
    Standbys and warm-ups are lists of [member, lag].
    """

    def copies(kind: CopyKind) -> list[list[int | None]]:
        return [[place[copy.member_id], copy.lag] for copy in task.copies if copy.kind is kind]

    return [
        str(task.id),
        None if task.owner is None else place[task.owner],
        None if task.coming_from is None else place.get(task.coming_from),
        task.is_stateful,
        sorted({partition.topic for partition in task.partitions}),
        copies(CopyKind.STANDBY),
        copies(CopyKind.WARM_UP),
        None if task.heading_to is None else place.get(task.heading_to),
    ]


def task_lags(view: GroupView) -> dict[str, int]:
    """Return the input lag, in records, of each task with a known lag."""
    return {str(task.id): task.input_lag for task in view.tasks if task.input_lag is not None}


def moves_between(before: GroupView, now: GroupView, labels: Labels, at_ms: int) -> Iterator[dict[str, Any]]:
    """Yield tasks whose owner has changed. An owner may be None before or after."""
    owners = {task.id: task.owner for task in before.tasks}
    for task in now.tasks:
        was = owners.get(task.id)
        if was != task.owner:
            yield {
                "at": at_ms,
                "task": str(task.id),
                "from": None if was is None else labels.of(was),
                "to": None if task.owner is None else labels.of(task.owner),
            }
