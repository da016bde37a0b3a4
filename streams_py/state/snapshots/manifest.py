"""The manifest of a snapshot: the files of one task's database with their hashes, and the owner of the state.

A manifest is JSON with a hash over its whole content, so a truncated or modified manifest is detected. It is written
after all files have been uploaded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from streams_protocol.types import TopicPartition
from streams_py.errors import SnapshotError
from streams_py.system.foreign_json import loads as loads_foreign
from streams_py.system.printable import named, printable

_FORMAT: Final = 1
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_FILES_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class SnapshotOf:
    """The state that a snapshot belongs to."""

    application: str
    cluster: str | None
    task: str
    layout: Mapping[str, str]
    """Store on disk -> its kind and everything else that determines the format of its bytes."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """The SHA-256 of a file, in hex, and its size in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of one snapshot."""

    of: SnapshotOf
    positions: Mapping[TopicPartition, int]
    """Changelog partition -> offset of the last record in the snapshot."""
    files: Mapping[str, SnapshotFile]
    """File name -> hash and size."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics that the positions refer to, as far as they have ids."""
    taken_ms: int | None = None
    """A time at which the snapshot was complete, in ms since 1970. None: written by an older version without it."""
    in_transactions: frozenset[str] = frozenset()
    """Changelog topics that only the task writes, in transactions, so that a marker follows each position."""

    def encode(self) -> bytes:
        """Return the stored form."""
        content = {
            "format": _FORMAT,
            "application": self.of.application,
            "cluster": self.of.cluster,
            "task": self.of.task,
            "layout": dict(sorted(self.of.layout.items())),
            "positions": [[topic, number, offset] for (topic, number), offset in sorted(self.positions.items())],
            "topic_ids": dict(sorted(self.topic_ids.items())),
            "taken_ms": self.taken_ms,
            "in_transactions": sorted(self.in_transactions),
            "files": {name: [file.sha256, file.size] for name, file in sorted(self.files.items())},
        }
        return json.dumps({"sha256": _digest(content), "snapshot": content}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Read the stored form.

        Raises:
            SnapshotError: The data was not written by :meth:`encode`, or was modified.
        """
        try:
            outer = loads_foreign(data)
            content = outer["snapshot"]
            if outer["sha256"] != _digest(content):
                raise SnapshotError("its manifest was modified or is incomplete")
            if content["format"] != _FORMAT:
                raise SnapshotError(f"its manifest has format {content['format']!r:.20}; this version reads {_FORMAT}")
            files = {
                _name(name): SnapshotFile(_hash(sha256), _size(size))
                for name, (sha256, size) in content["files"].items()
            }
            if len(files) > _FILES_MAX:
                raise SnapshotError(f"it has {len(files)} files, more than the limit of {_FILES_MAX}")
            return cls(
                SnapshotOf(
                    _label(content["application"]),
                    None if content["cluster"] is None else _label(content["cluster"]),
                    _label(content["task"]),
                    {_label(store): _label(layout) for store, layout in content["layout"].items()},
                ),
                {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in content["positions"]},
                files,
                dict(content.get("topic_ids", {})),
                _time(content.get("taken_ms")),
                frozenset(str(topic) for topic in content.get("in_transactions", ())),
            )
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
            raise SnapshotError(f"its manifest cannot be read: {printable(named(error), 200)}") from error

    def check(self, wanted: SnapshotOf) -> None:
        """Check that the snapshot belongs to the wanted state.

        Raises:
            SnapshotError: It belongs to other state. The message names the difference.
        """
        found = self.of
        if found.application != wanted.application or found.task != wanted.task:
            raise SnapshotError(f"it belongs to task {found.task} of application {found.application!r}")
        if found.cluster is not None and wanted.cluster is not None and found.cluster != wanted.cluster:
            raise SnapshotError(f"it belongs to cluster {found.cluster}, not to {wanted.cluster}")
        for store in sorted(found.layout.keys() | wanted.layout.keys()):
            theirs, ours = found.layout.get(store), wanted.layout.get(store)
            if theirs != ours:
                raise SnapshotError(
                    f"store {store!r} is {theirs or 'missing'} in the snapshot, "
                    f"but {ours or 'missing'} in this topology"
                )

    def is_of(self, of: SnapshotOf) -> bool:
        """Whether the snapshot belongs to this state (:meth:`check` does not raise)."""
        try:
            self.check(of)
        except SnapshotError:
            return False
        return True


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _label(text: object) -> str:
    """Return text that is safe to show in errors; ValueError for anything else."""
    if not isinstance(text, str) or printable(text) != text:
        raise ValueError(f"expected text without control characters, got {type(text).__name__}")
    return text


def _name(name: str) -> str:
    if not _FILE_NAME.fullmatch(name):
        raise SnapshotError(f"it has a file with the invalid name {name!r:.100}")
    return name


def _size(size: int) -> int:
    if int(size) < 0:
        raise ValueError("a file has a negative size")
    return int(size)


def _time(time_ms: int | None) -> int | None:
    return None if time_ms is None else int(time_ms)


def _hash(text: str) -> str:
    if not _HASH.fullmatch(text):
        raise SnapshotError(f"{text!r:.100} is not a valid SHA-256")
    return text
