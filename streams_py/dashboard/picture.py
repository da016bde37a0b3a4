"""A group in the plain values that the page draws. Members are numbers: their places in ``members``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from streams_protocol import RepeatedTagDecodeError
from streams_py.dashboard.labels import LastingLabels
from streams_py.inspection.members import Member
from streams_py.inspection.view import STREAMS, CopyKind, GroupView, Task

__all__ = ["held_over", "moves_between", "picture", "task_lags"]

_PROBLEMS_MAX: Final = 20


def held_over(last: GroupView, now: GroupView) -> GroupView:
    """What is known while a rebalance is under way: the coordinator tells who is a member, and nothing else. Members
    that are gone run nothing any more; the others go on with what they had."""
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


def picture(view: GroupView, labels: LastingLabels) -> dict[str, Any]:
    """The group."""
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


def _member(member: Member, labels: LastingLabels) -> dict[str, Any]:
    said = member.subscription
    try:
        tags = {} if said is None else dict(said.client_tags)
    except RepeatedTagDecodeError:
        tags = {}
    return {
        "label": labels.of(member.member_id),
        "id": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "rack": member.rack,
        "tags": tags,
        "version": None if said is None or member.protocol == STREAMS else said.version,
        "problems": list(member.problems),
    }


def _task(task: Task, place: Mapping[str, int]) -> list[Any]:
    """[id, who runs it, who gives it up, has state, topics, [[standby, its lag], ...], [[warm-up, its lag], ...],
    who is to run it]."""

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
    """Input lag, in records, of each task that it is known of."""
    return {str(task.id): task.input_lag for task in view.tasks if task.input_lag is not None}


def moves_between(before: GroupView, now: GroupView, labels: LastingLabels, at_ms: int) -> Iterator[dict[str, Any]]:
    """Tasks that somebody else runs now, or nobody, or somebody again."""
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
