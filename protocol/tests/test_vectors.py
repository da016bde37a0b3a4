"""Bytes written by Apache Kafka's Java classes, and bytes that these classes read.

Sets have no order in the encoding, so decoded values are compared as values. Bytes are compared in our canonical order.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streams_protocol import (
    Assignment,
    AssignmentInfo,
    DecodeError,
    EncodeError,
    HostInfo,
    InvalidLengthDecodeError,
    InvalidVersionDecodeError,
    ProcessId,
    RepeatedTagDecodeError,
    Subscription,
    SubscriptionInfo,
    TaskAssignmentDecodeError,
    TaskAssignmentProtocolError,
    TaskId,
    TopicPartition,
    TruncatedDecodeError,
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

Json = Any
VECTORS = Path(__file__).parent.parent / "vectors"
KINDS_IN_JAVA = {
    "java.nio.BufferUnderflowException": TruncatedDecodeError,
    "java.lang.RuntimeException": InvalidLengthDecodeError,
    "java.lang.IllegalArgumentException": InvalidVersionDecodeError,
    "java.lang.IllegalStateException": RepeatedTagDecodeError,
}


def cases(name: str, count: int) -> list[Json]:
    lines = (VECTORS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == count, f"{name}.jsonl is not complete"
    return [json.loads(line) for line in lines]


def canonical(case: Json) -> str:
    return case["hex"] if case["canonical"] else case["canonical_hex"]


def tasks(value: Json) -> tuple[TaskId, ...]:
    return tuple(TaskId(*task) for task in value)


def partitions(value: Json) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(*entry) for entry in value)


def hosts(value: Json) -> dict[HostInfo, frozenset[TopicPartition]]:
    return {HostInfo(host, port): frozenset(partitions(members)) for host, port, members in value}


def sums(value: Json) -> dict[TaskId, int]:
    return {TaskId(sub, part, name): total for sub, part, name, total in value}


def blob(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value)


# -- SubscriptionInfo ----------------------------------------------------------------------------------------


def assert_subscription_info(info: SubscriptionInfo, fields: Json) -> None:
    assert info.version == fields["version"]
    assert info.latest_supported_version == fields["latest_supported"]
    assert info.process_id == ProcessId.parse(fields["process_id"])
    assert info.endpoint == fields["user_end_point"]
    assert info.active_tasks == set(tasks(fields["active_tasks"]))
    assert info.standby_tasks == set(tasks(fields["standby_tasks"]))
    assert info.task_offset_sums == sums(fields["task_offset_sums"])
    assert info.unique_field == fields["unique_field"]
    assert info.error_code == fields["error_code"]
    assert info.client_tags == fields["client_tags"]


@pytest.mark.parametrize("case", cases("subscription_info", 541), ids=lambda case: case["id"])
def test_subscription_info_equals_java_when_recorded(case: Json) -> None:
    decoded = decode_subscription_info(bytes.fromhex(case["hex"]))
    assert_subscription_info(decoded, case["fields"])
    given = case["input"]
    info = SubscriptionInfo(
        ProcessId.parse(given["process_id"]),
        case["version"],
        case["latest_supported"],
        given["user_end_point"],
        sums(given["task_offset_sums"]),
        given["unique_field"],
        given["error_code"],
        given["client_tags"],
    )
    assert encode_subscription_info(info).hex() == canonical(case)
    assert encode_subscription_info(decoded).hex() == canonical(case)


@pytest.mark.parametrize("case", cases("subscription_info_bad", 403), ids=lambda case: case["id"])
def test_subscription_info_is_read_or_refused_as_java_does_when_damaged(case: Json) -> None:
    data = bytes.fromhex(case["hex"])
    if case["java"] == "ok":
        assert_subscription_info(decode_subscription_info(data), case["fields"])
    elif case.get("stage") == "accessor":
        decoded = decode_subscription_info(data)
        with pytest.raises(KINDS_IN_JAVA[case["java"]]):
            dict(decoded.client_tags)
    else:
        # Below version 1 Java continues to read before it checks the version, and may fail in another way.
        kind = InvalidVersionDecodeError if "version 0" in case["note"] or "version -" in case["note"] else None
        with pytest.raises(kind or KINDS_IN_JAVA[case["java"]]):
            decode_subscription_info(data)


# -- AssignmentInfo ------------------------------------------------------------------------------------------


def assignment_info(fields: Json) -> AssignmentInfo:
    return AssignmentInfo(
        fields["version"],
        fields["commonly_supported"],
        tasks(fields["active_tasks"]),
        {TaskId(*task): frozenset(partitions(members)) for task, members in fields["standby_tasks"]},
        hosts(fields["partitions_by_host"]),
        hosts(fields["standby_partitions_by_host"]),
        fields["error_code"],
        fields["next_rebalance_ms"],
    )


def assert_assignment_info(info: AssignmentInfo, fields: Json) -> None:
    assert info == assignment_info(fields)
    assert info.next_rebalance_ms == fields["next_rebalance_ms"]


@pytest.mark.parametrize("case", cases("assignment_info", 528), ids=lambda case: case["id"])
def test_assignment_info_equals_java_when_recorded(case: Json) -> None:
    decoded = decode_assignment_info(bytes.fromhex(case["hex"]))
    assert_assignment_info(decoded, case["fields"])
    given = assignment_info(case.get("input", case["fields"]))
    assert encode_assignment_info(given).hex() == canonical(case)
    assert encode_assignment_info(decoded).hex() == canonical(case)


@pytest.mark.parametrize("case", cases("assignment_info_bad", 390), ids=lambda case: case["id"])
def test_assignment_info_is_read_or_refused_as_expected_when_damaged(case: Json) -> None:
    data = bytes.fromhex(case["hex"])
    if case["expect"] == "ok":
        assert_assignment_info(decode_assignment_info(data), case["fields"])
    else:
        with pytest.raises(TaskAssignmentDecodeError):
            decode_assignment_info(data)


# -- consumer protocol ---------------------------------------------------------------------------------------


def subscription(fields: Json) -> Subscription:
    return Subscription(
        tuple(fields["topics"]),
        blob(fields["user_data"]),
        partitions(fields["owned_partitions"]),
        fields["generation_id"],
        fields["rack_id"],
    )


def assignment(fields: Json) -> Assignment:
    return Assignment(partitions(fields["partitions"]), blob(fields["user_data"]))


@pytest.mark.parametrize("case", cases("consumer_protocol", 180), ids=lambda case: case["id"])
def test_consumer_protocol_equals_java_when_recorded(case: Json) -> None:
    data = bytes.fromhex(case["hex"])
    if case["kind"] == "subscription":
        assert decode_subscription(data) == subscription(case["fields"])
        assert encode_subscription(subscription(case["input"]), case["version"]) == data
    else:
        assert decode_assignment(data) == assignment(case["fields"])
        assert encode_assignment(assignment(case["input"]), case["version"]) == data


@pytest.mark.parametrize("case", cases("consumer_protocol_bad", 108), ids=lambda case: case["id"])
def test_consumer_protocol_is_read_or_refused_as_java_does_when_damaged(case: Json) -> None:
    decode = decode_subscription if case["kind"] == "subscription" else decode_assignment
    data = bytes.fromhex(case["hex"])
    if case["java"] == "ok":
        expected = subscription(case["fields"]) if case["kind"] == "subscription" else assignment(case["fields"])
        assert decode(data) == expected
    else:
        with pytest.raises(DecodeError):
            decode(data)


# -- values that cannot be written -----------------------------------------------------------------------------


def encode_value(kind: str, value: Json) -> bytes:
    if kind == "subscription_info":
        offset_sums = sums(value.get("task_offset_sums", []))
        if "topology_name_length" in value:
            offset_sums[TaskId(0, 0, "n" * value["topology_name_length"])] = 0
        process_id = ProcessId.parse("00112233-4455-6677-8899-aabbccddeeff")
        return encode_subscription_info(
            SubscriptionInfo(process_id, value["version"], value["latest_supported"], task_offset_sums=offset_sums)
        )
    by_host = {HostInfo("h" * value["host_length"], 80): frozenset[TopicPartition]()} if "host_length" in value else {}
    active = tasks(value.get("active_tasks", []))
    return encode_assignment_info(AssignmentInfo(value["version"], active_tasks=active, partitions_by_host=by_host))


@pytest.mark.parametrize("case", cases("encode_errors", 30), ids=lambda case: case["id"])
def test_value_is_written_or_refused_as_java_does(case: Json) -> None:
    if case["java"] == "ok":
        assert encode_value(case["kind"], case["value"])
        return
    with pytest.raises(EncodeError) as refusal:
        encode_value(case["kind"], case["value"])
    in_java = case["java"].endswith(".TaskAssignmentException")
    assert isinstance(refusal.value, TaskAssignmentProtocolError) == in_java


# -- Connect -------------------------------------------------------------------------------------------------


def connect_tasks(value: Json) -> tuple[connect.TaskId, ...]:
    return tuple(dict.fromkeys(connect.TaskId(*task) for task in value))


def connect_assignment(fields: Json, version: int) -> connect.Assignment:
    return connect.Assignment(
        fields["leader"],
        fields["leader_url"],
        fields["config_offset"],
        fields["error"],
        tuple(dict.fromkeys(fields["connectors"])),
        connect_tasks(fields["tasks"]),
        tuple(dict.fromkeys(fields.get("revoked_connectors", ()))),
        connect_tasks(fields.get("revoked_tasks", ())),
        fields.get("delay_ms", 0),
        fields.get("version", version),
    )


def worker_state(fields: Json, version: int) -> connect.WorkerState:
    held = fields.get("allocation")
    allocation = None if held is None else connect_assignment(held, version)
    return connect.WorkerState(fields["url"], fields["config_offset"], allocation)


def sorted_assignment(value: connect.Assignment | None) -> object:
    if value is None:
        return None
    jobs = (value.connectors, value.tasks, value.revoked_connectors, value.revoked_tasks)
    plain = (value.leader, value.leader_url, value.config_offset, value.error, value.delay_ms, value.version)
    return plain, [sorted(some) for some in jobs]


def assert_connect(case: Json, data: bytes, reader_version: int) -> None:
    version = int.from_bytes(data[:2], "big")
    if case["kind"] == "assignment":
        decoded = connect.decode_assignment(data, reader_version=reader_version)
        assert sorted_assignment(decoded) == sorted_assignment(connect_assignment(case["fields"], version))
        return
    state = connect.decode_worker_state(data, reader_version=reader_version)
    expected = worker_state(case["fields"], version)
    assert (state.url, state.config_offset) == (expected.url, expected.config_offset)
    assert sorted_assignment(state.allocation) == sorted_assignment(expected.allocation)


@pytest.mark.parametrize("case", cases("connect", 150), ids=lambda case: case["id"])
def test_connect_equals_java_when_recorded(case: Json) -> None:
    data = bytes.fromhex(case["hex"])
    version = case["version"]
    assert_connect(case, data, version)
    if case["kind"] == "assignment":
        encoded = connect.encode_assignment(connect_assignment(case["input"], version), version)
        again = connect.encode_assignment(connect.decode_assignment(data, reader_version=version), version)
    else:
        encoded = connect.encode_worker_state(worker_state(case["input"], version), version)
        again = connect.encode_worker_state(connect.decode_worker_state(data, reader_version=version), version)
    assert encoded.hex() == again.hex() == canonical(case)


@pytest.mark.parametrize("case", cases("connect_bad", 148), ids=lambda case: case["id"])
def test_connect_is_read_or_refused_as_expected_when_damaged(case: Json) -> None:
    data = bytes.fromhex(case["hex"])
    if case["expect"] == "ok":
        assert_connect(case, data, case["reader"])
        return
    decode = connect.decode_assignment if case["kind"] == "assignment" else connect.decode_worker_state
    with pytest.raises(connect.SchemaError):
        decode(data, reader_version=case["reader"])
