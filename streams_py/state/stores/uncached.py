"""The common base of versioned stores and join buffers, which have no record cache."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from streams_py.errors import StateStoreMigratedError
from streams_py.state.stores.bytes_store import BytesStore
from streams_py.state.stores.codec import StoreCodec
from streams_py.state.stores.key_value import ChangeLog
from streams_py.topology.declare.nodes import RecordContext

K = TypeVar("K")
V = TypeVar("V")


class UncachedStore(Generic[K, V]):
    """The part of a store's interface that a task uses, for stores without a record cache."""

    is_cached = False
    what: ClassVar[str] = "store"
    """The word for this kind of store in messages."""

    def __init__(
        self, name: str, content: BytesStore, codec: StoreCodec[K, V], *, persistent: bool, log: ChangeLog | None
    ) -> None:
        self.name = name
        self.persistent = persistent
        self.codec = codec
        self._content = content
        self._log = log
        self._is_open = True

    @property
    def is_open(self) -> bool:
        """False after :meth:`close`."""
        return self._is_open

    def approximate_num_entries(self) -> int:
        """Return the number of entries. On disk an estimate."""
        return self._content.approximate_count()

    def flush_cache(self) -> int:
        """Return 0: this store has no cache."""
        return 0

    def clear_cache(self) -> None:
        """Do nothing: this store has no cache."""

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        if self._is_open:
            self._is_open = False
            self._content.close()

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Use the log and context of another task object from now on."""
        self._log = log

    def check_open(self) -> None:
        """Raise InvalidStateStoreError if the store is closed."""
        if not self._is_open:
            raise StateStoreMigratedError(
                f"{self.what} {self.name!r} is closed: its task has moved or the client has stopped"
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{'' if self._is_open else ', closed'}>"
