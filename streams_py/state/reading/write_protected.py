"""Read-only views of global stores, for all processors except the one that fills the store."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from streams_py.state.custom.context import read_only_call, refuse_change
from streams_py.state.opening.stores import Store
from streams_py.topology.declare.custom_stores import CustomStateStore


class WriteProtectedStore:
    """A view of a store that passes reads through and refuses changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.get = getattr(store, "get", None)  # avoids __getattr__, because joins call it for every record

    def __getattr__(self, name: str) -> Any:
        if name in _CHANGES:
            return partial(refuse_change, self._store.name)
        return getattr(self._store, name)


class _WriteProtectedCustomStore:
    """A view of a custom store that passes reads through and refuses changes.

    Which methods of a custom store change it cannot be known in advance. A method that calls ``log_change``, as it must
    for the change to be restored, is refused at that call.
    """

    def __init__(self, store: CustomStateStore) -> None:
        object.__setattr__(self, "_store", store)

    def __getattr__(self, name: str) -> Any:
        store: CustomStateStore = self._store
        if name in _CHANGES or name in _LIFE:
            return partial(refuse_change, store.name)
        found = getattr(store, name)
        return read_only_call(store.name, found) if callable(found) else found

    def __setattr__(self, name: str, value: object) -> None:
        refuse_change(self._store.name)

    def __repr__(self) -> str:
        return f"<{self._store!r}, read-only>"


def write_protected(store: Store | CustomStateStore) -> Any:
    """Return the view of a global store for all processors except the one that fills it."""
    return _kind_of(type(store))(store) if isinstance(store, CustomStateStore) else WriteProtectedStore(store)


@lru_cache(maxsize=256)
def _kind_of(kind: type[CustomStateStore]) -> type[_WriteProtectedCustomStore]:
    """Return a view class with the special methods of ``kind``, which Python looks for in classes only."""

    def reading(name: str) -> Callable[..., Any]:
        return lambda self, *args: read_only_call(self._store.name, getattr(self._store, name))(*args)

    def refused(self: _WriteProtectedCustomStore, *_: object) -> None:
        refuse_change(self._store.name)

    methods = {name: reading(name) for name in _SPECIAL_READS if hasattr(kind, name)}
    return type(
        f"WriteProtected{kind.__name__}", (_WriteProtectedCustomStore,), methods | dict.fromkeys(_ITEMS, refused)
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
_LIFE = frozenset({"commit", "flush", "open"})
_SPECIAL_READS = ("__bool__", "__call__", "__contains__", "__getitem__", "__iter__", "__len__", "__reversed__")
_ITEMS = ("__delitem__", "__setitem__")
