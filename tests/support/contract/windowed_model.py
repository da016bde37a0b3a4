"""Windowed stores on which random operations run, and the keys and times of these operations."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from streams_py.serdes import BYTES, INT64
from streams_py.state.caching.cache import RecordCache
from streams_py.state.disk.database import TaskDatabase
from streams_py.state.opening.stores import open_store
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind, WindowRetention
from tests.support.contract.store_kit import MEMORY, Logged

RETENTION_MS = 40

SIZE_MS = 10

KEYS = st.sampled_from([b"", b"a", b"ab", b"a\x00", b"a\x00\x00\x00\x00\x00\x00\x00\x00", b"\xff"])

TIMES = st.integers(0, 150)


@dataclass
class WindowedKit:
    """A store with its log, which can be reopened."""

    kind: StoreKind
    persistent: bool
    directory: str
    cache: RecordCache | None = None
    keeps_duplicates: bool = False
    segment_ms: int = 7
    holds_back: bool = False
    logged: list[Logged] = field(default_factory=list)
    context: RecordContext = field(default_factory=RecordContext)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.database = TaskDatabase(self.directory, ["s"], memory=MEMORY) if self.persistent else None
        windows = WindowRetention(RETENTION_MS, SIZE_MS, self.segment_ms, self.keeps_duplicates, self.holds_back)
        builder = StoreBuilder(
            "s", self.kind, BYTES, INT64, persistent=self.persistent, caching=self.cache is not None, windows=windows
        )
        disk = None if self.database is None else self.database.store
        self.store: Any = open_store(
            builder, application_id="app", context=self.context, log=self.log, disk=disk, cache=self.cache
        )

    def log(self, key: bytes, value: bytes | None, timestamp_ms: int, headers: Any = None) -> None:
        self.logged.append(Logged(key, value, timestamp_ms))

    def commit(self) -> None:
        if self.database is not None:
            self.database.commit({})

    def reopen(self) -> None:
        """Reopen the store like a task that was closed: in-memory data is restored from the changelog."""
        self.store.flush_cache()
        self.commit()
        self.close()
        self.open()
        if not self.persistent:
            self.store.restore(self.logged)

    def restore_from_the_beginning(self) -> None:
        self.store.flush_cache()
        self.store.clear()
        self.store.restore(self.logged)

    def close(self) -> None:
        self.store.close()
        if self.database is not None:
            self.database.close()


@contextmanager
def opened(kind: StoreKind, persistent: bool, **options: Any) -> Iterator[WindowedKit]:
    with tempfile.TemporaryDirectory() as directory:
        kit = WindowedKit(kind, persistent, directory, **options)
        try:
            yield kit
        finally:
            kit.close()
