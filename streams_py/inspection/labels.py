"""Short names for people: a letter for a process, a letter and a number for a member (one of its threads)."""

from __future__ import annotations

from streams_py.inspection.view import GroupView

__all__ = ["member_labels", "process_labels"]


def process_labels(view: GroupView) -> dict[str, str]:
    """Process (:attr:`~.members.Member.process`) -> A, B, ..., in the order of the members."""
    processes = dict.fromkeys(member.process for member in view.members)
    return {process: _letters(number) for number, process in enumerate(processes)}


def member_labels(view: GroupView) -> dict[str, str]:
    """Member id -> its process's letter, and a number for the thread."""
    letters = process_labels(view)
    counts = dict.fromkeys(letters, 0)
    labels: dict[str, str] = {}
    for member in view.members:
        counts[member.process] += 1
        labels[member.member_id] = f"{letters[member.process]}{counts[member.process]}"
    return labels


def _letters(number: int) -> str:
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text
