"""A manifest of a snapshot, whose fields tests damage."""

from __future__ import annotations

from streams_protocol.types import TopicPartition
from streams_py.state.snapshots.manifest import Manifest, SnapshotFile, SnapshotOf

OF = SnapshotOf("app", "cluster", "0_0", {"store": "key-value"})

MANIFEST = Manifest(OF, {TopicPartition("t", 0): 5}, {"CURRENT": SnapshotFile("0" * 64, 3)}, taken_ms=1)
