"""How a member leaves its group at any moment, so that the group waits for nobody who is gone.

kafka-python sends LeaveGroup for a member that has joined, behind whatever else is under way. A group counts more ids
than that, each for a session, and its next rebalance waits for them:

* *An id that the member was given a moment ago* (MEMBER_ID_REQUIRED), or keeps after its generation was refused: it
  leaves under that, too.
* *An id that it is going to be given.* Brokers answer the first JoinGroup, the one without an id, at once, and keep the
  id that they have made up. So that answer is waited for, a moment.
* *Its id, while JoinGroup waits for the others.* A broker answers the requests of one connection in turn, so that one
  is given up first, with what is not sent yet. Whether the broker sees JoinGroup or LeaveGroup first is all the same:
  an id that has left is unknown to it, and JoinGroup under an unknown id adds nobody.

Nothing is sent for a join once ``is_closing`` is set.
"""

from __future__ import annotations

from typing import Any, Final

from kafka.structs import MemberState
from kafka.util import Timer

from streams_py.adapters.kafka_python.quiet_closing import QuietClosing

__all__ = ["Leaving"]

_ID_MS: Final = 2_000
_LOOK_S: Final = 0.01


class Leaving(QuietClosing):
    """To be mixed into a coordinator of kafka-python; on the network thread."""

    _generation: Any
    _manager: Any
    _net: Any
    _join_task: Any
    state: Any

    async def leave_async(self, reason: str, timeout_ms: int) -> None:
        """Leave, also in the middle of a join. Static members stay."""
        timer = Timer(timeout_ms)
        if self._is_joining() and not self._generation.has_member_id():
            await self._wait_for_id(Timer(min(timeout_ms, _ID_MS)))
        if self._is_joining():
            self._give_up_connection(self.coordinator_id)
        await self.maybe_leave_group_async(reason, timer.timeout_ms)

    async def maybe_leave_group_async(self, reason: str | None = None, timeout_ms: int | None = None) -> None:
        if self.state is MemberState.UNJOINED and self._generation.has_member_id():
            self.state = MemberState.REBALANCING  # the library says nothing for who is neither in nor on the way
        await super().maybe_leave_group_async(reason, timeout_ms)  # type: ignore[misc]  # the library's

    def _is_joining(self) -> bool:
        return self._join_task is not None and not self._join_task.is_done

    async def _wait_for_id(self, timer: Timer) -> None:
        while self._is_joining() and not (self._generation.has_member_id() or timer.expired):
            await self._net.sleep(_LOOK_S)

    def _give_up_connection(self, node_id: Any) -> None:
        connection = self._manager._conns.get(node_id)
        if connection is None:
            return
        if connection.transport is not None:
            connection.transport._write_buffer.clear()  # it would be sent first, and LeaveGroup refused until then
        connection.close()  # without an error, which the library would log as one
