"""What a store of the user's own is told; see ``StateStoreContext``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from streams_protocol.types import TaskId
from streams_py.errors import UnsupportedOperationError
from streams_py.ports import Headers
from streams_py.ports.record_headers import written_headers
from streams_py.state.stores.key_value import ChangeLog
from streams_py.topology.declare.nodes import RecordContext

__all__ = ["OwnStoreContext", "only_asked", "refuse_change"]


class _Asked(threading.local):
    """The store that is asked something by code that may not change it."""

    store: str | None = None


_ASKED = _Asked()


def refuse_change(store: str, *_: object, **__: object) -> NoReturn:
    """Instead of a change to a global store by another processor than its own: UnsupportedOperationError."""
    raise UnsupportedOperationError(
        f"global store {store!r} can only be read here: it is written by the processor it was added with"
    )


def only_asked(store: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """``method`` of a store, which must not log a change: UnsupportedOperationError from where it tries to."""

    def ask(*args: Any, **options: Any) -> Any:
        before, _ASKED.store = _ASKED.store, store
        try:
            return method(*args, **options)
        finally:
            _ASKED.store = before

    return ask


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
        """Write to the changelog, unless the store is restored. UnsupportedOperationError for a global store that is
        changed by another processor than its own."""
        if _ASKED.store == self.name:
            refuse_change(self.name)
        if self.log is None or self.is_restoring:
            return
        at = self.record.timestamp if timestamp is None else timestamp
        if headers:
            self.log(key, value, at, written_headers(self.changelog_topic, tuple(headers)))
        else:
            self.log(key, value, at)
