"""A store as those see it who may only read it."""

from __future__ import annotations

from typing import Any

from streams_py.errors import UnsupportedOperationError
from streams_py.state.open import Store

__all__ = ["WriteProtectedStore"]


class WriteProtectedStore:
    """Passes every question on, and refuses every change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.get = getattr(store, "get", None)  # without a detour: joins ask with every record

    def __getattr__(self, name: str) -> Any:
        if name in _CHANGES:
            return self._refuse
        return getattr(self._store, name)

    def _refuse(self, *_: object, **__: object) -> None:
        raise UnsupportedOperationError(
            f"global store {self._store.name!r} can only be read here: it is written by the processor it was added with"
        )


_CHANGES = frozenset(
    {
        "clear",
        "close",
        "delete",
        "put",
        "put_all",
        "put_if_absent",
        "put_value",
        "remove",
        "restore",
        "set_flush_listener",
        "updater",
    }
)
