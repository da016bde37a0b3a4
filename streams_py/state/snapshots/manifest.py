"""What a snapshot is: the files of one task's database, each with its hash, and whose they are.

JSON, with a hash over all of it: a manifest that was half written, or changed, is none. It is written when all files
are there.
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

__all__ = ["Manifest", "SnapshotFile", "SnapshotOf"]

_FORMAT: Final = 1
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_FILES_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class SnapshotOf:
    """Whose state it is. ``layout``: of each store on disk, what kind it is and what its bytes depend on."""

    application: str
    cluster: str | None
    task: str
    layout: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """SHA-256 of a file, in hex, and its size in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One snapshot. ``positions``: offset of the last record that is in it, by changelog partition; ``topic_ids``: of
    the topics that these are positions in, as far as they have ids; ``taken_ms``: a time at which nothing was missing
    in it, in ms since 1970 (None: an older version's, which did not say); ``in_transactions``: changelog topics that
    the task writes in transactions only, so that a marker comes after each position."""

    of: SnapshotOf
    positions: Mapping[TopicPartition, int]
    files: Mapping[str, SnapshotFile]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    taken_ms: int | None = None
    in_transactions: frozenset[str] = frozenset()

    def encode(self) -> bytes:
        """As it is stored."""
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
        """SnapshotError for anything that :meth:`encode` did not write."""
        try:
            outer = loads_foreign(data)
            content = outer["snapshot"]
            if outer["sha256"] != _digest(content):
                raise SnapshotError("its manifest was changed, or is not whole")
            if content["format"] != _FORMAT:
                raise SnapshotError(f"its manifest has format {content['format']!r:.20}; this version reads {_FORMAT}")
            files = {
                _name(name): SnapshotFile(_hash(sha256), int(size)) for name, (sha256, size) in content["files"].items()
            }
            if len(files) > _FILES_MAX:
                raise SnapshotError(f"it has {len(files)} files")
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
        """SnapshotError that says in which way this is somebody else's state."""
        found = self.of
        if found.application != wanted.application or found.task != wanted.task:
            raise SnapshotError(f"it is of task {found.task} of application {found.application!r}")
        if found.cluster is not None and wanted.cluster is not None and found.cluster != wanted.cluster:
            raise SnapshotError(f"it is of cluster {found.cluster}, and this one is {wanted.cluster}")
        for store in sorted(found.layout.keys() | wanted.layout.keys()):
            theirs, ours = found.layout.get(store), wanted.layout.get(store)
            if theirs != ours:
                raise SnapshotError(
                    f"store {store!r} is {theirs or 'not in it'}, and {ours or 'not there'} in this topology"
                )

    def is_of(self, of: SnapshotOf) -> bool:
        """False when :meth:`check` has something to say."""
        try:
            self.check(of)
        except SnapshotError:
            return False
        return True


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _label(text: object) -> str:
    """Text that errors may show."""
    if not isinstance(text, str) or printable(text) != text:
        raise ValueError(f"expected text without control characters, got {type(text).__name__}")
    return text


def _name(name: str) -> str:
    if not _FILE_NAME.fullmatch(name):
        raise SnapshotError(f"it has a file {name!r:.100}")
    return name


def _time(time_ms: int | None) -> int | None:
    return None if time_ms is None else int(time_ms)


def _hash(text: str) -> str:
    if not _HASH.fullmatch(text):
        raise SnapshotError(f"{text!r:.100} is no SHA-256")
    return text
