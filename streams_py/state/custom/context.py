"""What a store of the user's own is told; see ``StateStoreContext``."""

from __future__ import annotations

from dataclasses import dataclass, field

from streams_protocol.types import TaskId
from streams_py.ports import Headers
from streams_py.state.key_value import ChangeLog
from streams_py.topology.nodes import RecordContext

__all__ = ["OwnStoreContext"]


@dataclass(slots=True)
class OwnStoreContext:
    """Satisfies ``StateStoreContext``. ``log`` and ``record`` are those of the task object that has the store."""

    name: str
    application_id: str
    task_id: TaskId | None
    changelog_topic: str
    state_dir: str | None
    record: RecordContext
    log: ChangeLog | None = field(default=None, repr=False)
    is_restoring: bool = False

    def log_change(
        self, key: bytes, value: bytes | None, *, timestamp: int | None = None, headers: Headers = ()
    ) -> None:
        """Write to the changelog, unless the store is restored."""
        if self.log is None or self.is_restoring:
            return
        at = self.record.timestamp if timestamp is None else timestamp
        if headers:
            self.log(key, value, at, list(headers))
        else:
            self.log(key, value, at)
