"""A recorded situation: the complete input of an assignor, and the decision.

It is written as canonical JSON (sorted keys, task sets, whole numbers), so equal situations have equal bytes and one
hash. Telemetry writes the same text into its table ``rebalance_input``. The text contains neither the time nor the
generation.

Two facts that a leader knows are not recorded: which thread of a client reported which offset sum, and the racks of
single threads. A task that a thread owns counts as reported by that thread, and any other task as reported by the
client's first thread. The client's rack counts for all of its threads.
"""

# ruff: noqa: RUF009  # `form` is `dataclasses.field` with one more argument, not a shared default value
from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from streams_protocol import DecodeError
from streams_protocol.types import TaskId
from streams_py.events.consistency import check_slice
from streams_py.events.fields import (
    BOOL,
    SETTING,
    TASKS,
    TEXT,
    form,
    list_of,
    map_of,
    optional,
    read_record,
    record,
    write_record,
)
from streams_py.events.fields import refused as _refused
from streams_py.events.model import Assignor, Consumer, OffsetSums, SubtopologySlice, Tasks, ThreadTasks
from streams_py.system.foreign_json import loads as loads_foreign

FUTURE_CLIENT: Final = "future"
"""Name of the client that represents all members with a newer protocol."""

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ReplayClient:
    """An instance before the rebalance. ``sums`` are the offset sums that it reported."""

    client: str = form(TEXT)
    host: str | None = form(optional(TEXT))
    rack: str | None = form(optional(TEXT))
    tags: Mapping[str, str] = form(map_of(TEXT))
    consumers: Sequence[Consumer] = form(list_of(record(Consumer)))
    prev_active: Tasks = form(TASKS)
    prev_standby: Tasks = form(TASKS)
    sums: OffsetSums = form(record(OffsetSums))


@dataclass(frozen=True, slots=True)
class ClientDecision:
    """The tasks that an instance was assigned. ``threads`` and ``reasons`` are recorded, but not compared."""

    active: Tasks = form(TASKS)
    standby: Tasks = form(TASKS)
    warmup: Tasks = form(TASKS)
    threads: Sequence[ThreadTasks] = form(list_of(record(ThreadTasks)), default=())
    reasons: Mapping[str, Tasks] = form(map_of(TASKS), default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A decision and its assignor."""

    assignor: Assignor = form(record(Assignor))
    clients: Mapping[str, ClientDecision] = form(map_of(record(ClientDecision)))


@dataclass(frozen=True, slots=True)
class ReplayInput:
    """One situation. ``configs`` are the eight settings of an assignment by Kafka's keys; None means not set.

    A situation that did not occur (synthetic, or changed by a what-if) has no ``decision``.
    """

    configs: Mapping[str, Any] = form(map_of(SETTING))
    lag_ok: bool = form(BOOL)
    subs: Sequence[SubtopologySlice] = form(list_of(record(SubtopologySlice)))
    clients: Sequence[ReplayClient] = form(list_of(record(ReplayClient)))
    decision: RecordedDecision | None = form(optional(record(RecordedDecision)), default=None)
    text: str | None = field(default=None, compare=False, repr=False)
    """The text from which the situation was read, if any."""

    def canonical(self) -> str:
        """Return canonical JSON."""
        if self.text is not None:
            return self.text
        return json.dumps(
            {"v": _VERSION, **write_record(self)}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )

    def hash(self) -> str:
        """Return the SHA-256 of the canonical text, in hexadecimal digits."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()

    @property
    def task_count(self) -> int:
        """Number of tasks."""
        return sum(piece.count for piece in self.subs)


def read_input(text: str) -> ReplayInput:
    """Read a situation from its JSON. Raises DecodeError when it is not valid."""
    try:
        value = loads_foreign(text)
    except ValueError as error:
        raise DecodeError(f"a recorded input is not JSON ({error})", offset=0, remedy=_REMEDY) from None
    if not isinstance(value, dict) or value.get("v") != _VERSION:
        found = value.get("v") if isinstance(value, dict) else type(value).__name__
        raise DecodeError(f"a recorded input has version {found!r}, expected {_VERSION}", offset=0, remedy=_REMEDY)
    read = read_record(ReplayInput, value, "input")
    check_input(read)
    return ReplayInput(read.configs, read.lag_ok, read.subs, read.clients, read.decision, text)


_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_REMEDY: Final = "use inputs from telemetry's table rebalance_input, an events topic or `backtest generate`"


def check_input(read: ReplayInput) -> None:
    """Raise DecodeError when the parts of a situation are not consistent."""
    names = [client.client for client in read.clients]
    if not names or len(set(names)) != len(names):
        raise _refused("input.clients", names, "at least one client, and none twice")
    for client in read.clients:
        if not client.consumers:
            raise _refused(f"input.clients.{client.client}.consumers", [], "at least one consumer")
        if len(client.sums.tasks) != len(client.sums.v):
            raise _refused(f"input.clients.{client.client}.sums", len(client.sums.v), "one sum for each task")
    for piece in read.subs:
        if not _NUMBER.fullmatch(piece.sub):
            raise _refused("input.subs.sub", piece.sub, "a number: named topologies cannot be decided again")
        if piece.end is not None and len(piece.end) != piece.count:
            raise _refused("input.subs.end", len(piece.end), "one end for each task")
        check_slice(piece)


def tasks_of(subs: Sequence[SubtopologySlice]) -> Iterator[TaskId]:
    """Yield every task, ascending within its sub-topology."""
    for piece in subs:
        number = int(piece.sub)
        for partition in range(piece.first, piece.first + piece.count):
            yield TaskId(number, partition)
