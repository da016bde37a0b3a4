"""``streams-py explain --group``: explanations of the tasks of a running group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from streams_protocol.types import ProcessId, TaskId
from streams_py.cli.connecting import connected
from streams_py.cli.groups.explaining import named, plain
from streams_py.cli.usage import failed, pairs_of, refuse
from streams_py.config_files import read_config_file
from streams_py.errors import StreamsError
from streams_py.inspection.labels import member_labels, process_labels
from streams_py.inspection.reasons import Outlook, Reasons, TaskReason, explain_group
from streams_py.inspection.view import GroupView

__all__ = ["explain_live", "reason_text", "reasons_json"]


def explain_live(
    task: str | None,
    group: str,
    bootstrap: str,
    config: Path | None,
    *,
    settings: Iterable[str] | None,
    assignor: str | None,
    as_json: bool,
) -> int:
    """Print why one task of the group is where it is, or all; the exit status."""
    try:
        wanted = None if task is None else TaskId.parse(task)
        configs = {**({} if config is None else read_config_file(config)), **pairs_of(settings, "--set")}
        with connected(bootstrap, config, "streams-py-explain") as cluster:
            reasons = explain_group(cluster, group, configs=configs, assignor=assignor)
    except ValueError as error:
        return refuse(str(error))
    except StreamsError as error:
        return failed(error)
    if wanted is not None and wanted not in reasons.tasks:
        known = ", ".join(map(str, reasons.tasks)) or "none"
        return refuse(f"there is no task {wanted}; there are: {known}")
    chosen = [reasons.tasks[wanted]] if wanted is not None else list(reasons.tasks.values())
    if as_json:
        print(json.dumps(reasons_json(reasons, chosen), indent=2))
        return 0
    for line in _head(reasons):
        print(line)
    for reason in chosen:
        print(reason_text(reasons, reason))
    return 0


def _head(reasons: Reasons) -> Iterator[str]:
    view = reasons.view
    generation = "unknown" if view.generation is None else view.generation
    yield f"{view.group}: generation {generation}, decided again by {reasons.assignor}"
    letters = process_labels(view)
    for process, letter in letters.items():
        member = next(member for member in view.members if member.process == process)
        yield f"  {letter} is {member.client_id} at {member.host}"
    yield from (f"  {text}" for text in reasons.assumed)
    yield from (f"  {named(text, _names(view))}" for text in (*view.problems, *reasons.warnings))


def _names(view: GroupView) -> dict[ProcessId, str]:
    letters = process_labels(view)
    return {m.subscription.process_id: letters[m.process] for m in view.members if m.subscription is not None}


def reason_text(reasons: Reasons, reason: TaskReason) -> str:
    """One task, in sentences."""
    labels, names = member_labels(reasons.view), _names(reasons.view)
    lines = list(_present(reasons, reason, labels))
    lines.append(f"  {_future(reason, labels)}")
    return named("\n".join(lines), names)


def _present(reasons: Reasons, reason: TaskReason, labels: Mapping[str, str]) -> Iterator[str]:
    task, told = reason.task, reason.decided
    explained = [] if told is None else str(told).splitlines()
    if task.owner is None:
        held = f": {labels[task.coming_from]} still had it when the group last joined" if task.coming_from else ""
        yield f"{task.id} is withheld{held}" if held else f"{task.id} runs nowhere"
        if explained:
            yield f"  {explained[0].replace(' is active on ', ' is meant for ', 1)}"
            yield from explained[1:]
    elif reason.is_as_decided and explained:
        yield explained[0]
        yield f"  it runs on thread {labels[task.owner]}"
        yield from explained[1:]
    else:
        yield f"{task.id} is active on {labels[task.owner]}"
        if explained:
            yield (
                f"  {reasons.assignor} with these settings would have put it elsewhere: the group's leader has other "
                "settings, another assignor, or saw other offsets"
            )
            yield from (f"  {line}" for line in explained)
        else:
            yield f"  {reasons.assignor} tells no reasons"


def _future(reason: TaskReason, labels: Mapping[str, str]) -> str:
    if reason.destination is None:
        return "a rebalance now would give it to nobody"
    match reason.outlook:
        case Outlook.STAYS:
            return "a rebalance now would leave it there"
        case Outlook.MOVES:
            why = "" if reason.next is None else f", because {reason.next.active.rule.value}"
            return f"a rebalance now would move it to {labels[reason.destination]}{why}"
        case Outlook.STARTS:
            return f"the next rebalance gives it to {labels[reason.destination]}"


def reasons_json(reasons: Reasons, chosen: Iterable[TaskReason]) -> dict[str, Any]:
    """The same in plain values: members by id, processes by their ids, null for what is not known."""
    view = reasons.view
    labels = member_labels(view)
    return {
        "group": view.group,
        "generation": view.generation,
        "assignor": reasons.assignor,
        "configs": {key: value for key, value in reasons.configs.items() if key in _ASSIGNMENT_KEYS},
        "assumed": list(reasons.assumed),
        "warnings": list(reasons.warnings),
        "members": {
            member.member_id: {"label": labels[member.member_id], "process": member.process} for member in view.members
        },
        "tasks": [
            {
                "task": str(reason.task.id),
                "active": reason.task.owner,
                "coming_from": reason.task.coming_from,
                "outlook": reason.outlook.value,
                "destination": reason.destination,
                "is_as_decided": reason.is_as_decided,
                "decided": plain(reason.decided),
                "next": plain(reason.next),
                "text": reason_text(reasons, reason),
            }
            for reason in chosen
        ],
    }


_ASSIGNMENT_KEYS = (
    "acceptable.recovery.lag",
    "max.warmup.replicas",
    "num.standby.replicas",
    "probing.rebalance.interval.ms",
    "rack.aware.assignment.tags",
    "rack.aware.assignment.strategy",
)
