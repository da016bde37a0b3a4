"""The reasons for a task's place, as sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from streams_protocol.types import ProcessId
from streams_py.inspection.labels import named
from streams_py.inspection.reasons import Lags, Outlook, TaskReason

_LAG: Final = re.compile(r"\blag (\d+)")


def reason_text(reason: TaskReason, assignor: str, labels: Mapping[str, str], names: Mapping[ProcessId, str]) -> str:
    """Return one task's reasons as lines, indented after the first.

    ``labels`` are names of members, ``names`` are names of processes.
    """
    lines = list(_present(reason, assignor, labels))
    lines.append(f"  {_future(reason, labels)}")
    return named("\n".join(lines), names)


def _present(reason: TaskReason, assignor: str, labels: Mapping[str, str]) -> Iterator[str]:
    task, told = reason.task, reason.decided
    explained = [] if told is None else str(told).splitlines()
    if reason.lags is Lags.BOUNDED:
        explained = [_bounded(line) for line in explained]
    if task.owner is None:
        held = (
            f": {labels.get(task.coming_from, task.coming_from)} still owned it at the last rebalance"
            if task.coming_from
            else ""
        )
        yield f"{task.id} is withheld{held}" if held else f"{task.id} runs on no member"
        if explained:
            yield f"  {explained[0].replace(' is active on ', ' is meant for ', 1)}"
            yield from explained[1:]
    elif reason.is_as_decided and explained:
        yield explained[0]
        yield f"  it runs on thread {labels[task.owner]}"
        yield from explained[1:]
    elif reason.lags is Lags.UNKNOWN:
        yield f"{task.id} is active on {labels[task.owner]}"
        yield (
            f"  the decision of {assignor} depends on the lags at the last rebalance, which are no longer known: "
            "members reported offsets then, and the changelogs have grown since"
        )
    else:
        yield f"{task.id} is active on {labels[task.owner]}"
        if explained:
            yield (
                f"  {assignor} decides differently with these settings, the offsets that members reported at the last "
                "rebalance and the present end offsets; the leader had the end offsets of that time, and perhaps other "
                "settings or another assignor"
            )
            yield from (f"  {line}" for line in explained)
        else:
            yield f"  {assignor} gives no reasons"


def _bounded(line: str) -> str:
    line = line.replace("lags reported, in records:", "lags at the last rebalance were at most, in records:")
    return _LAG.sub(r"lag <= \1", line)


def _future(reason: TaskReason, labels: Mapping[str, str]) -> str:
    if reason.outlook is Outlook.DEPENDS:
        near, far = (_place(reason, to, labels) for to in (reason.destination_if_caught_up, reason.destination))
        return (
            f"a rebalance now would {near} if the copies have caught up since the last rebalance, and {far} if not; "
            "their progress is not visible from outside"
        )
    if reason.destination is None:
        return "a rebalance now would not give it to any member"
    match reason.outlook:
        case Outlook.STAYS:
            return "a rebalance now would not move it"
        case Outlook.MOVES:
            why = "" if reason.next is None else f", because {reason.next.active.rule.value}"
            return f"a rebalance now would move it to {labels[reason.destination]}{why}"
        case Outlook.STARTS:
            return f"the next rebalance assigns it to {labels[reason.destination]}"


def _place(reason: TaskReason, destination: str | None, labels: Mapping[str, str]) -> str:
    if destination is None:
        return "not give it to any member"
    if destination == reason.task.owner:
        return "not move it"
    return f"{'give' if reason.task.owner is None else 'move'} it to {labels[destination]}"
