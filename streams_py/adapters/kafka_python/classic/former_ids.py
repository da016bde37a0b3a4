"""Remove former ids of this member from its group, so that a rebalance does not wait for them.

After ``UNKNOWN_MEMBER_ID``, a member rejoins with a new id. Usually the group no longer has the old id. But a restarted
coordinator of Kafka 4.3 may serve the group before it has loaded the members, and without sessions
(:mod:`.stale_members`). So a member that waits for its JoinGroup sends LeaveGroup for its former ids, without waiting
for a session timeout. That is safe, because no other member ever had these ids. A group that does not know them answers
so.

Such a coordinator also forgets new ids each time that it loads more members, so a member may get dozens of ids within
seconds. Ids with which it was a member of a generation are stored separately, because the group's log has them.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any, Final

from kafka import errors as kafka_errors
from kafka.protocol.consumer import LeaveGroupRequest

_log = logging.getLogger(__name__)

_IDS_MAX: Final = 16
"""Limit of stored ids of each kind."""
_REASON: Final = "the member has joined under another id"


class FormerIds:
    """The latest former ids of one dynamic member."""

    def __init__(self) -> None:
        self._of_member: deque[str] = deque(maxlen=_IDS_MAX)
        self._only_given: deque[str] = deque(maxlen=_IDS_MAX)

    def add(self, member_id: str, *, was_member: bool) -> None:
        """Add a former id. ``was_member``: whether it was in a generation of the group; else a join with it failed."""
        ids = self._of_member if was_member else self._only_given
        if member_id not in ids:
            ids.append(member_id)

    async def leave(self, coordinator: Any, joining_as: str) -> None:
        """Send one LeaveGroup for all former ids, over a connection that JoinGroup does not use.

        Never raises Kafka's errors. The caller repeats this while JoinGroup is in flight.

        Args:
            coordinator: The coordinator client.
            joining_as: The id in the JoinGroup in flight. It does not leave, even if another response has made it a
                former id meanwhile: the group may count this member by it.
        """
        former = [member_id for member_id in (*self._only_given, *self._of_member) if member_id != joining_as]
        if not former:
            return
        request = LeaveGroupRequest(
            group_id=coordinator.group_id,
            member_id=former[-1],  # versions below 3 have only this field
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
                "group %s still waited for %s, a former id of this member; removed it from the group",
                coordinator.group_id,
                ", ".join(left),
            )
