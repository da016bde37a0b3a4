"""Remove members of a group whose process no longer exists, so that the next rebalance does not wait for them.

Normally a group removes a member after a session without heartbeats. A coordinator of Kafka 4.3 may fail to do so after
a broker restart. If the coordinator's partition is elected twice in a row, the end of the first, abandoned load makes
the second load active while it is still running. The coordinator starts all sessions at that moment, and then loads the
members of the group. So the sessions of these members never end. A member whose process died shortly before the broker
then delays the group until ``max.poll.interval.ms`` (5 minutes) has elapsed, however often the other members rejoin.

A heartbeat with a member's id starts the session of that member. So a member that waits too long sends one heartbeat
for each other member. A live member continues with its own heartbeats and is not affected. A dead member is removed
when that session times out. A heartbeat must contain the group's generation. This is one of the last generations before
the broker stopped, but not always the very last one. So generations are tried, beginning with the latest one that this
member has seen.

The group can describe its members, unless the second load stopped early. In that case the coordinator answers with the
state before its first record, in which the group does not exist. A member that has led the group remembers the members
of that time. If no leader remembers a dead member, the group waits for it until ``max.poll.interval.ms`` has elapsed.
The end of that rebalance is written to the log. The log is longer than the loaded part, so the broker notices the
problem and reloads the group.

Each member starts a session only once per wait. The waits of different members begin at different times. If members
repeated their heartbeats, one of them would always restart a session before it ends, and no dead member would be
removed.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import HeartbeatRequest

_log = logging.getLogger(__name__)

_GENERATIONS_MAX: Final = 200
"""Count of generations to try, backwards from the last one and from the highest one."""
_MEMBERS_MAX: Final = 16
"""Limit of members per attempt, chosen at random from the group's answer. Other members choose different ones."""
_SEEN_MAX: Final = 256
_RIGHT: Final = (kafka_errors.NoError.errno, kafka_errors.RebalanceInProgressError.errno)
_NOT_THIS: Final = (kafka_errors.UnknownMemberIdError.errno, kafka_errors.FencedInstanceIdError.errno)


class _Member(NamedTuple):
    member_id: str
    instance_id: str | None


class StaleMembers:
    """Starts the sessions of other members, based on the generations and members that this member has seen."""

    def __init__(self) -> None:
        self._last = self._highest = -1
        self._seen: dict[_Member, None] = {}  # latest last
        self._started: set[str] = set()

    def note(self, generation: int) -> None:
        """Note a generation that the group has had; -1 means no generation."""
        if generation >= 0:
            self._last, self._highest = generation, max(self._highest, generation)

    def note_members(self, members: Iterable[Any]) -> None:
        """Note the members of a generation that this member leads, from the response to its JoinGroup."""
        for member in members:
            known = _Member(member.member_id, member.group_instance_id)
            self._seen.pop(known, None)
            self._seen[known] = None
        for oldest in list(self._seen)[:-_SEEN_MAX]:
            del self._seen[oldest]

    def forget_started(self) -> None:
        """Forget the sessions started so far. Called when another request begins to wait for the group."""
        self._started.clear()

    async def start_sessions(self, coordinator: Any, joining_as: str) -> None:
        """Start the sessions of all members except ``joining_as``, over a connection that JoinGroup does not use.

        Never raises Kafka's errors. The caller repeats this while JoinGroup waits.
        """
        if self._last < 0:
            return
        try:
            reported = await _members(coordinator)
            seen = [member for member in self._seen if member not in reported]  # most are unknown to the group
            started = {*self._started, joining_as}
            reported, seen = ([m for m in members if m.member_id not in started] for members in (reported, seen))
            generations = self._generations()
            for member in [*random.sample(reported, min(_MEMBERS_MAX, len(reported))), *seen]:
                found = await _start_session(coordinator, member, generations)
                if found is not None:
                    self._started.add(member.member_id)
                    generations = [found]  # all members have the same generation
        except kafka_errors.KafkaError as error:
            _log.debug("members of group %s: %s", coordinator.group_id, error)

    def _generations(self) -> Sequence[int]:
        """Return the generations that the group may have.

        The generation goes back when the coordinator starts with an empty group, and forward when it loads more of its
        log.
        """
        return list(
            dict.fromkeys(
                generation
                for newest in (self._last, self._highest)
                for generation in range(newest, max(-1, newest - _GENERATIONS_MAX), -1)
            )
        )


async def _start_session(coordinator: Any, member: _Member, generations: Sequence[int]) -> int | None:
    """Send heartbeats for a member until the coordinator accepts a generation, and return that generation.

    Returns:
        None when the group does not have the member.

    Raises:
        KafkaError: kafka-python's errors; IllegalGenerationError when no generation was accepted.
    """
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
        if response.error_code in _NOT_THIS:
            return None
        if response.error_code != kafka_errors.IllegalGenerationError.errno:
            raise kafka_errors.for_code(response.error_code)
    raise kafka_errors.IllegalGenerationError(
        f"the group has none of the generations {min(generations)} to {max(generations)}"
    )


async def _members(coordinator: Any) -> list[_Member]:
    request = DescribeGroupsRequest(groups=[coordinator.group_id])
    response = await coordinator._manager.send(request, node_id=coordinator.other_connection())
    return [
        _Member(member.member_id, member.group_instance_id)
        for group in response.groups
        if group.group_id == coordinator.group_id and group.error_code == 0
        for member in group.members
    ]
