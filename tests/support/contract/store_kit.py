"""Every kind of store, built the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from streams_py.serdes import INT64, STRING, Serde
from streams_py.state.caching.cache import RecordCache
from streams_py.state.disk.database import RocksMemory, TaskDatabase
from streams_py.state.opening.stores import AnyKeyValueStore, open_store
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind, ValueAndTimestamp

MEMORY = RocksMemory(block_cache_bytes=1 << 20, write_buffer_bytes=4 << 20)


class Logged(NamedTuple):
    """One record sent to the changelog."""

    key: bytes
    value: bytes | None
    timestamp_ms: int


@dataclass(frozen=True)
class Shape:
    """Which store."""

    kind: StoreKind
    persistent: bool
    caching: bool
    logging: bool = True

    @property
    def timestamped(self) -> bool:
        return self.kind is StoreKind.TIMESTAMPED_KEY_VALUE

    def __str__(self) -> str:
        words = ["timestamped" if self.timestamped else "plain", "rocksdb" if self.persistent else "memory"]
        return "-".join(words + ["cached"] * self.caching + ["unlogged"] * (not self.logging))


SHAPES = [
    Shape(kind, persistent, caching, logging)
    for kind in (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE)
    for persistent in (False, True)
    for caching in (False, True)
    for logging in (True, False)
]
LOGGED_SHAPES = [shape for shape in SHAPES if shape.logging]
CACHED_SHAPES = [shape for shape in LOGGED_SHAPES if shape.caching]
CACHED_TIMESTAMPED = Shape(StoreKind.TIMESTAMPED_KEY_VALUE, persistent=False, caching=True)


@dataclass
class Kit:
    """A store with everything around it."""

    shape: Shape
    directory: str
    key_serde: Serde[Any] = STRING
    value_serde: Serde[Any] = INT64
    cache_bytes: int = 1 << 20
    logged: list[Logged] = field(default_factory=list)
    context: RecordContext = field(default_factory=RecordContext)

    def __post_init__(self) -> None:
        self.cache = RecordCache(self.cache_bytes)
        self.context.topic = "input"
        self.context.timestamp = 1000
        self.store = self.open()

    def open(self) -> AnyKeyValueStore:
        """Open the store, again after a close."""
        self.database = TaskDatabase(self.directory, ["s"], memory=MEMORY) if self.shape.persistent else None
        self.store = open_store(
            StoreBuilder(
                "s",
                self.shape.kind,
                self.key_serde,
                self.value_serde,
                persistent=self.shape.persistent,
                logging=self.shape.logging,
                caching=self.shape.caching,
            ),
            application_id="app",
            context=self.context,
            log=self.log,
            disk=None if self.database is None else self.database.store,
            cache=self.cache,
        )
        return self.store

    def log(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        self.logged.append(Logged(key, value, timestamp_ms))

    def commit(self) -> None:
        """Make what has left the cache the committed state."""
        if self.database is not None:
            self.database.commit({})

    def close(self) -> None:
        self.store.close()
        if self.database is not None:
            self.database.close()

    def at(self, timestamp_ms: int) -> None:
        """The time of the record in process."""
        self.context.timestamp = timestamp_ms

    def put(self, key: Any, value: Any, timestamp_ms: int | None = None) -> None:
        """Put a bare value, with a timestamp where the store keeps one."""
        if timestamp_ms is not None:
            self.context.timestamp = timestamp_ms
        self.store.put(key, self.stored(value, self.context.timestamp))

    def stored(self, value: Any, timestamp_ms: int) -> Any:
        """Return the stored form of a bare value."""
        if value is None or not self.shape.timestamped:
            return value
        return ValueAndTimestamp(value, timestamp_ms)

    def bare(self, stored: Any) -> Any:
        """The bare value of what the store holds."""
        return stored[0] if stored is not None and self.shape.timestamped else stored

    def pairs(self, entries: Iterator[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        return [(key, self.bare(stored)) for key, stored in entries]


def listen(kit: Kit, *, send_old_values: bool = True) -> list[tuple[Any, Any, Any, int]]:
    """Everything that is forwarded from now on."""
    forwarded: list[tuple[Any, Any, Any, int]] = []
    kit.store.set_flush_listener(lambda *change: forwarded.append(change), send_old_values=send_old_values)
    return forwarded


@pytest.fixture
def make_kit(tmp_path: Path) -> Iterator[Callable[..., Kit]]:
    """Create kits, each in a separate folder, and close them at the end."""
    kits: list[Kit] = []

    def make(shape: Shape, **options: Any) -> Kit:
        kits.append(Kit(shape, str(tmp_path / str(len(kits))), **options))
        return kits[-1]

    yield make
    for kit in kits:
        kit.close()
