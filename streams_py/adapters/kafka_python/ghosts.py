"""Members that a group counts although nobody is them: its next rebalance waits for them.

A group drops a member whose heartbeats stay away for a session. Kafka 4.3 forgets to, after a broker was away: when
the coordinator's partition is elected twice in a row, the end of the first, abandoned load makes the second one
active, which goes on loading. The group's members come after everybody's session was started, so theirs never ends.
One whose process died shortly before the broker did then holds up the group until ``max.poll.interval.ms`` is over (5
minutes), however often the others join.

A heartbeat under the name of a member starts its session. Whoever waits for too long therefore sends one for each of
the others. Who lives goes on with heartbeats of its own, and notices nothing; who does not is dropped a session later.
A heartbeat must name the group's generation, which is the last one that was complete before the broker went: those who
were there know it.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from typing import Any, Final, NamedTuple

from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import HeartbeatRequest

__all__ = ["Ghosts"]

_log = logging.getLogger(__name__)

_GENERATIONS_MAX: Final = 4
_MEMBERS_MAX: Final = 16
"""In one look: each member of a large group takes others."""


class _Member(NamedTuple):
    member_id: str
    instance_id: str | None


class Ghosts:
    """Starts the sessions of the others in a member's group, by what this member has seen of it."""

    def __init__(self) -> None:
        self._generations: deque[int] = deque(maxlen=_GENERATIONS_MAX)

    def note(self, generation: int) -> None:
        """The group has had this generation; -1 is none."""
        if generation >= 0 and generation not in self._generations:
            self._generations.append(generation)

    async def start_sessions(self, coordinator: Any, joining_as: str) -> None:
        """Of all but ``joining_as``, over another connection than JoinGroup's. Never raises Kafka's errors: it is tried
        again for as long as JoinGroup waits."""
        if not self._generations:
            return
        try:
            others = [member for member in await _members(coordinator) if member.member_id != joining_as]
            for member in random.sample(others, min(_MEMBERS_MAX, len(others))):
                await self._start_session(coordinator, member)
        except kafka_errors.KafkaError as error:
            _log.debug("members of group %s: %s", coordinator.group_id, error)

    async def _start_session(self, coordinator: Any, member: _Member) -> None:
        for generation in reversed(self._generations):
            request = HeartbeatRequest(
                group_id=coordinator.group_id,
                generation_id=generation,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
            )
            response = await coordinator._manager.send(request, node_id=coordinator.other_connection())
            if response.error_code != kafka_errors.IllegalGenerationError.errno:
                return


async def _members(coordinator: Any) -> list[_Member]:
    request = DescribeGroupsRequest(groups=[coordinator.group_id])
    response = await coordinator._manager.send(request, node_id=coordinator.other_connection())
    return [
        _Member(member.member_id, member.group_instance_id)
        for group in response.groups
        if group.group_id == coordinator.group_id and group.error_code == 0
        for member in group.members
    ]
