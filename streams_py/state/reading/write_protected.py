"""A store as those see it who may only read it: the global stores, for every processor but the one that fills them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from streams_py.state.custom.context import only_asked, refuse_change
from streams_py.state.opening.stores import Store
from streams_py.topology.declare.custom_stores import CustomStateStore

__all__ = ["WriteProtectedStore", "write_protected"]


class WriteProtectedStore:
    """Passes every question on, and refuses every change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.get = getattr(store, "get", None)  # without a detour: joins ask with every record

    def __getattr__(self, name: str) -> Any:
        if name in _CHANGES:
            return partial(refuse_change, self._store.name)
        return getattr(self._store, name)


class _WriteProtectedCustomStore:
    """The same of a store with methods of the user's own. Which of them change it nobody can know before; those that
    say so, as all must that want to be restored (``log_change``), are refused when they do."""

    def __init__(self, store: CustomStateStore) -> None:
        object.__setattr__(self, "_store", store)

    def __getattr__(self, name: str) -> Any:
        store: CustomStateStore = self._store
        if name in _CHANGES or name in _LIFE:
            return partial(refuse_change, store.name)
        found = getattr(store, name)
        return only_asked(store.name, found) if callable(found) else found

    def __setattr__(self, name: str, value: object) -> None:
        refuse_change(self._store.name)

    def __repr__(self) -> str:
        return f"<{self._store!r}, to be read only>"


def write_protected(store: Store | CustomStateStore) -> Any:
    """What other processors than its own get of a global store."""
    return _kind_of(type(store))(store) if isinstance(store, CustomStateStore) else WriteProtectedStore(store)


@lru_cache(maxsize=256)
def _kind_of(kind: type[CustomStateStore]) -> type[_WriteProtectedCustomStore]:
    """With the special methods of ``kind``, which Python looks for in the class: ``len(store)``, ``key in store``."""

    def asked(name: str) -> Callable[..., Any]:
        return lambda self, *args: only_asked(self._store.name, getattr(self._store, name))(*args)

    def refused(self: _WriteProtectedCustomStore, *_: object) -> None:
        refuse_change(self._store.name)

    methods = {name: asked(name) for name in _SPECIAL_QUESTIONS if hasattr(kind, name)}
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
_SPECIAL_QUESTIONS = ("__bool__", "__call__", "__contains__", "__getitem__", "__iter__", "__len__", "__reversed__")
_ITEMS = ("__delitem__", "__setitem__")
