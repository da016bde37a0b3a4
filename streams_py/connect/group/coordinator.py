"""The port to the broker's group coordinator: what a member asks of a Kafka client, and what it answers to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

__all__ = ["Coordinator", "GroupHandler"]


class GroupHandler(Protocol):
    """The member, as the client sees it. Called on the client's network thread: nothing here may wait."""

    def protocols(self) -> list[tuple[str, bytes]]:
        """(name, metadata) of every protocol this member understands, most preferred first; for one JoinGroup."""
        ...

    def perform(self, leader: str, protocol: str, members: Mapping[str, bytes], generation: int) -> dict[str, bytes]:
        """This member leads: the assignment of every member from the metadata of all."""
        ...

    def joined(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        """A join is complete. Also called again with the same generation when the broker sends it again."""
        ...


class Coordinator(Protocol):
    """One member's connection. Called on the worker's thread."""

    @property
    def is_joining(self) -> bool:
        """True from the beginning of a rebalance until its join is complete or given up."""
        ...

    def is_unknown(self) -> bool:
        """True when nobody knows which broker coordinates the group."""
        ...

    def find(self, timeout_ms: int) -> bool:
        """Look for the coordinator; False when there is no answer in time."""
        ...

    def needs_rejoin(self) -> bool:
        """True when the group rebalances, or a rejoin was asked for, or this is no member."""
        ...

    def request_rejoin(self) -> None: ...

    def join(self, timeout_ms: int) -> bool:
        """One JoinGroup and SyncGroup; False when they are still under way, and the next call goes on with them.

        Raises :class:`~streams_py.errors.ConfigError` when the group cannot be joined by this worker, ever.
        """
        ...

    def generation(self) -> tuple[int, str]:
        """(generation, member id) while stable, else ``(-1, "")``."""
        ...

    def poll_heartbeat(self) -> None:
        """A sign of life of the worker's thread; raises what ended the heartbeats."""
        ...

    def leave(self, reason: str) -> None: ...

    def close(self) -> None:
        """Leave and free everything."""
        ...
