"""Ignore requests that fail because the member closes. kafka-python would log errors and a dead coordinator."""

from __future__ import annotations

from typing import Any


class QuietClosing:
    """Mixin for a coordinator of kafka-python. Runs on the network thread."""

    coordinator_id: Any
    is_closing = False
    """Whether the member is closing. Set before its connections are closed."""

    def coordinator_dead(self, error: Any) -> None:
        if self.is_closing:
            self.coordinator_id = None
        else:
            super().coordinator_dead(error)  # type: ignore[misc]  # the library's

    def _failed_request(self, node_id: Any, request: Any, error: Any) -> None:
        if not self.is_closing:
            super()._failed_request(node_id, request, error)  # type: ignore[misc]  # the library's
