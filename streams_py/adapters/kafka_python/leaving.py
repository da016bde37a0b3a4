"""Leave a group at any time, so that its next rebalance does not wait for members that have left.

kafka-python sends LeaveGroup only for a member that has joined, after all requests in flight. But a group counts more
member ids, each until its session times out, and its next rebalance waits for them:

* *An id that the coordinator has just assigned* (MEMBER_ID_REQUIRED), or that the member keeps after its generation was
  refused. The member leaves with this id too.
* *An id that the coordinator is about to assign.* Brokers answer a JoinGroup without an id immediately, and count the
  id that they have assigned. So leaving waits a short time for that response.
* *The member's id while its JoinGroup waits for the others.* A broker answers the requests of one connection in order.
  So that connection is closed first, and its unsent bytes are dropped. The broker may handle JoinGroup or LeaveGroup
  first: an id that has left is unknown to the broker, and a JoinGroup with an unknown id does not add a member.

Once ``is_closing`` is set, no further requests for a join are sent.
"""

from __future__ import annotations

from typing import Any, Final

from kafka.structs import MemberState
from kafka.util import Timer

from streams_py.adapters.kafka_python.quiet_closing import QuietClosing

_ID_WAIT_MS: Final = 2_000
_CHECK_S: Final = 0.01


class Leaving(QuietClosing):
    """Mixin for a coordinator of kafka-python. Runs on the network thread."""

    _generation: Any
    _manager: Any
    _net: Any
    _join_task: Any
    state: Any

    async def leave_async(self, reason: str, timeout_ms: int) -> None:
        """Leave the group, also in the middle of a join. Static members don't leave."""
        timer = Timer(timeout_ms)
        if self._is_joining() and not self._generation.has_member_id():
            await self._wait_for_id(Timer(min(timeout_ms, _ID_WAIT_MS)))
        if self._is_joining():
            self.give_up_connection(self.coordinator_id)
        await self.maybe_leave_group_async(reason, timer.timeout_ms)

    async def maybe_leave_group_async(self, reason: str | None = None, timeout_ms: int | None = None) -> None:
        if self.state is MemberState.UNJOINED and self._generation.has_member_id():
            self.state = MemberState.REBALANCING  # kafka-python sends no LeaveGroup for UNJOINED members
        await super().maybe_leave_group_async(reason, timeout_ms)  # type: ignore[misc]  # the library's

    def _is_joining(self) -> bool:
        return self._join_task is not None and not self._join_task.is_done

    async def _wait_for_id(self, timer: Timer) -> None:
        while self._is_joining() and not (self._generation.has_member_id() or timer.expired):
            await self._net.sleep(_CHECK_S)

    def give_up_connection(self, node_id: Any) -> None:
        """Close the connection to a node, and drop its unsent bytes."""
        connection = self._manager._conns.get(node_id)
        if connection is None:
            return
        if connection.transport is not None:
            connection.transport._write_buffer.clear()  # unsent bytes would delay LeaveGroup
        connection.close()  # without an error, which the library would log
