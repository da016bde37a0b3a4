"""Short names of members that stay the same while the page is served: A1, A2, B1, ..."""

from __future__ import annotations

from streams_py.inspection.labels import letters
from streams_py.inspection.view import GroupView


class LastingLabels:
    """Assigns names. The name of a member that has left is not assigned again."""

    def __init__(self) -> None:
        self._of_member: dict[str, str] = {}
        self._of_process: dict[str, str] = {}
        self._threads: dict[str, int] = {}

    def see(self, view: GroupView) -> None:
        """Assign names to new members."""
        for member in view.members:
            if member.member_id in self._of_member or member.subscription is None:
                continue  # a member without a known process gets its name later
            letter = self._of_process.setdefault(member.process, letters(len(self._of_process)))
            number = self._threads[letter] = self._threads.get(letter, 0) + 1
            self._of_member[member.member_id] = f"{letter}{number}"

    def of(self, member_id: str) -> str:
        """Return the name of a member, or its id while it has no name."""
        return self._of_member.get(member_id, member_id)

    def processes(self) -> dict[str, str]:
        """Return the letter of each process seen so far."""
        return dict(self._of_process)
