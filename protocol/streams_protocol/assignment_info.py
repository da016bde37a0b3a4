"""AssignmentInfo: the message from the group leader to one Streams member, versions 1 to 11.

It is the ``userData`` of the consumer protocol's Assignment. Kafka Streams' ``AssignmentInfo`` encodes it by hand with
Java's data streams. It tells the member the task of each of its partitions, its standby tasks, the partitions of each
host (for interactive queries), an error code, and when to rejoin.

The *partitions* of a member are in the consumer protocol. This message has only their tasks, as a second list of the
same length. :func:`pair` combines the two lists: the i-th smallest partition belongs to the i-th task.

Host maps repeat topic names often. So versions from 5 on write each topic once, into a dictionary, and refer to it by
index. Entries of the dictionary contain their index, so they may be in any order.

Unlike for a subscription, a newer version of an assignment is fatal, and every failure is a task-assignment error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import repeat
from operator import itemgetter
from typing import Final

from .buffer import Reader, Writer
from .constants import LATEST_SUPPORTED_VERSION, MIN_VERSION_NAMED_TOPOLOGY, NO_FOLLOW_UP, UNKNOWN_VERSION
from .errors import (
    DecodeError,
    EncodeError,
    InvalidVersionEncodeError,
    TaskAssignmentDecodeError,
    TaskAssignmentEncodeError,
)
from .interning import plain_task_ids
from .limits import HOSTS_MAX, PARTITIONS_MAX, TASKS_MAX
from .types import HostInfo, TaskId, TopicPartition

__all__ = [
    "AssignmentInfo",
    "decode_assignment_info",
    "encode_assignment_info",
    "error_assignment",
    "pair",
    "partitions_by_task",
]

_MESSAGE: Final = "AssignmentInfo"
_VERSION_COMMONLY_SUPPORTED: Final = 3
_VERSION_HOST_MAP: Final = 2
_VERSION_DICTIONARY: Final = 5
_VERSION_STANDBY_HOST_MAP: Final = 6
_VERSION_ERROR_CODE: Final = 4
_VERSION_NEXT_REBALANCE: Final = 7

_NO_NAME: Final = bytes(4)  # no characters

_name_of: Final = itemgetter(0)  # of a TaskId, which is (name, subtopology, partition)
_subtopology_of: Final = itemgetter(1)
_partition_of: Final = itemgetter(2)

_PartitionsByHost = Mapping[HostInfo, AbstractSet[TopicPartition]]


@dataclass(frozen=True, slots=True)
class AssignmentInfo:
    """The assignment of one member.

    As in Kafka, ``next_rebalance_ms`` does not matter for equality. ``commonly_supported_version`` is -1 when read from
    versions 1 and 2. ``error_code`` is one of ``ErrorCode`` or an unknown number.

    Raises:
        InvalidVersionEncodeError: unless 1 <= version <= 11.
    """

    version: int = LATEST_SUPPORTED_VERSION
    commonly_supported_version: int = LATEST_SUPPORTED_VERSION
    active_tasks: tuple[TaskId, ...] = ()
    """Task of each assigned partition, in ascending order of the *partitions*.

    A task occurs once per partition.
    """
    standby_tasks: Mapping[TaskId, AbstractSet[TopicPartition]] = field(default_factory=dict)
    """Source partitions of each standby task."""
    partitions_by_host: _PartitionsByHost = field(default_factory=dict)
    standby_partitions_by_host: _PartitionsByHost = field(default_factory=dict)
    error_code: int = 0
    next_rebalance_ms: int = field(default=NO_FOLLOW_UP, compare=False)
    """Time to rejoin, in ms since the epoch; 0: immediately, ``NO_FOLLOW_UP``: never."""

    def __post_init__(self) -> None:
        if not 1 <= self.version <= LATEST_SUPPORTED_VERSION:
            raise InvalidVersionEncodeError(
                f"{_MESSAGE}: version {self.version} cannot be written",
                remedy=f"use a version from 1 to {LATEST_SUPPORTED_VERSION}",
            )


def error_assignment(error_code: int) -> AssignmentInfo:
    """Return the assignment without tasks that reports an error to a member.

    It always has the newest version: a member that cannot read it fails, as intended.
    """
    return AssignmentInfo(error_code=error_code)


def pair(
    partitions: Iterable[TopicPartition], active_tasks: Collection[TaskId]
) -> tuple[tuple[TopicPartition, TaskId], ...]:
    """Return the task of each assigned partition, in ascending order of the partitions.

    ``partitions`` may be in any order, ``active_tasks`` must be in the leader's order. Source: Kafka Streams'
    ``StreamsPartitionAssignor.onAssignment``.

    Raises:
        TaskAssignmentDecodeError: the lists have different lengths.
    """
    ordered = sorted(partitions)
    if len(ordered) != len(active_tasks):
        raise TaskAssignmentDecodeError(
            f"{_MESSAGE}: {len(active_tasks)} active tasks for {len(ordered)} assigned partitions",
            offset=0,
            remedy="the leader of the group is faulty; check which program and version it runs",
        )
    return tuple(zip(ordered, active_tasks, strict=True))


def partitions_by_task(
    partitions: Iterable[TopicPartition], active_tasks: Collection[TaskId]
) -> dict[TaskId, frozenset[TopicPartition]]:
    """Return the pairs of :func:`pair`, grouped by task."""
    gathered: dict[TaskId, set[TopicPartition]] = {}
    for partition, task in pair(partitions, active_tasks):
        gathered.setdefault(task, set()).add(partition)
    return {task: frozenset(members) for task, members in gathered.items()}


# -- decode --------------------------------------------------------------------------------------------------


def decode_assignment_info(data: bytes | bytearray | memoryview) -> AssignmentInfo:
    """Decode the user data of an assignment; bytes after the last field are ignored.

    Fields that the version does not have get their defaults. Source: Kafka Streams' ``AssignmentInfo.decode``.

    Raises:
        TaskAssignmentDecodeError: any failure; no other exception is raised.
    """
    try:
        return _read(Reader(data, _MESSAGE))
    except TaskAssignmentDecodeError:
        raise
    except DecodeError as error:
        raise TaskAssignmentDecodeError(error.what, offset=error.offset, remedy=error.remedy) from error


def _read(reader: Reader) -> AssignmentInfo:
    version = reader.int32("version")
    if not 1 <= version <= LATEST_SUPPORTED_VERSION:
        raise TaskAssignmentDecodeError(
            f"{_MESSAGE}: version {version} cannot be read; the newest supported version is {LATEST_SUPPORTED_VERSION}",
            offset=0,
            remedy="upgrade this member, or let the leader write an older version",
        )
    commonly_supported = UNKNOWN_VERSION
    if version >= _VERSION_COMMONLY_SUPPORTED:
        commonly_supported = reader.int32("commonlySupportedVersion")
    active = _read_active_tasks(reader, version)
    standby = _read_standby_tasks(reader, version)
    by_host: dict[HostInfo, frozenset[TopicPartition]] = {}
    standby_by_host: dict[HostInfo, frozenset[TopicPartition]] = {}
    if version >= _VERSION_DICTIONARY:
        topics = _read_dictionary(reader)
        by_host = _read_host_map(reader, "partitionsByHost", topics)
        if version >= _VERSION_STANDBY_HOST_MAP:
            standby_by_host = _read_host_map(reader, "standbyPartitionsByHost", topics)
    elif version >= _VERSION_HOST_MAP:
        by_host = _read_host_map(reader, "partitionsByHost", None)
    return AssignmentInfo(
        version,
        commonly_supported,
        active,
        standby,
        by_host,
        standby_by_host,
        reader.int32("errCode") if version >= _VERSION_ERROR_CODE else 0,
        reader.int64("nextRebalanceMs") if version >= _VERSION_NEXT_REBALANCE else NO_FOLLOW_UP,
    )


def _read_active_tasks(reader: Reader, version: int) -> tuple[TaskId, ...]:
    named = version >= MIN_VERSION_NAMED_TOPOLOGY
    count = reader.count("activeTasks", row_bytes_min=12 if named else 8, most=PARTITIONS_MAX)
    columns = reader.columns_if_ending("q", count, _NO_NAME) if named else reader.columns("q", count, "activeTasks")
    if columns is None:
        return tuple(_read_task(reader, version) for _ in range(count))
    return tuple(plain_task_ids(*columns))


def _read_task(reader: Reader, version: int) -> TaskId:
    subtopology = reader.int32("task.subtopology")
    partition = reader.int32("task.partition")
    name = reader.chars("task.topologyName") if version >= MIN_VERSION_NAMED_TOPOLOGY else None
    return TaskId(subtopology, partition, name)


def _read_standby_tasks(reader: Reader, version: int) -> dict[TaskId, frozenset[TopicPartition]]:
    row_bytes_min = 16 if version >= MIN_VERSION_NAMED_TOPOLOGY else 12
    tasks: dict[TaskId, frozenset[TopicPartition]] = {}
    for _ in range(reader.count("standbyTasks", row_bytes_min=row_bytes_min, most=TASKS_MAX)):
        task = _read_task(reader, version)
        tasks[task] = _read_partitions(reader, "standbyTasks.partitions")
    return tasks


def _read_partitions(reader: Reader, name: str) -> frozenset[TopicPartition]:
    count = reader.count(name, row_bytes_min=6, most=PARTITIONS_MAX)
    return frozenset([TopicPartition(reader.mutf("topic"), reader.int32("partition")) for _ in range(count)])


def _read_dictionary(reader: Reader) -> dict[int, str]:
    topics: dict[int, str] = {}
    for _ in range(reader.count("topic dictionary", row_bytes_min=6, most=PARTITIONS_MAX)):
        index = reader.int32("topic index")
        topics[index] = reader.mutf("topic")  # of two topics with the same index the later one counts, as in Kafka
    return topics


def _read_host_map(
    reader: Reader, name: str, topics: dict[int, str] | None
) -> dict[HostInfo, frozenset[TopicPartition]]:
    hosts: dict[HostInfo, frozenset[TopicPartition]] = {}
    for _ in range(reader.count(name, row_bytes_min=10, most=HOSTS_MAX)):
        host = HostInfo(reader.mutf("host"), reader.int32("port"))
        if topics is None:
            hosts[host] = _read_partitions(reader, f"{name}.partitions")
        else:
            hosts[host] = frozenset(_read_indexed_partitions(reader, f"{name}.partitions", topics))
    return hosts


def _read_indexed_partitions(reader: Reader, name: str, topics: dict[int, str]) -> Iterator[TopicPartition]:
    at = reader.offset
    count = reader.count(name, row_bytes_min=8, most=PARTITIONS_MAX)
    indices, partitions = reader.columns("ii", count, name)
    try:
        names = [topics[index] for index in indices]
    except KeyError as missing:
        raise reader.not_allowed(f"topic index {missing} of {name} is not in the dictionary", at) from None
    # Same as map(TopicPartition, ...) at a third of the cost, without a Python frame per partition.
    return map(tuple.__new__, repeat(TopicPartition), zip(names, partitions))


# -- encode --------------------------------------------------------------------------------------------------


def encode_assignment_info(info: AssignmentInfo) -> bytes:
    """Encode ``info`` in the layout of ``info.version``.

    Maps, sets and the dictionary are written in ascending order, ``active_tasks`` in their own order. Source: Kafka
    Streams' ``AssignmentInfo.encode``.

    Raises:
        TaskAssignmentEncodeError: a task of a named topology before version 10, or a value that does not fit its field.
    """
    try:
        return _write(info)
    except TaskAssignmentEncodeError:
        raise
    except EncodeError as error:
        raise TaskAssignmentEncodeError(error.what, remedy=error.remedy) from error


def _write(info: AssignmentInfo) -> bytes:
    version = info.version
    writer = Writer(_MESSAGE)
    writer.int32(version, "version")
    if version >= _VERSION_COMMONLY_SUPPORTED:
        writer.int32(info.commonly_supported_version, "commonlySupportedVersion")
    _write_active_tasks(writer, version, info.active_tasks)
    writer.count(len(info.standby_tasks), "standbyTasks", most=TASKS_MAX)
    for task, partitions in sorted(info.standby_tasks.items(), key=itemgetter(0)):
        _write_task(writer, version, task)
        _write_partitions(writer, "standbyTasks.partitions", partitions)
    if version >= _VERSION_DICTIONARY:
        _write_indexed_host_maps(writer, info)
    elif version >= _VERSION_HOST_MAP:
        _write_host_map(writer, info.partitions_by_host)
    if version >= _VERSION_ERROR_CODE:
        writer.int32(info.error_code, "errCode")
    if version >= _VERSION_NEXT_REBALANCE:
        writer.int64(info.next_rebalance_ms, "nextRebalanceMs")
    return writer.finish()


def _write_active_tasks(writer: Writer, version: int, tasks: tuple[TaskId, ...]) -> None:
    count = len(tasks)
    writer.count(count, "activeTasks", most=PARTITIONS_MAX)
    if any(map(_name_of, tasks)):
        for task in tasks:
            _write_task(writer, version, task)
        return
    columns = map(_subtopology_of, tasks), map(_partition_of, tasks)
    row_end = _NO_NAME if version >= MIN_VERSION_NAMED_TOPOLOGY else b""
    writer.columns("ii", columns, count, "activeTasks", row_end=row_end)


def _write_task(writer: Writer, version: int, task: TaskId) -> None:
    writer.int32(task.subtopology, "task.subtopology")
    writer.int32(task.partition, "task.partition")
    if version >= MIN_VERSION_NAMED_TOPOLOGY:
        writer.chars(task.name, "task.topologyName")
    elif task.name:
        raise TaskAssignmentEncodeError(
            f"{_MESSAGE}: task {task} belongs to a named topology, which versions before "
            f"{MIN_VERSION_NAMED_TOPOLOGY} cannot express",
            remedy="upgrade all members of the group before using named topologies",
        )


def _write_partitions(writer: Writer, name: str, partitions: Collection[TopicPartition]) -> None:
    writer.count(len(partitions), name, most=PARTITIONS_MAX)
    for topic, partition in sorted(partitions):
        writer.mutf(topic, "topic")
        writer.int32(partition, "partition")


def _write_host_map(writer: Writer, hosts: _PartitionsByHost) -> None:
    writer.count(len(hosts), "partitionsByHost", most=HOSTS_MAX)
    for (host, port), partitions in sorted(hosts.items(), key=itemgetter(0)):
        writer.mutf(host, "host")
        writer.int32(port, "port")
        _write_partitions(writer, "partitionsByHost.partitions", partitions)


def _write_indexed_host_maps(writer: Writer, info: AssignmentInfo) -> None:
    maps = [("partitionsByHost", info.partitions_by_host)]
    if info.version >= _VERSION_STANDBY_HOST_MAP:
        maps.append(("standbyPartitionsByHost", info.standby_partitions_by_host))
    topics = {topic for _, hosts in maps for partitions in hosts.values() for topic, _ in partitions}
    index_of = {topic: index for index, topic in enumerate(sorted(topics))}
    writer.count(len(index_of), "topic dictionary", most=PARTITIONS_MAX)
    for topic, index in index_of.items():
        writer.int32(index, "topic index")
        writer.mutf(topic, "topic")
    for name, hosts in maps:
        writer.count(len(hosts), name, most=HOSTS_MAX)
        for (host, port), partitions in sorted(hosts.items(), key=itemgetter(0)):
            writer.mutf(host, "host")
            writer.int32(port, "port")
            # Indices have the order of the topics. Pairs of ints sort several times faster than TopicPartitions.
            pairs = sorted([(index_of[topic], partition) for topic, partition in partitions])
            writer.count(len(pairs), f"{name}.partitions", most=PARTITIONS_MAX)
            columns = map(itemgetter(0), pairs), map(itemgetter(1), pairs)
            writer.columns("ii", columns, len(pairs), f"{name}.partitions")
