"""A member's doubt whether its group still has it, as reported to the membership's listener."""

from __future__ import annotations

from streams_py.adapters.kafka_python.session import Session
from streams_py.ports import MembershipListener


class SessionDoubt:
    """The session of a member, and whether the listener knows that it may have expired. For the network thread."""

    def __init__(self, session: Session, listener: MembershipListener) -> None:
        self.session = session
        """The member's session."""
        self._listener = listener
        self._is_reported = False

    def report(self) -> None:
        """Tell the listener that the group may have removed this member, unless it knows that already."""
        if not self._is_reported:
            self._is_reported = True
            self._listener.on_doubt(True)

    def confirm(self, sent_at: float) -> None:
        """Note that a request sent at ``sent_at`` got a response that the broker sends only to members."""
        self.session.confirm(sent_at)
        if self._is_reported and not self.session.has_expired():
            self._is_reported = False
            self._listener.on_doubt(False)
