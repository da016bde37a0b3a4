"""The life of a store without a record cache: open, handed to another task object, closed."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from streams_py.errors import StateStoreMigratedError
from streams_py.state.stores.bytes_store import BytesStore
from streams_py.state.stores.codec import StoreCodec
from streams_py.state.stores.key_value import ChangeLog
from streams_py.topology.declare.nodes import RecordContext

__all__ = ["UncachedStore"]

K = TypeVar("K")
V = TypeVar("V")


class UncachedStore(Generic[K, V]):
    """What a task asks of every store of its own, over ``content``. ``what`` it is called in messages."""

    is_cached = False
    what: ClassVar[str] = "store"

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
        """Number of entries; on disk an estimate."""
        return self._content.approximate_count()

    def flush_cache(self) -> int:
        """There is no cache: always 0."""
        return 0

    def clear_cache(self) -> None:
        """There is no cache."""

    def close(self) -> None:
        """Let go of the files; a second call does nothing."""
        if self._is_open:
            self._is_open = False
            self._content.close()

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Belong to another task object from now on."""
        self._log = log

    def check_open(self) -> None:
        """InvalidStateStoreError when the store is closed."""
        if not self._is_open:
            raise StateStoreMigratedError(f"{self.what} {self.name!r} is closed: its task moved or the client stopped")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{'' if self._is_open else ', closed'}>"
