"""``streams-py explain --group``: explains the tasks of a running group."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from streams_protocol.types import ProcessId, TaskId
from streams_py.cli.connecting import connected
from streams_py.cli.groups.explaining import plain
from streams_py.cli.groups.settings import assumed_settings
from streams_py.cli.usage import refuse
from streams_py.errors import StreamsError
from streams_py.inspection.labels import labels_of, last_rebalance, named
from streams_py.inspection.reasons import Reasons, TaskReason, explain_group
from streams_py.inspection.sentences import reason_text
from streams_py.inspection.view import GroupView
from streams_py.system.printable import printable, printable_json, printable_lines


def explain_live(
    task: str | None,
    group: str,
    bootstrap: str | None,
    config: Path | None,
    *,
    settings: Iterable[str] | None,
    assignor: str | None,
    as_json: bool,
) -> int:
    """Print why one task of the group, or each task, is where it is. Returns the exit status."""
    try:
        wanted = None if task is None else TaskId.parse(task)
        configs = assumed_settings(group, config, settings, "--set", assignor=assignor)
        with connected(bootstrap, config, "streams-py-explain") as cluster:
            reasons = explain_group(cluster, group, configs=configs, assignor=assignor)
    except ValueError as error:
        return refuse(error)
    except StreamsError as error:
        return refuse(error)
    if wanted is not None and wanted not in reasons.tasks:
        known = ", ".join(map(str, reasons.tasks)) or "(no tasks)"
        return refuse(f"task {wanted} does not exist; tasks: {known}")
    chosen = [reasons.tasks[wanted]] if wanted is not None else list(reasons.tasks.values())
    if as_json:
        print(printable_json(reasons_json(reasons, chosen)))
        return 0
    for line in _head(reasons):
        print(printable(line))
    labels, names = labels_of(reasons.view).members, _names(reasons.view)
    for reason in chosen:
        print(printable_lines(reason_text(reason, reasons.assignor, labels, names)))
    return 0


def _head(reasons: Reasons) -> Iterator[str]:
    view = reasons.view
    generation = "unknown" if view.generation is None else view.generation
    yield f"{view.group}: generation {generation}, decided again by {reasons.assignor}"
    yield f"  offsets of copies as reported at {last_rebalance(view, time.time_ns() // 1_000_000)}"
    letters = labels_of(view).processes
    for process, letter in letters.items():
        member = next(member for member in view.members if member.process == process)
        yield f"  {letter} is {member.client_id} at {member.host}"
    yield from (f"  {text}" for text in reasons.assumed)
    yield from (f"  {named(text, _names(view))}" for text in (*view.problems, *reasons.warnings))


def _names(view: GroupView) -> dict[ProcessId, str]:
    letters = labels_of(view).processes
    return {m.subscription.process_id: letters[m.process] for m in view.members if m.subscription is not None}


def reasons_json(reasons: Reasons, chosen: Iterable[TaskReason]) -> dict[str, Any]:
    """Return the reasons as plain values: members and processes by id, null for unknown values."""
    view = reasons.view
    labels, names = labels_of(view).members, _names(view)
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
                "destination_if_caught_up": reason.destination_if_caught_up,
                "is_as_decided": reason.is_as_decided,
                "lags": reason.lags.value,
                "decided": plain(reason.decided),
                "next": plain(reason.next),
                "text": reason_text(reason, reasons.assignor, labels, names),
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
