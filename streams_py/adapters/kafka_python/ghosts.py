"""Members that a group counts although nobody is them: its next rebalance waits for them.

A group drops a member whose heartbeats stay away for a session. Kafka 4.3 forgets to, after a broker was away: when
the coordinator's partition is elected twice in a row, the end of the first, abandoned load makes the second one
active, which goes on loading. The group's members come after everybody's session was started, so theirs never ends.
One whose process died shortly before the broker did then holds up the group until ``max.poll.interval.ms`` is over (5
minutes), however often the others join.

A heartbeat under the name of a member starts its session. Whoever waits for too long therefore sends one for each of
the others. Who lives goes on with heartbeats of its own, and notices nothing; who does not is dropped a session later.
A heartbeat must name the group's generation: one of the last before the broker went, not always the very last. So they
are tried, from the newest that this member has seen.

The group itself says who its members are, unless that second load broke off: then it answers questions from before its
first record, where there is no group. Whoever has led it remembers whom it was told then.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import HeartbeatRequest

__all__ = ["Ghosts"]

_log = logging.getLogger(__name__)

_GENERATIONS_MAX: Final = 200
_MEMBERS_MAX: Final = 16
"""In one look: each member of a large group takes others."""
_TOLD_MAX: Final = 256
_RIGHT: Final = (kafka_errors.NoError.errno, kafka_errors.RebalanceInProgressError.errno)


class _Member(NamedTuple):
    member_id: str
    instance_id: str | None


class Ghosts:
    """Starts the sessions of the others in a member's group, by what this member has seen of it."""

    def __init__(self) -> None:
        self._newest = -1
        self._told: dict[_Member, None] = {}  # the newest last

    def note(self, generation: int) -> None:
        """The group has had this generation; -1 is none."""
        self._newest = max(self._newest, generation)

    def note_members(self, members: Iterable[Any]) -> None:
        """Those of a generation that this member leads, from the answer to its JoinGroup."""
        for member in members:
            known = _Member(member.member_id, member.group_instance_id)
            self._told.pop(known, None)
            self._told[known] = None
        for oldest in list(self._told)[:-_TOLD_MAX]:
            del self._told[oldest]

    async def start_sessions(self, coordinator: Any, joining_as: str) -> None:
        """Of all but ``joining_as``, over another connection than JoinGroup's. Never raises Kafka's errors: it is tried
        again for as long as JoinGroup waits."""
        if self._newest < 0:
            return
        try:
            known = dict.fromkeys([*await _members(coordinator), *self._told])
            others = [member for member in known if member.member_id != joining_as]
            generations: Sequence[int] = range(self._newest, max(-1, self._newest - _GENERATIONS_MAX), -1)
            for member in random.sample(others, min(_MEMBERS_MAX, len(others))):
                found = await _start_session(coordinator, member, generations)
                generations = generations if found is None else [found]  # it is the whole group's
        except kafka_errors.KafkaError as error:
            _log.debug("members of group %s: %s", coordinator.group_id, error)


async def _start_session(coordinator: Any, member: _Member, generations: Sequence[int]) -> int | None:
    """The generation that was right; None when the member is unknown by now, IllegalGenerationError when none was."""
    for generation in generations:
        request = HeartbeatRequest(
            group_id=coordinator.group_id,
            generation_id=generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        response = await coordinator._manager.send(request, node_id=coordinator.other_connection())
        if response.error_code in _RIGHT:
            return generation
        if response.error_code != kafka_errors.IllegalGenerationError.errno:
            return None
    raise kafka_errors.IllegalGenerationError(f"it is in none from {generations[-1]} to {generations[0]}")


async def _members(coordinator: Any) -> list[_Member]:
    request = DescribeGroupsRequest(groups=[coordinator.group_id])
    response = await coordinator._manager.send(request, node_id=coordinator.other_connection())
    return [
        _Member(member.member_id, member.group_instance_id)
        for group in response.groups
        if group.group_id == coordinator.group_id and group.error_code == 0
        for member in group.members
    ]
