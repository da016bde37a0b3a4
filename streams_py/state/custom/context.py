"""The context that a custom store gets; see ``StateStoreContext``."""

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


class _ReadOnlyCall(threading.local):
    """The read-only call that the current thread is executing."""

    store: str | None = None
    """Name of the store that must not change; None outside of such a call."""


_READ_ONLY_CALL = _ReadOnlyCall()


def refuse_change(store: str, *_: object, **__: object) -> NoReturn:
    """Refuse a change of a global store by any processor but the one that fills it.

    Raises:
        UnsupportedOperationError: Always.
    """
    raise UnsupportedOperationError(
        f"global store {store!r} is read-only here: only the processor it was added with can write to it"
    )


def read_only_call(store: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method of a store so that it raises UnsupportedOperationError when it logs a change."""

    def call(*args: Any, **options: Any) -> Any:
        before, _READ_ONLY_CALL.store = _READ_ONLY_CALL.store, store
        try:
            return method(*args, **options)
        finally:
            _READ_ONLY_CALL.store = before

    return call


@dataclass(slots=True)
class CustomStoreContext:
    """The implementation of ``StateStoreContext``."""

    name: str
    application_id: str
    task_id: TaskId | None
    changelog_topic: str
    state_dir: str | None
    record: RecordContext
    """The record context of the task object that has the store."""
    log: ChangeLog | None = field(default=None, repr=False)
    """Writes to the changelog for the task object that has the store; None: nothing is logged."""
    is_restoring: bool = False

    def log_change(
        self, key: bytes, value: bytes | None, *, timestamp: int | None = None, headers: Headers = ()
    ) -> None:
        """Write to the changelog, unless the store is being restored.

        Raises:
            UnsupportedOperationError: Another processor than the one that fills a global store changes it.
        """
        if _READ_ONLY_CALL.store == self.name:
            refuse_change(self.name)
        if self.log is None or self.is_restoring:
            return
        at = self.record.timestamp if timestamp is None else timestamp
        if headers:
            self.log(key, value, at, written_headers(self.changelog_topic, tuple(headers)))
        else:
            self.log(key, value, at)
