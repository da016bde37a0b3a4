"""A group as tables for a terminal, and as plain values for programs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from streams_protocol.types import TaskId
from streams_py.inspection.labels import labels_of, last_rebalance
from streams_py.inspection.members import Member
from streams_py.inspection.view import STREAMS, CopyKind, GroupView, Task
from streams_py.system.markup import plain_text
from streams_py.system.printable import printable

_TASKS_SHOWN_MAX: Final = 60
_PROBLEMS_SHOWN_MAX: Final = 20


def render(view: GroupView, *, all_tasks: bool, live: bool = False) -> RenderableType:
    """Return the whole picture for a terminal.

    A ``live`` picture is cut off at the end of the terminal, so it starts with the remarks. Otherwise the remarks come
    last, above the prompt.
    """
    labels = labels_of(view).members
    tables: list[RenderableType] = [_members_table(view, labels)]
    if all_tasks or len(view.tasks) <= _TASKS_SHOWN_MAX:
        tables.append(_tasks_table(view, labels))
    else:
        tables.append(f"{len(view.tasks):,} tasks; --tasks prints a line for each")
    remarks = [f"[yellow]{plain_text(line)}[/yellow]" for line in _remarks(view, labels)]
    return Group(_headline(view, labels), *([*remarks, *tables] if live else [*tables, *remarks]))


def _headline(view: GroupView, labels: dict[str, str]) -> str:
    exact = "" if view.election is not None or view.protocol == STREAMS else "at least "
    generation = "unknown" if view.generation is None else f"{exact}{view.generation}"
    leader = "unknown (__consumer_offsets cannot be read, or has no record of the group)"
    if view.election is not None and view.election.leader is not None:
        elected = view.election.leader
        leader = labels.get(elected) or f"a member that has left ({printable(elected)})"
    if view.protocol == STREAMS:
        leader = "none: the coordinator assigns (KIP-1071)"
    members, tasks = _count(len(view.members), "member"), _count(len(view.tasks), "task")
    processes = _count(len({member.process for member in view.members}), "process", "es")
    group = plain_text(view.group)
    return (
        f"[bold]{group}[/bold]: {view.state}, generation {generation}, leader {plain_text(leader)}; "
        f"{members} in {processes}, {tasks}"
    )


def _count(number: int, what: str, more: str = "s") -> str:
    return f"{number:,} {what}{'' if number == 1 else more}"


def _members_table(view: GroupView, labels: dict[str, str]) -> Table:
    """The table of members.

    Empty columns are left out, so that the table fits a terminal of 80 characters.
    """
    kinds: dict[tuple[str, CopyKind], list[TaskId]] = {}
    lags: dict[str, int] = {}
    for task in view.tasks:
        if task.owner is not None and task.input_lag is not None:
            lags[task.owner] = lags.get(task.owner, 0) + task.input_lag
        for copy in task.copies:
            kinds.setdefault((copy.member_id, copy.kind), []).append(task.id)
    columns: dict[str, list[str]] = {
        "": [labels[member.member_id] for member in view.members],
        "client": [plain_text(_short_client(member, view.group)) for member in view.members],
        "host": [plain_text(member.host) for member in view.members],
        "rack, tags": [
            plain_text(", ".join(filter(None, [member.rack or "", *(f"{k}={v}" for k, v in member.tags.items())])))
            for member in view.members
        ],
        "version": [_version(member) for member in view.members],
        "active": [short_tasks(member.active) for member in view.members],
    } | {
        kind.value: [short_tasks(kinds.get((member.member_id, kind), ())) for member in view.members]
        for kind in (CopyKind.STANDBY, CopyKind.WARM_UP)
    }
    columns["input lag"] = [
        f"{lags[member.member_id]:,}" if member.member_id in lags else "" for member in view.members
    ]
    shown = {name: cells for name, cells in columns.items() if any(cells) or name == "active"}
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title="members", title_justify="left")
    for name in shown:
        is_long = name in ("client", "rack, tags", "active", "standby", "warm-up")
        table.add_column(name, overflow="fold", no_wrap=not is_long, justify="right" if name == "input lag" else "left")
    for cells in zip(*shown.values(), strict=True):
        table.add_row(*cells)
    return table


_PROCESS_ID: Final = re.compile(r"([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-")


def _short_client(member: Member, group: str) -> str:
    """Return ``<group>-<uuid>-StreamThread-1-consumer`` without its common parts.

    --json prints the whole name.
    """
    own = _PROCESS_ID.sub("\\1… ", member.client_id.removeprefix(f"{group}-")).removesuffix("-consumer")
    return (own or member.client_id) + (f" ({member.instance_id})" if member.instance_id else "")


def _version(member: Member) -> str:
    info = member.subscription
    if member.protocol == STREAMS:
        return "streams"
    if info is None:
        return "?"
    newest = info.latest_supported_version
    return str(info.version) if newest in (info.version, -1) else f"{info.version} of {newest}"


def short_tasks(tasks: Any) -> str:
    """Return task ids in a compact form, such as 0_0-3 0_5 1_2."""
    texts = []
    ordered = sorted(tasks, key=lambda task: (task.topology_name or "", task.subtopology, task.partition))
    for (name, subtopology), group in groupby(ordered, key=lambda task: (task.topology_name, task.subtopology)):
        partitions = [task.partition for task in group]
        for _, run in groupby(enumerate(partitions), key=lambda pair: pair[1] - pair[0]):
            numbers = [partition for _, partition in run]
            first = TaskId(subtopology, numbers[0], name)
            texts.append(f"{first}" if len(numbers) == 1 else f"{first}-{numbers[-1]}")
    return " ".join(texts)


def _tasks_table(view: GroupView, labels: dict[str, str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title="tasks", title_justify="left")
    for column in ("task", "active", "standby (lag)", "warm-up (lag)", "reads"):
        table.add_column(column, overflow="fold")
    table.add_column("input lag", justify="right")
    for task in view.tasks:
        table.add_row(
            str(task.id),
            labels[task.owner] if task.owner else "[red]no member[/red]",
            _copies(task, CopyKind.STANDBY, labels),
            _copies(task, CopyKind.WARM_UP, labels),
            plain_text(", ".join(sorted({partition.topic for partition in task.partitions}))),
            "" if task.input_lag is None else f"{task.input_lag:,}",
        )
    return table


def _copies(task: Task, kind: CopyKind, labels: dict[str, str]) -> str:
    return ", ".join(
        labels[copy.member_id] + (f" (<= {copy.lag:,})" if copy.lag is not None else "")
        for copy in task.copies
        if copy.kind is kind
    )


def _remarks(view: GroupView, labels: dict[str, str]) -> Iterator[str]:
    if view.protocol == STREAMS:
        moving = [task for task in view.tasks if task.heading_to is not None]
        for task in moving[:_PROBLEMS_SHOWN_MAX]:
            there = f"moving from {labels[task.owner]} to" if task.owner else "assigned to"
            yield f"{task.id}: {there} {labels[task.heading_to or '']}"
        if len(moving) > _PROBLEMS_SHOWN_MAX:
            yield f"{len(moving) - _PROBLEMS_SHOWN_MAX} more tasks are moving; see --json"
    elif view.state not in ("Stable", "Empty"):
        yield f"the group is rebalancing ({view.state}): this is the state after the last finished rebalance"
    elif any(copy.lag for task in view.tasks for copy in task.copies):
        yield (
            "lags of standbys and warm-ups are upper bounds: current end offsets minus the offsets reported at "
            f"{last_rebalance(view, time.time_ns() // 1_000_000)}"
        )
    withheld = [task for task in view.tasks if task.owner is None and task.coming_from]
    for holder, tasks in groupby(sorted(withheld, key=lambda task: labels[task.coming_from or ""]), _holder):
        names = short_tasks(task.id for task in tasks)
        yield f"{names}: withheld until {labels[holder]} has revoked it; the next rebalance then assigns it"
    lost = [task.id for task in view.tasks if task.owner is None and not task.coming_from]
    if lost and view.members:
        yield f"{short_tasks(lost)}: no member runs it"
    for process in view.ended:
        names = ", ".join(labels[member] for member in process.member_ids)
        number = "" if process.pid is None else f" {process.pid}"
        what = f"has stopped, and the group waits for its restart ({names})"
        if not process.stopped:
            what = f"has died, and the group still has its members ({names})"
        yield f"process{number} of this host {what}, for at most their session timeout"
    for follow_up in view.follow_ups:
        when = (
            "immediately" if follow_up.at_ms == 0 else time.strftime("%H:%M:%S", time.localtime(follow_up.at_ms / 1000))
        )
        why = "warm-up tasks may have caught up by then" if follow_up.at_ms else "tasks are moving"
        yield f"next rebalance: {labels[follow_up.member_id]} requests it {when}; {why}"
    for topic in view.topics_without_tasks:
        yield f"topic {topic} is in no assignment"
    yield from view.problems[:_PROBLEMS_SHOWN_MAX]
    if len(view.problems) > _PROBLEMS_SHOWN_MAX:
        yield f"{len(view.problems) - _PROBLEMS_SHOWN_MAX} more problems; see --json"


def _holder(task: Task) -> str:
    return task.coming_from or ""


def to_json(view: GroupView) -> dict[str, Any]:
    """Return the view as plain values.

    Tasks are texts such as "0_1", times are epoch ms, lags are in records. Unknown values are null.
    """
    labels = labels_of(view).members
    election = view.election
    ended = {member_id for process in view.ended for member_id in process.member_ids}
    return {
        "group": view.group,
        "state": view.state,
        "protocol": view.protocol,
        "generation": view.generation,
        "generation_is_exact": election is not None or view.protocol == STREAMS,
        "leader": None if election is None else election.leader,
        "rebalanced_ms": None if election is None else election.ended_ms,
        "members": [
            {
                "label": labels[member.member_id],
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "process_id": member.process if member.subscription is not None else None,
                "version": None if said is None else said.version,
                "latest_supported_version": None if said is None else said.latest_supported_version,
                "endpoint": None if member.subscription is None else member.subscription.endpoint,
                "rack": member.rack,
                "tags": member.tags,
                "topics": list(member.topics),
                "process_has_ended": True if member.member_id in ended else None,
                "problems": list(member.problems),
            }
            for member in view.members
            for said in (member.subscription if member.protocol != STREAMS else None,)
        ],
        "tasks": [
            {
                "task": str(task.id),
                "active": task.owner,
                "coming_from": task.coming_from,
                "heading_to": task.heading_to,
                "stateful": task.is_stateful,
                "partitions": [str(partition) for partition in sorted(task.partitions)],
                "input_lag": task.input_lag,
                "copies": [
                    {"member": copy.member_id, "kind": copy.kind.value, "reported": copy.reported, "lag": copy.lag}
                    for copy in task.copies
                ],
            }
            for task in view.tasks
        ],
        "follow_ups": [{"member": follow_up.member_id, "at_ms": follow_up.at_ms} for follow_up in view.follow_ups],
        "topics_without_tasks": list(view.topics_without_tasks),
        "problems": list(view.problems),
    }
