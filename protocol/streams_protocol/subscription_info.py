"""SubscriptionInfo: the message from a Streams member to the leader, versions 1 to 11.

It is the ``userData`` of the consumer protocol's Subscription. Kafka Streams' ``SubscriptionInfo`` and its generated
``SubscriptionInfoData`` write it. It has the member's identity (process id, endpoint, tags), the tasks that it has
state of with their progress (KIP-441's offset sums), the version that it uses and the newest version that it supports.

There are three groups of layouts:

* Versions 1 to 6 have two *sets* of tasks, running and standby, without offset sums. Reading gives every running task
  ``LATEST_OFFSET`` and every other task ``UNKNOWN_OFFSET_SUM``.
* Versions 7 to 9 have offset sums grouped by sub-topology, versions 10 and 11 one row per task, with a topology name.
* Above version 11 only the two version numbers are read: the leader must know that the group has a newer member, but
  cannot decode its message.

Our encoding is canonical: tasks and tags are ascending, so equal values are equal bytes. The group coordinator compares
the bytes of a member that rejoins, and a difference starts a rebalance.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from operator import itemgetter, lt
from typing import Final

from .buffer import Reader, Writer
from .constants import (
    LATEST_OFFSET,
    LATEST_SUPPORTED_VERSION,
    MIN_VERSION_NAMED_TOPOLOGY,
    MIN_VERSION_OFFSET_SUMS,
    UNKNOWN_OFFSET_SUM,
    UNKNOWN_VERSION,
)
from .errors import (
    InvalidVersionDecodeError,
    InvalidVersionEncodeError,
    MissingUserDataDecodeError,
    RepeatedTagDecodeError,
    TaskAssignmentEncodeError,
)
from .interning import plain_task_ids
from .limits import TASKS_MAX, check_decoded, check_encoded
from .types import ProcessId, TaskId

__all__ = ["NO_PROCESS", "SubscriptionInfo", "decode_subscription_info", "encode_subscription_info"]

NO_PROCESS: Final = ProcessId(uuid.UUID(int=0))
"""Process id of a future member, whose real one is unknown. Do not group by it."""

_MESSAGE: Final = "SubscriptionInfo"
_VERSION_LATEST_SUPPORTED: Final = 3
_VERSION_ENDPOINT: Final = 2
_VERSION_UNIQUE_FIELD: Final = 8
_VERSION_ERROR_CODE: Final = 9
_VERSION_CLIENT_TAGS: Final = 11

_NO_NAME: Final = b"\xff\xff"  # length -1 of a nullable string

_name_of: Final = itemgetter(0)  # of a TaskId, which is (name, subtopology, partition)
_subtopology_of: Final = itemgetter(1)
_partition_of: Final = itemgetter(2)


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """One member's state when it joins. Compares by value.

    Fields that the version does not have are not sent.

    Attributes:
        latest_supported_version: may exceed 11 (a newer member that uses an older version), and is -1 when read from
            versions 1 and 2.
        unique_field: a signed byte that wraps around.
        error_code: one of ``ErrorCode`` or an unknown number.
        client_tags: raise ``RepeatedTagDecodeError`` when they are read, if the decoded message repeats a tag.
    """

    process_id: ProcessId
    version: int = LATEST_SUPPORTED_VERSION
    latest_supported_version: int = LATEST_SUPPORTED_VERSION
    endpoint: str | None = None
    """``application.server`` as host:port; None if the client does not serve queries."""
    task_offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    """Sum of the changelog offsets of each task, in records; ``LATEST_OFFSET`` if it runs here."""
    unique_field: int = 0
    """Differs between subscriptions if the member must start a rebalance."""
    error_code: int = 0
    client_tags: Mapping[str, str] = field(default_factory=dict)
    running_and_standby: frozenset[TaskId] = frozenset()
    """Tasks in both sets of a version 1 to 6. They count as standby and as running."""

    def __post_init__(self) -> None:
        if self.endpoint == "":  # the encoding does not distinguish an empty endpoint from a missing one
            object.__setattr__(self, "endpoint", None)

    @property
    def active_tasks(self) -> frozenset[TaskId]:
        """Tasks that ran on the member when it joined."""
        running = frozenset(task for task, offset_sum in self.task_offset_sums.items() if offset_sum == LATEST_OFFSET)
        return running | self.running_and_standby

    @property
    def standby_tasks(self) -> frozenset[TaskId]:
        """Tasks of which the member has state but which it does not run."""
        return frozenset(task for task, offset_sum in self.task_offset_sums.items() if offset_sum != LATEST_OFFSET)

    @property
    def is_future(self) -> bool:
        """Whether the version is newer than ours. Then only the version numbers are known."""
        return self.version > LATEST_SUPPORTED_VERSION


class _RepeatedTags(Mapping[str, str]):
    """Client tags in which a key occurs twice: every access raises an error, decoding does not."""

    def __init__(self, error: RepeatedTagDecodeError) -> None:
        self._error = error

    def __getitem__(self, key: str) -> str:
        raise self._error

    def __iter__(self) -> Iterator[str]:
        raise self._error

    def __len__(self) -> int:
        raise self._error


def _version_fault(version: int, latest_supported: int) -> str | None:
    if latest_supported == UNKNOWN_VERSION:
        possible = version in (1, 2)
    else:
        possible = 1 <= version <= latest_supported
    return None if possible else f"version {version} with latest supported version {latest_supported} is impossible"


# -- decode --------------------------------------------------------------------------------------------------


def decode_subscription_info(data: bytes | bytearray | memoryview | None) -> SubscriptionInfo:
    """Decode the user data of a member's subscription; bytes after the last field are ignored.

    A version above 11 is not an error; see :attr:`SubscriptionInfo.is_future`. Source: Kafka Streams'
    ``SubscriptionInfo.decode``.

    Raises:
        DecodeError: any failure, as the matching subclass; no other exception is raised.
    """
    if data is None:
        raise MissingUserDataDecodeError(
            f"{_MESSAGE}: user data is missing", offset=0, remedy="let only Kafka Streams members join this group"
        )
    reader = Reader(data, _MESSAGE)
    version = reader.int32("version")
    if version < 1:
        raise InvalidVersionDecodeError(
            f"{_MESSAGE}: version {version} does not exist", offset=0, remedy="check which program wrote it"
        )
    latest_supported = UNKNOWN_VERSION
    if version >= _VERSION_LATEST_SUPPORTED:
        latest_supported = reader.int32("latestSupportedVersion")
    fault = _version_fault(version, latest_supported)
    if fault is not None:
        raise InvalidVersionDecodeError(f"{_MESSAGE}: {fault}", offset=4, remedy="check which program wrote it")
    if version > LATEST_SUPPORTED_VERSION:
        return SubscriptionInfo(NO_PROCESS, version, latest_supported)
    return _read_body(reader, version, latest_supported)


def _read_body(reader: Reader, version: int, latest_supported: int) -> SubscriptionInfo:
    process_id = ProcessId(uuid.UUID(bytes=reader.raw(16, "processId")))
    endpoint = b""
    both: frozenset[TaskId] = frozenset()
    if version < MIN_VERSION_OFFSET_SUMS:
        sums, both = _read_task_sets(reader)
        if version >= _VERSION_ENDPOINT:
            endpoint = reader.blob("userEndPoint")
    else:
        endpoint = reader.blob("userEndPoint")
        sums = _read_flat_sums(reader) if version >= MIN_VERSION_NAMED_TOPOLOGY else _read_grouped_sums(reader)
    check_decoded(len(sums), TASKS_MAX, f"{_MESSAGE}: number of tasks", reader.offset)
    return SubscriptionInfo(
        process_id,
        version,
        latest_supported,
        endpoint.decode("utf-8", "replace") or None,
        sums,
        reader.int8("uniqueField") if version >= _VERSION_UNIQUE_FIELD else 0,
        reader.int32("errorCode") if version >= _VERSION_ERROR_CODE else 0,
        _read_client_tags(reader) if version >= _VERSION_CLIENT_TAGS else {},
        both,
    )


def _read_task_sets(reader: Reader) -> tuple[dict[TaskId, int], frozenset[TaskId]]:
    count = reader.count("prevTasks", row_bytes_min=8, most=TASKS_MAX)
    running = frozenset(plain_task_ids(*reader.columns("q", count, "prevTasks")))
    count = reader.count("standbyTasks", row_bytes_min=8, most=TASKS_MAX)
    standby = frozenset(plain_task_ids(*reader.columns("q", count, "standbyTasks")))
    sums = dict.fromkeys(running, LATEST_OFFSET)
    sums.update(dict.fromkeys(standby, UNKNOWN_OFFSET_SUM))
    return sums, running & standby


def _read_grouped_sums(reader: Reader) -> dict[TaskId, int]:
    sums: dict[TaskId, int] = {}
    for _ in range(reader.count("taskOffsetSums", row_bytes_min=1, most=TASKS_MAX)):
        subtopology = reader.int32("taskOffsetSums.subtopology")
        count = reader.count("partitionToOffsetSum", row_bytes_min=12, most=TASKS_MAX)
        partitions, offset_sums = reader.columns("iq", count, "partitionToOffsetSum")
        sums.update(zip(map(TaskId, repeat(subtopology), partitions), offset_sums, strict=False))
    return sums


def _read_flat_sums(reader: Reader) -> dict[TaskId, int]:
    count = reader.count("taskOffsetSums", row_bytes_min=1, most=TASKS_MAX)
    plain = reader.columns_if_ending("qq", count, _NO_NAME)
    if plain is not None:
        tasks, offset_sums = plain
        return dict(zip(plain_task_ids(tasks), offset_sums, strict=True))
    sums: dict[TaskId, int] = {}
    for _ in range(count):
        subtopology = reader.int32("taskOffsetSums.subtopology")
        partition = reader.int32("taskOffsetSums.partition")
        offset_sum = reader.int64("taskOffsetSums.offsetSum")
        sums[TaskId(subtopology, partition, reader.nullable_string("namedTopology"))] = offset_sum
    return sums


def _read_client_tags(reader: Reader) -> Mapping[str, str]:
    tags: dict[str, str] = {}
    repeated: RepeatedTagDecodeError | None = None
    for _ in range(reader.count("clientTags", row_bytes_min=1)):
        at = reader.offset
        key = reader.blob("clientTags.key").decode("utf-8", "replace")
        if key in tags:
            repeated = RepeatedTagDecodeError(
                f"{_MESSAGE}: client tag {key!r:.200} occurs twice",
                offset=at,
                remedy="give each client.tag of that member's configuration a different name",
            )
        tags[key] = reader.blob("clientTags.value").decode("utf-8", "replace")
    return tags if repeated is None else _RepeatedTags(repeated)


# -- encode --------------------------------------------------------------------------------------------------


def encode_subscription_info(info: SubscriptionInfo) -> bytes:
    """Encode ``info`` in the layout of ``info.version``, in canonical order.

    Source: Kafka Streams' ``SubscriptionInfo.encode``.

    Raises:
        InvalidVersionEncodeError: unless 1 <= version <= 11 and version <= latest supported version.
        TaskAssignmentEncodeError: a task of a named topology before version 10.
        ValueEncodeError: a value does not fit its field.
    """
    version = info.version
    fault = _version_fault(version, info.latest_supported_version)
    if fault is None and version > LATEST_SUPPORTED_VERSION:
        fault = f"version {version} cannot be written"
    if fault is not None:
        raise InvalidVersionEncodeError(
            f"{_MESSAGE}: {fault}", remedy=f"use a version from 1 to {LATEST_SUPPORTED_VERSION}"
        )
    check_encoded(len(info.task_offset_sums), TASKS_MAX, f"{_MESSAGE}: number of tasks")
    writer = Writer(_MESSAGE)
    writer.int32(version, "version")
    if version >= _VERSION_LATEST_SUPPORTED:
        writer.int32(info.latest_supported_version, "latestSupportedVersion")
    writer.raw(info.process_id.id.bytes)
    if version < MIN_VERSION_OFFSET_SUMS:
        _write_task_sets(writer, info)
        if version >= _VERSION_ENDPOINT:
            writer.text_blob(info.endpoint or "", "userEndPoint")
    else:
        writer.text_blob(info.endpoint or "", "userEndPoint")
        write_sums = _write_flat_sums if version >= MIN_VERSION_NAMED_TOPOLOGY else _write_grouped_sums
        write_sums(writer, info.task_offset_sums)
    if version >= _VERSION_UNIQUE_FIELD:
        writer.int8((info.unique_field + 128) % 256 - 128, "uniqueField")
    if version >= _VERSION_ERROR_CODE:
        writer.int32(info.error_code, "errorCode")
    if version >= _VERSION_CLIENT_TAGS:
        writer.count(len(info.client_tags), "clientTags")
        for key, value in sorted(info.client_tags.items()):
            writer.text_blob(key, "clientTags.key")
            writer.text_blob(value, "clientTags.value")
    return writer.finish()


def _refuse_names(tasks: Iterable[TaskId]) -> None:
    for task in filter(_name_of, tasks):
        raise TaskAssignmentEncodeError(
            f"{_MESSAGE}: task {task} belongs to a named topology, which versions before "
            f"{MIN_VERSION_NAMED_TOPOLOGY} cannot express",
            remedy="upgrade all members of the group before using named topologies",
        )


def _write_task_sets(writer: Writer, info: SubscriptionInfo) -> None:
    for tasks, name in ((info.active_tasks, "prevTasks"), (info.standby_tasks, "standbyTasks")):
        _refuse_names(tasks)
        ordered = sorted(tasks)
        writer.count(len(ordered), name)
        columns = map(_subtopology_of, ordered), map(_partition_of, ordered)
        writer.columns("ii", columns, len(ordered), name)


def _by_subtopology(sums: Mapping[TaskId, int]) -> list[tuple[int, list[int], list[int]]]:
    """Return (sub-topology, its partitions, their sums), all ascending.

    Sorting numbers is much cheaper than sorting ids.
    """
    groups: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for (_, subtopology, partition), offset_sum in sums.items():
        groups[subtopology][partition] = offset_sum
    rows = []
    for subtopology in sorted(groups):
        group = groups[subtopology]
        partitions = sorted(group)
        rows.append((subtopology, partitions, [group[partition] for partition in partitions]))
    return rows


def _write_grouped_sums(writer: Writer, sums: Mapping[TaskId, int]) -> None:
    _refuse_names(sums)
    groups = _by_subtopology(sums)
    writer.count(len(groups), "taskOffsetSums")
    for subtopology, partitions, offset_sums in groups:
        writer.int32(subtopology, "taskOffsetSums.subtopology")
        writer.count(len(partitions), "partitionToOffsetSum")
        writer.columns("iq", (partitions, offset_sums), len(partitions), "partitionToOffsetSum")


def _write_flat_sums(writer: Writer, sums: Mapping[TaskId, int]) -> None:
    writer.count(len(sums), "taskOffsetSums")
    if not any(map(_name_of, sums)):
        writer.columns("iiq", _ascending_columns(sums), len(sums), "taskOffsetSums", row_end=_NO_NAME)
        return
    for task in sorted(sums):
        writer.int32(task.subtopology, "taskOffsetSums.subtopology")
        writer.int32(task.partition, "taskOffsetSums.partition")
        writer.int64(sums[task], "taskOffsetSums.offsetSum")
        writer.nullable_string(task.topology_name, "namedTopology")


def _ascending_columns(sums: Mapping[TaskId, int]) -> tuple[Iterable[int], Iterable[int], Iterable[int]]:
    tasks = list(sums)
    if all(map(lt, tasks, islice(tasks, 1, None))):
        return map(_subtopology_of, tasks), map(_partition_of, tasks), sums.values()
    groups = _by_subtopology(sums)
    return (
        chain.from_iterable(repeat(subtopology, len(partitions)) for subtopology, partitions, _ in groups),
        chain.from_iterable(partitions for _, partitions, _ in groups),
        chain.from_iterable(offset_sums for _, _, offset_sums in groups),
    )
