"""Kafka Connect's group protocol: worker state and assignment, versions 0 to 3.

A Connect worker sends the leader its REST URL, its position in the config topic, and its current jobs. It receives the
jobs to start and to stop. Version 0 is eager: every assignment is complete. Versions 1 and 2 are incremental (KIP-415;
version 2 also means signed internal requests, KIP-507). Version 3 adds a worker's static connectors and tasks (KIP-987,
which Apache Kafka has not merged); its assignment is the same as in version 2.

In the encoding, jobs are grouped by connector, and the number -1 stands for the connector itself. We write jobs in
ascending order without duplicates, so that equal states are equal bytes: a worker that rejoins with different bytes
starts a rebalance. We read any order and keep the first of duplicates.

Source: Kafka Connect's ``ConnectProtocol``, ``IncrementalCooperativeConnectProtocol``, ``ExtendedAssignment``. The
names are Kafka's, so they collide with the consumer protocol's names: import the module, not the names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from .buffer import Reader, Writer
from .errors import DecodeError, InvalidVersionEncodeError, SchemaError

__all__ = [
    "CONFIG_MISMATCH",
    "LATEST_VERSION",
    "NO_ERROR",
    "Assignment",
    "SchemaError",
    "TaskId",
    "WorkerState",
    "decode_assignment",
    "decode_worker_state",
    "encode_assignment",
    "encode_worker_state",
]

LATEST_VERSION: Final = 3
NO_ERROR: Final = 0
CONFIG_MISMATCH: Final = 1
"""Error code: the leader has read less of the config topic than other workers.

The assignment is empty then.
"""

_VERSION_INCREMENTAL: Final = 1
_VERSION_STATIC: Final = 3
_CONNECTOR: Final = -1
_REMEDY: Final = "check which program and version the other worker runs"


class TaskId(NamedTuple):
    """One task of a connector. The order is by connector name, then by number."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment of a worker: sent by the leader, and reported by the worker when it joins.

    In version 0, ``connectors`` and ``tasks`` are all jobs; ``revoked_*`` and ``delay_ms`` are not transmitted. In
    later versions they are only the new jobs, ``revoked_*`` are the jobs to stop, and the worker rejoins after
    ``delay_ms``. Decoding keeps the order of jobs. For encoding, order and duplicates do not matter. ``version`` is the
    version prefix as read, even if it is not supported.
    """

    leader: str
    """Member id of the leader."""
    leader_url: str
    config_offset: int
    error: int = NO_ERROR
    connectors: tuple[str, ...] = ()
    tasks: tuple[TaskId, ...] = ()
    revoked_connectors: tuple[str, ...] = ()
    revoked_tasks: tuple[TaskId, ...] = ()
    delay_ms: int = 0
    version: int = LATEST_VERSION

    @property
    def failed(self) -> bool:
        """Whether the leader could not assign jobs."""
        return self.error != NO_ERROR


@dataclass(frozen=True, slots=True)
class WorkerState:
    """The state that a worker reports when it joins.

    ``allocation`` is None if the worker has no assignment, which differs from an empty one. The static lists are None
    if the worker's configuration does not contain them. An empty list makes the worker static.
    """

    url: str
    config_offset: int
    """The worker's position in the config topic; -1 before it has read anything."""
    allocation: Assignment | None = None
    static_connectors: frozenset[str] | None = None
    static_tasks: frozenset[TaskId] | None = None


# -- decode --------------------------------------------------------------------------------------------------


def decode_worker_state(data: bytes | bytearray | memoryview, *, reader_version: int = LATEST_VERSION) -> WorkerState:
    """Decode a worker state.

    Missing fields at the end get their defaults, extra bytes are ignored. ``reader_version`` is for tests: decode like
    a worker that supports only layouts up to this version. Raises ``SchemaError``.
    """
    try:
        return _read_worker_state(Reader(data, "Connect worker state"), reader_version)
    except SchemaError:
        raise
    except DecodeError as error:
        raise SchemaError(error.what, offset=error.offset, remedy=error.remedy) from error


def decode_assignment(data: bytes | bytearray | memoryview, *, reader_version: int = LATEST_VERSION) -> Assignment:
    """Decode an assignment.

    Missing fields at the end get their defaults, extra bytes are ignored. ``reader_version`` is for tests: 0 decodes
    like an eager worker. Raises ``SchemaError``.
    """
    try:
        return _read_assignment(Reader(data, "Connect assignment"), reader_version)
    except SchemaError:
        raise
    except DecodeError as error:
        raise SchemaError(error.what, offset=error.offset, remedy=error.remedy) from error


def _read_version(reader: Reader) -> int:
    version = reader.int16("version")
    if version < 0:
        raise SchemaError(f"Connect protocol version {version} does not exist", offset=0, remedy=_REMEDY)
    return version


def _read_worker_state(reader: Reader, reader_version: int) -> WorkerState:
    version = _read_version(reader)
    url = reader.string("url")
    config_offset = reader.int64("configOffset")
    allocation: Assignment | None = None
    if reader_version >= _VERSION_INCREMENTAL and reader.remaining:
        blob = reader.nullable_blob("allocation")
        allocation = None if blob is None else decode_assignment(blob, reader_version=reader_version)
    static_connectors: frozenset[str] | None = None
    static_tasks: frozenset[TaskId] | None = None
    if min(version, reader_version) >= _VERSION_STATIC:
        if reader.remaining:
            count = reader.nullable_count("staticConnectors", row_bytes_min=2)
            if count is not None:
                static_connectors = frozenset([reader.string("staticConnectors") for _ in range(count)])
        if reader.remaining:
            count = reader.nullable_count("staticTasks", row_bytes_min=6)
            if count is not None:
                static_tasks = frozenset(_read_jobs(reader, "staticTasks", count, smallest=0)[1])
    return WorkerState(url, config_offset, allocation, static_connectors, static_tasks)


def _read_assignment(reader: Reader, reader_version: int) -> Assignment:
    version = _read_version(reader)
    error = reader.int16("error")
    leader = reader.string("leader")
    leader_url = reader.string("leaderUrl")
    config_offset = reader.int64("configOffset")
    if reader_version < _VERSION_INCREMENTAL:
        count = reader.count("assigned", row_bytes_min=6)
        jobs = _read_jobs(reader, "assigned", count, smallest=_CONNECTOR)
        return Assignment(leader, leader_url, config_offset, error, *jobs, version=version)
    assigned = _read_nullable_jobs(reader, "assigned")
    revoked = _read_nullable_jobs(reader, "revoked")
    delay_ms = reader.int32("delay") if reader.remaining else 0
    return Assignment(leader, leader_url, config_offset, error, *assigned, *revoked, delay_ms, version)


_Jobs = tuple[tuple[str, ...], tuple[TaskId, ...]]


def _read_nullable_jobs(reader: Reader, name: str) -> _Jobs:
    count = reader.nullable_count(name, row_bytes_min=6) if reader.remaining else None
    return ((), ()) if count is None else _read_jobs(reader, name, count, smallest=_CONNECTOR)


def _read_jobs(reader: Reader, name: str, count: int, *, smallest: int) -> _Jobs:
    connectors: dict[str, None] = {}
    tasks: dict[TaskId, None] = {}
    for _ in range(count):
        connector = reader.string(f"connector of {name}")
        at = reader.offset
        (numbers,) = reader.columns("i", reader.count(f"tasks of {name}", row_bytes_min=4), f"tasks of {name}")
        for number in numbers:
            if number < smallest:
                raise reader.not_allowed(f"task number {number} of {name} is below {smallest}", at)
            if number == _CONNECTOR:
                connectors[connector] = None
            else:
                tasks[TaskId(connector, number)] = None
    return tuple(connectors), tuple(tasks)


# -- encode --------------------------------------------------------------------------------------------------


def encode_worker_state(state: WorkerState, version: int = LATEST_VERSION) -> bytes:
    """Encode ``state`` in the layout of ``version``.

    Versions below 3 omit the static lists, version 0 also omits the allocation.

    Raises:
        EncodeError: the version is not 0 to 3, or a value does not fit its field.
    """
    writer = _versioned_writer("Connect worker state", version)
    writer.string(state.url, "url")
    writer.int64(state.config_offset, "configOffset")
    if version >= _VERSION_INCREMENTAL:
        allocation = state.allocation
        blob = None if allocation is None else encode_assignment(allocation, version)
        writer.nullable_blob(blob, "allocation")
    if version >= _VERSION_STATIC:
        if state.static_connectors is None:
            writer.int32(-1, "staticConnectors")
        else:
            writer.count(len(state.static_connectors), "staticConnectors")
            for connector in sorted(state.static_connectors):
                writer.string(connector, "staticConnectors")
        if state.static_tasks is None:
            writer.int32(-1, "staticTasks")
        else:
            _write_jobs(writer, "staticTasks", (), state.static_tasks)
    return writer.finish()


def encode_assignment(assignment: Assignment, version: int = LATEST_VERSION) -> bytes:
    """Encode ``assignment`` with the prefix ``version``; version 0 omits revoked jobs and delay.

    Raises:
        EncodeError: the version is not 0 to 3, or a value does not fit its field.
    """
    writer = _versioned_writer("Connect assignment", version)
    writer.int16(assignment.error, "error")
    writer.string(assignment.leader, "leader")
    writer.string(assignment.leader_url, "leaderUrl")
    writer.int64(assignment.config_offset, "configOffset")
    _write_jobs(writer, "assigned", assignment.connectors, assignment.tasks)
    if version >= _VERSION_INCREMENTAL:
        _write_jobs(writer, "revoked", assignment.revoked_connectors, assignment.revoked_tasks)
        writer.int32(assignment.delay_ms, "delay")
    return writer.finish()


def _versioned_writer(message: str, version: int) -> Writer:
    if not 0 <= version <= LATEST_VERSION:
        raise InvalidVersionEncodeError(
            f"{message}: version {version} cannot be written", remedy=f"use a version from 0 to {LATEST_VERSION}"
        )
    writer = Writer(message)
    writer.int16(version, "version")
    return writer


def _write_jobs(writer: Writer, name: str, connectors: Iterable[str], tasks: Collection[TaskId]) -> None:
    jobs = {(connector, _CONNECTOR) for connector in connectors} | {(task.connector, task.task) for task in tasks}
    by_connector: dict[str, list[int]] = {}
    for connector, number in sorted(jobs):
        by_connector.setdefault(connector, []).append(number)
    writer.count(len(by_connector), name)
    for connector, numbers in by_connector.items():
        writer.string(connector, f"connector of {name}")
        writer.count(len(numbers), f"tasks of {name}")
        writer.columns("i", (numbers,), len(numbers), f"tasks of {name}")
