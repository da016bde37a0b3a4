"""Short names for people: a letter per process, and a number per member (stream thread)."""

from __future__ import annotations

from collections.abc import Mapping

from streams_protocol.types import ProcessId
from streams_py.inspection.view import GroupView
from streams_py.system.printable import printable


def named(text: str, names: Mapping[ProcessId, str]) -> str:
    """Return the text with process ids replaced by names."""
    for process_id, name in names.items():
        text = text.replace(str(process_id), printable(name))
    return text


def process_labels(view: GroupView) -> dict[str, str]:
    """Return a label A, B, ... for each process, in the order of the members."""
    processes = dict.fromkeys(member.process for member in view.members)
    return {process: letters(number) for number, process in enumerate(processes)}


def member_labels(view: GroupView) -> dict[str, str]:
    """Return a label for each member id: its process's letter and a thread number."""
    processes = process_labels(view)
    counts = dict.fromkeys(processes, 0)
    labels: dict[str, str] = {}
    for member in view.members:
        counts[member.process] += 1
        labels[member.member_id] = f"{processes[member.process]}{counts[member.process]}"
    return labels


def letters(number: int) -> str:
    """Return label ``number``, counted from 0: A, B, ..., Z, AA, AB, ..."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def last_rebalance(view: GroupView, now_ms: int) -> str:
    """Return ``the last rebalance (3 h ago)``, without the age if its time is unknown."""
    ended_ms = None if view.election is None else view.election.ended_ms
    if ended_ms is None:
        return "the last rebalance"
    seconds = max(0, now_ms - ended_ms) // 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"the last rebalance ({seconds // length} {unit} ago)"
    return f"the last rebalance ({seconds} s ago)"
