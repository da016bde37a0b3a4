"""Fuzz targets for messages between group members: Streams user data, consumer protocol, Connect protocol."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from streams_protocol import (
    LATEST_SUPPORTED_VERSION,
    Assignment,
    AssignmentInfo,
    DecodeError,
    HostInfo,
    ProcessId,
    Subscription,
    SubscriptionInfo,
    TaskId,
    TopicPartition,
    connect,
    decode_assignment,
    decode_assignment_info,
    decode_subscription,
    decode_subscription_info,
    encode_assignment,
    encode_assignment_info,
    encode_subscription,
    encode_subscription_info,
)
from tests.support.fuzz.target import Target, from_bytes

_PARTITION_FACTOR: Final = 32
"""Allowed memory as a multiple of the input: a partition number of 4 bytes becomes an object of over 100 bytes."""
_PARTITIONS: Final = tuple(TopicPartition(topic, p) for topic in ("orders", "app-counts-changelog") for p in range(3))


def _subscription_infos(folder: Path) -> list[bytes]:
    return [
        encode_subscription_info(
            SubscriptionInfo(
                ProcessId(uuid.UUID(int=version * 0x1234567890ABCDEF1234567)),
                version,
                endpoint="host:9092" if version > 1 else None,
                task_offset_sums={TaskId(sub, p): -2 if p else 17 * sub for sub in range(2) for p in range(3)},
                unique_field=version if version >= 8 else 0,
                client_tags={"zone": "eu-1", "cluster": "k8s"} if version >= 11 else {},
            )
        )
        for version in range(1, LATEST_SUPPORTED_VERSION + 1)
    ]


def _assignment_infos(folder: Path) -> list[bytes]:
    hosts = {HostInfo("host", 9092): frozenset(_PARTITIONS[:3]), HostInfo("other", 1): frozenset(_PARTITIONS[3:])}
    return [
        encode_assignment_info(
            AssignmentInfo(
                version,
                LATEST_SUPPORTED_VERSION,
                (TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)),
                {TaskId(0, 2): frozenset(_PARTITIONS[2:3])},
                hosts if version >= 2 else {},
                hosts if version >= 6 else {},
                0,
            )
        )
        for version in range(1, LATEST_SUPPORTED_VERSION + 1)
    ]


def _subscriptions(folder: Path) -> list[bytes]:
    value = Subscription(("in", "other"), b"\x00\x01user data", _PARTITIONS, 7, "rack-1")
    return [encode_subscription(value, version) for version in range(4)] + [encode_subscription(Subscription())]


def _assignments(folder: Path) -> list[bytes]:
    return [encode_assignment(Assignment(_PARTITIONS, b"user data"), version) for version in range(4)]


def _connect_assignment() -> connect.Assignment:
    return connect.Assignment(
        "leader-1",
        "http://leader:8083/",
        42,
        connectors=("sink", "source"),
        tasks=(connect.TaskId("sink", 0), connect.TaskId("sink", 1)),
        revoked_tasks=(connect.TaskId("source", 0),),
        delay_ms=300_000,
    )


def _connect_assignments(folder: Path) -> list[bytes]:
    return [connect.encode_assignment(_connect_assignment(), version) for version in range(connect.LATEST_VERSION + 1)]


def _worker_states(folder: Path) -> list[bytes]:
    state = connect.WorkerState(
        "http://worker:8083/", 42, _connect_assignment(), frozenset({"sink"}), frozenset({connect.TaskId("sink", 0)})
    )
    return [connect.encode_worker_state(state, version) for version in range(connect.LATEST_VERSION + 1)]


def _sorted_subscription(value: object) -> object:
    assert isinstance(value, Subscription)
    parts = (value.user_data, value.generation_id, value.rack_id)
    return sorted(value.topics), parts, sorted(value.owned_partitions)


def _sorted_assignment(value: object) -> object:
    assert isinstance(value, Assignment)
    return sorted(value.partitions), value.user_data


def _sorted_jobs(value: object) -> object:
    """Return a Connect assignment with sorted jobs and without its version, for comparisons."""
    assert isinstance(value, connect.Assignment)
    jobs = (value.connectors, value.tasks, value.revoked_connectors, value.revoked_tasks)
    return (
        value.leader,
        value.leader_url,
        value.config_offset,
        value.error,
        [sorted(part) for part in jobs],
        value.delay_ms,
    )


def _sorted_state(value: object) -> object:
    assert isinstance(value, connect.WorkerState)
    allocation = None if value.allocation is None else _sorted_jobs(value.allocation)
    return value.url, value.config_offset, allocation, value.static_connectors, value.static_tasks


def _writing(encode: Callable[[Any], bytes]) -> Callable[[object], bytes]:
    return encode


PROTOCOL_TARGETS: Final[Mapping[str, Target]] = {
    "subscription_info": Target(
        from_bytes(decode_subscription_info),
        (DecodeError,),
        _subscription_infos,
        ("subscription_info", ""),
        _writing(encode_subscription_info),
    ),
    "assignment_info": Target(
        from_bytes(decode_assignment_info),
        (DecodeError,),
        _assignment_infos,
        ("assignment_info", ""),
        _writing(encode_assignment_info),
    ),
    "consumer_subscription": Target(
        from_bytes(decode_subscription),
        (DecodeError,),
        _subscriptions,
        ("consumer_protocol", "subscription"),
        _writing(encode_subscription),
        lambda a, b: _sorted_subscription(a) == _sorted_subscription(b),
        memory_factor=_PARTITION_FACTOR,
    ),
    "consumer_assignment": Target(
        from_bytes(decode_assignment),
        (DecodeError,),
        _assignments,
        ("consumer_protocol", "assignment"),
        _writing(encode_assignment),
        lambda a, b: _sorted_assignment(a) == _sorted_assignment(b),
        memory_factor=_PARTITION_FACTOR,
    ),
    "connect_worker_state": Target(
        from_bytes(connect.decode_worker_state),
        (DecodeError,),
        _worker_states,
        ("connect", "worker_state"),
        _writing(connect.encode_worker_state),
        lambda a, b: _sorted_state(a) == _sorted_state(b),
    ),
    "connect_assignment": Target(
        from_bytes(connect.decode_assignment),
        (DecodeError,),
        _connect_assignments,
        ("connect", "assignment"),
        _writing(connect.encode_assignment),
        lambda a, b: _sorted_jobs(a) == _sorted_jobs(b),
    ),
}
"""All decoders of binary messages from other members and other Connect workers."""
