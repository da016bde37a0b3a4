"""Stream times of nodes and stores, which are committed with the offsets.

A window closes by the stream time of the operator that fills it. The operator cannot read that time from its store: the
record with the largest timestamp may have been deleted, its window may have expired, and a suppress buffer does not
keep the changes that it has sent. So the task commits the time with the offsets, where Kafka Streams stores the time of
the last window emission. So the time is available wherever the task moves: after a disk was wiped, on a former standby,
for a store in memory, and together with the offsets of a transaction.

Stores that expire old records have their own stream time, which cannot be derived exactly from their files. It is
committed, too, unless a node's time belongs to the store.

Stores of stream-stream joins number their records. The last number is committed for the same reason: after a restart, a
record with a reused number would replace the earlier record of the same key and time.

A Java member reads these numbers, ignores them, and commits them again with its offsets.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from streams_protocol.types import TaskId
from streams_py.runtime.tasks.record.binding import BoundTopology, Clock
from streams_py.runtime.tasks.record.offset_metadata import UNKNOWN_TIME
from streams_py.runtime.tasks.settings.task_settings import TaskSettings

_log = logging.getLogger(__name__)
_MARK = "~"
_HASH_BYTES = 9
_COUNT_MAX = 80
"""Maximum number of committed times per task. A broker rejects metadata of more than ``offset.metadata.max.bytes``
(4096 by default). 80 times take 2.7 kB, which leaves room for the numbers of Kafka Streams."""


class NodeTimes:
    """Writes the stream times of a task's nodes into the numbers that are committed, and reads them back."""

    def __init__(self, task_id: TaskId, clocks: Mapping[str, Clock]) -> None:
        self._clocks = {_key(name): clock for name, clock in list(clocks.items())[:_COUNT_MAX]}
        if len(clocks) > _COUNT_MAX:
            _log.warning(
                "task %s has %d windowed operators and stores, but a committed offset has room for the stream times of "
                "%d; after a restart these accept late records again: %s",
                task_id, len(clocks), _COUNT_MAX, ", ".join(list(clocks)[_COUNT_MAX:]),
            )  # fmt: skip

    @classmethod
    def of(cls, task_id: TaskId, nodes: BoundTopology, stores: Mapping[str, Any], settings: TaskSettings) -> NodeTimes:
        """Return the times of a task. Empty with ``reference_behaviour``: as in Kafka Streams, a restart loses them."""
        if settings.reference_behaviour:
            return cls(task_id, {})
        clocks = nodes.clocks()
        for name, store in stores.items():
            if name not in clocks and hasattr(store, "observed_time"):
                clocks[name] = Clock(store.observed_time, store.observe)
            if hasattr(store, "last_sequence"):
                clocks[f"{name}#sequence"] = Clock(store.last_sequence, store.continue_after)
        return cls(task_id, clocks)

    def restore(self, committed: Mapping[str, int]) -> None:
        """Set the clocks to the committed times."""
        for key, clock in self._clocks.items():
            if key in committed:
                clock.write(committed[key])

    def note(self, numbers: dict[str, int]) -> None:
        """Update the numbers that are committed."""
        for key, clock in self._clocks.items():
            time_ms = clock.read()
            if time_ms != UNKNOWN_TIME:
                numbers[key] = time_ms


def _key(name: str) -> str:
    """Return a short key that no store name can equal: ``~`` is not allowed there. Java's keys are store names."""
    return _MARK + base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()[:_HASH_BYTES]).decode()
