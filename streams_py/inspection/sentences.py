"""A task's reasons in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streams_protocol.types import ProcessId
from streams_py.inspection.labels import named
from streams_py.inspection.reasons import Outlook, TaskReason

__all__ = ["reason_text"]


def reason_text(reason: TaskReason, assignor: str, labels: Mapping[str, str], names: Mapping[ProcessId, str]) -> str:
    """One task in lines, further ones indented. ``labels``: of members; ``names``: of processes."""
    lines = list(_present(reason, assignor, labels))
    lines.append(f"  {_future(reason, labels)}")
    return named("\n".join(lines), names)


def _present(reason: TaskReason, assignor: str, labels: Mapping[str, str]) -> Iterator[str]:
    task, told = reason.task, reason.decided
    explained = [] if told is None else str(told).splitlines()
    if task.owner is None:
        held = (
            f": {labels.get(task.coming_from, task.coming_from)} still had it when the group last joined"
            if task.coming_from
            else ""
        )
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
                f"  {assignor} decides otherwise with these settings, the offsets that members reported at the last "
                "rebalance and the end offsets of now; the leader had the end offsets of then, and perhaps other "
                "settings or another assignor"
            )
            yield from (f"  {line}" for line in explained)
        else:
            yield f"  {assignor} tells no reasons"


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
