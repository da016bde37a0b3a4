"""Custom stores as users write them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from threading import Lock

from streams_py import ChangelogRecord, CustomStateStore, KeyValueBytesStore, StateStoreContext


class SqliteStore(KeyValueBytesStore):
    """A store that keeps bytes and their position in a separate file."""

    def open(self, context: StateStoreContext) -> None:
        super().open(context)
        folder = context.state_dir
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
        path = ":memory:" if folder is None else os.path.join(folder, "entries.db")
        self._lock = Lock()
        self._db = sqlite3.connect(path, check_same_thread=False)
        self._db.executescript(
            "CREATE TABLE IF NOT EXISTS entries (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID;"
            "CREATE TABLE IF NOT EXISTS position (last INTEGER)"
        )

    def committed_offset(self) -> int | None:
        found = self._db.execute("SELECT last FROM position").fetchone()
        return None if found is None else found[0]

    def commit(self, offset: int | None) -> None:
        with self._lock:
            self._db.execute("DELETE FROM position")
            if offset is not None:
                self._db.execute("INSERT INTO position VALUES (?)", (offset,))
            self._db.commit()

    def get(self, key: bytes) -> bytes | None:
        with self._lock:
            found = self._db.execute("SELECT v FROM entries WHERE k = ?", (key,)).fetchone()
        return None if found is None else bytes(found[0])

    def put(self, key: bytes, value: bytes) -> None:
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO entries VALUES (?, ?)", (key, value))

    def delete(self, key: bytes) -> None:
        with self._lock:
            self._db.execute("DELETE FROM entries WHERE k = ?", (key,))

    def range(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        order = "DESC" if reverse else "ASC"
        with self._lock:
            rows = self._db.execute(
                f"SELECT k, v FROM entries WHERE (?1 IS NULL OR k >= ?1) AND (?2 IS NULL OR k < ?2) ORDER BY k {order}",
                (first, end),
            ).fetchall()
        return iter([(bytes(key), bytes(value)) for key, value in rows])

    def approximate_num_entries(self) -> int:
        with self._lock:
            count: int = self._db.execute("SELECT count(*) FROM entries").fetchone()[0]
        return count

    def clear(self) -> None:
        with self._lock:
            self._db.execute("DELETE FROM entries")

    def close(self) -> None:
        self._db.rollback()
        self._db.close()


class TopStore(CustomStateStore):
    """The highest score of each player, and who leads."""

    def __init__(self) -> None:
        self._scores: dict[str, int] = {}

    def add(self, player: str, score: int) -> None:
        if score > self._scores.get(player, 0):
            self._scores[player] = score
            self.context.log_change(player.encode(), str(score).encode())

    def remove(self, player: str) -> None:
        if self._scores.pop(player, None) is not None:
            self.context.log_change(player.encode(), None)

    def leaders(self, count: int) -> list[tuple[str, int]]:
        return sorted(self._scores.items(), key=lambda entry: (-entry[1], entry[0]))[:count]

    def query(self, query: object) -> object:
        return self.leaders(query) if isinstance(query, int) else NotImplemented

    def restore(self, records: Iterable[ChangelogRecord]) -> None:
        for record in records:
            if record.value is None:
                self._scores.pop(record.key.decode(), None)
            else:
                self._scores[record.key.decode()] = int(record.value)

    def clear(self) -> None:
        self._scores.clear()

    def close(self) -> None:
        self._scores.clear()
