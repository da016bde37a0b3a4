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
first record, where there is no group. Whoever has led it remembers whom it was told then. Those whom nobody remembers
are waited for until ``max.poll.interval.ms`` is over. The end of that rebalance is written to the log, which is longer
than what was loaded: so the broker notices, and loads the group anew.

Each member starts a session once for as long as it waits. Members wait from different instants on: if they went on with
it, there would always be one who starts a session before it is over, and nobody would ever be dropped.
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
"""Back from each of two: the last one, and the highest."""
_MEMBERS_MAX: Final = 16
"""Of those that the group says, in one look: each member of a large group takes others."""
_TOLD_MAX: Final = 256
_RIGHT: Final = (kafka_errors.NoError.errno, kafka_errors.RebalanceInProgressError.errno)
_NOT_THIS: Final = (kafka_errors.UnknownMemberIdError.errno, kafka_errors.FencedInstanceIdError.errno)


class _Member(NamedTuple):
    member_id: str
    instance_id: str | None


class Ghosts:
    """Starts the sessions of the others in a member's group, by what this member has seen of it."""

    def __init__(self) -> None:
        self._last = self._highest = -1
        self._told: dict[_Member, None] = {}  # the newest last
        self._started: set[str] = set()

    def note(self, generation: int) -> None:
        """The group has had this generation; -1 is none."""
        if generation >= 0:
            self._last, self._highest = generation, max(self._highest, generation)

    def note_members(self, members: Iterable[Any]) -> None:
        """Those of a generation that this member leads, from the answer to its JoinGroup."""
        for member in members:
            known = _Member(member.member_id, member.group_instance_id)
            self._told.pop(known, None)
            self._told[known] = None
        for oldest in list(self._told)[:-_TOLD_MAX]:
            del self._told[oldest]

    def forget_started(self) -> None:
        """Another request begins to wait for the group."""
        self._started.clear()

    async def start_sessions(self, coordinator: Any, joining_as: str) -> None:
        """Of all but ``joining_as``, over another connection than JoinGroup's. Never raises Kafka's errors: it is tried
        again for as long as JoinGroup waits."""
        if self._last < 0:
            return
        try:
            said = await _members(coordinator)
            told = [member for member in self._told if member not in said]  # most are unknown to the group
            started = {*self._started, joining_as}
            said, told = ([m for m in members if m.member_id not in started] for members in (said, told))
            generations = self._generations()
            for member in [*random.sample(said, min(_MEMBERS_MAX, len(said))), *told]:
                found = await _start_session(coordinator, member, generations)
                if found is not None:
                    self._started.add(member.member_id)
                    generations = [found]  # it is the whole group's
        except kafka_errors.KafkaError as error:
            _log.debug("members of group %s: %s", coordinator.group_id, error)

    def _generations(self) -> Sequence[int]:
        """In which the group may be. They go back when it is begun anew, and come back when its log is read on."""
        return list(
            dict.fromkeys(
                generation
                for newest in (self._last, self._highest)
                for generation in range(newest, max(-1, newest - _GENERATIONS_MAX), -1)
            )
        )


async def _start_session(coordinator: Any, member: _Member, generations: Sequence[int]) -> int | None:
    """The generation that was right; None when the member is unknown by now. Raises kafka-python's errors:
    IllegalGenerationError when no generation was right."""
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
    raise kafka_errors.IllegalGenerationError(f"it is in none of those from {min(generations)} to {max(generations)}")


async def _members(coordinator: Any) -> list[_Member]:
    request = DescribeGroupsRequest(groups=[coordinator.group_id])
    response = await coordinator._manager.send(request, node_id=coordinator.other_connection())
    return [
        _Member(member.member_id, member.group_instance_id)
        for group in response.groups
        if group.group_id == coordinator.group_id and group.error_code == 0
        for member in group.members
    ]
