"""Short names that a member keeps as long as the page runs: A1, A2, B1, ..."""

from __future__ import annotations

from streams_py.inspection.labels import letters
from streams_py.inspection.view import GroupView

__all__ = ["LastingLabels"]


class LastingLabels:
    """Gives out names; one that was given to a member that has gone is not given again."""

    def __init__(self) -> None:
        self._of_member: dict[str, str] = {}
        self._of_process: dict[str, str] = {}
        self._threads: dict[str, int] = {}

    def see(self, view: GroupView) -> None:
        """Name what is new."""
        for member in view.members:
            if member.member_id in self._of_member or member.subscription is None:
                continue  # who has not told its process yet gets its name when it has
            letter = self._of_process.setdefault(member.process, letters(len(self._of_process)))
            number = self._threads[letter] = self._threads.get(letter, 0) + 1
            self._of_member[member.member_id] = f"{letter}{number}"

    def of(self, member_id: str) -> str:
        """The name of a member, its id while it has none."""
        return self._of_member.get(member_id, member_id)

    def processes(self) -> dict[str, str]:
        """Process -> its letter, of all that were ever seen."""
        return dict(self._of_process)
