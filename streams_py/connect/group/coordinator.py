"""The port to the group coordinator: a member's requests to a client, and its callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class GroupHandler(Protocol):
    """The member, as seen by the client.

    Called on the client's network thread, so it must not wait.
    """

    def protocols(self) -> list[tuple[str, bytes]]:
        """Return (name, metadata) of the supported protocols, preferred ones first, for a join."""
        ...

    def perform(self, leader: str, protocol: str, members: Mapping[str, bytes], generation: int) -> dict[str, bytes]:
        """Return the assignment of every member, computed from the metadata of all.

        Called on the leader.
        """
        ...

    def joined(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        """Handle a completed join.

        May be called again with the same generation if the broker repeats it.
        """
        ...


class Coordinator(Protocol):
    """One member's connection. Called on the worker's thread."""

    @property
    def is_joining(self) -> bool:
        """Whether a rebalance has started and its join is neither complete nor given up."""
        ...

    def is_unknown(self) -> bool:
        """Whether the coordinating broker is unknown."""
        ...

    def find(self, timeout_ms: int) -> bool:
        """Search for the coordinator. Returns False without a response in time."""
        ...

    def needs_rejoin(self) -> bool:
        """Whether the group rebalances, a rejoin was requested, or this is not a member."""
        ...

    def request_rejoin(self) -> None: ...

    def join(self, timeout_ms: int) -> bool:
        """Run one JoinGroup and SyncGroup.

        Returns False while they are in progress; the next call continues them.

        Raises :class:`~streams_py.errors.ConfigError` if this worker can never join the group.
        """
        ...

    def generation(self) -> tuple[int, str]:
        """Return (generation, member id) while the group is stable, otherwise ``(-1, "")``."""
        ...

    def poll_heartbeat(self) -> None:
        """Tell the heartbeat thread that the worker's thread is alive.

        Raises the error that ended the heartbeats.
        """
        ...

    def leave(self, reason: str) -> None: ...

    def close(self) -> None:
        """Leave the group and free all resources."""
        ...
