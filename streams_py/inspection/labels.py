"""Short names for people: a letter per process, and a number per member (stream thread)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from streams_protocol.types import ProcessId
from streams_py.inspection.members import Member
from streams_py.inspection.view import GroupView
from streams_py.system.printable import printable


def named(text: str, names: Mapping[ProcessId, str]) -> str:
    """Return the text with process ids replaced by names."""
    for process_id, name in names.items():
        text = text.replace(str(process_id), printable(name))
    return text


class Labels:
    """Labels A1, A2, B1, ... that stay the same. The label of a member that has left is not assigned again.

    Attributes:
        members: label of each member id: its process's letter and a thread number.
        processes: letter of each process.
    """

    def __init__(self) -> None:
        self.members: dict[str, str] = {}
        self.processes: dict[str, str] = {}
        self._threads: Counter[str] = Counter()

    def add(self, member: Member) -> None:
        """Assign the next label of its process to a member."""
        letter = self.processes.setdefault(member.process, letters(len(self.processes)))
        self._threads[letter] += 1
        self.members[member.member_id] = f"{letter}{self._threads[letter]}"

    def see(self, view: GroupView) -> None:
        """Assign labels to new members. A member whose process is not known gets its label later."""
        for member in view.members:
            if member.member_id not in self.members and member.subscription is not None:
                self.add(member)

    def of(self, member_id: str) -> str:
        """Return the label of a member, or its id while it has no label."""
        return self.members.get(member_id, member_id)


def labels_of(view: GroupView) -> Labels:
    """Return labels of all members of one view."""
    labels = Labels()
    for member in view.members:
        labels.add(member)
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
