"""Member ids that this member once had: a group that still counts one of them waits for somebody who never comes.

A member that is told ``UNKNOWN_MEMBER_ID`` joins again under a new id, and usually the old one is gone. Not always: a
coordinator of Kafka 4.3 that comes back may serve the group before it has loaded its members, without sessions
(:mod:`.ghosts`). A member that waits for its JoinGroup therefore lets its former ids leave, without waiting for a
session: they were its own alone, and a group that does not know them says so.

Such a coordinator forgets a new id, too, each time that it loads more, so that a member may get some dozens of them in
a few seconds. Those under which it was in the group are kept apart: of them the group has it in its log.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any, Final

from kafka import errors as kafka_errors
from kafka.protocol.consumer import LeaveGroupRequest

__all__ = ["FormerIds"]

_log = logging.getLogger(__name__)

_IDS_MAX: Final = 16
"""Of each kind."""
_REASON: Final = "the member has joined under another id"


class FormerIds:
    """The newest former ids of one dynamic member."""

    def __init__(self) -> None:
        self._of_member: deque[str] = deque(maxlen=_IDS_MAX)
        self._only_given: deque[str] = deque(maxlen=_IDS_MAX)

    def add(self, member_id: str, *, was_member: bool) -> None:
        """``was_member``: a generation of the group had it; else it was given for a join that came to nothing."""
        ids = self._of_member if was_member else self._only_given
        if member_id not in ids:
            ids.append(member_id)

    async def leave(self, coordinator: Any, joining_as: str) -> None:
        """One LeaveGroup for all of them, over another connection than JoinGroup's. Never raises Kafka's errors: it is
        tried again for as long as JoinGroup is under way.

        ``joining_as``: the id in the request under way. It stays, also when an answer to something else has made it a
        former one since: the group may count this member under it.
        """
        former = [member_id for member_id in (*self._only_given, *self._of_member) if member_id != joining_as]
        if not former:
            return
        request = LeaveGroupRequest(
            group_id=coordinator.group_id,
            member_id=former[-1],  # all that versions below 3 can say
            members=[
                LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=None, reason=_REASON)
                for member_id in former
            ],
        )
        try:
            response = await coordinator._manager.send(request, node_id=coordinator.other_connection())
        except kafka_errors.KafkaError as error:
            _log.debug("former ids of this member in group %s: %s", coordinator.group_id, error)
            return
        left = [member.member_id for member in response.members if member.error_code == 0]
        if left and response.error_code == 0:
            _log.warning(
                "group %s still waited for %s, which this member was until its coordinator forgot it: it has left",
                coordinator.group_id,
                ", ".join(left),
            )
