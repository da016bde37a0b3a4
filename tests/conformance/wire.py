"""Checks one recorded wire vector against ``streams_protocol``.

A vector file has one JSON object per line; nine formats are known (:data:`WIRE_KINDS`). They were written by the Java
classes of Apache Kafka, so "equal" means: we read these bytes as Java does, write them as Java does up to the order
that Java leaves open, and refuse what Java refuses.

The check is meant to notice *any* change of a vector that makes it untrue: each case is used in every direction that
it allows. Decoding ``hex`` must give ``fields`` exactly; encoding ``input`` must give the canonical bytes exactly;
encoding what was decoded must give them, too; canonical and original bytes must hold the same entries. What no reader
can notice is a change that leaves the statement true: another number in an ``input`` field that the version drops,
other bytes behind the last field, other bytes that are refused for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Final

from streams_protocol import (
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
    TaskAssignmentEncodeError,
    TaskId,
    TopicPartition,
    TruncatedDecodeError,
    consumer,
    decode_assignment_info,
    decode_subscription_info,
    encode_assignment_info,
    encode_subscription_info,
)
from tests.conformance.wire_case import (
    Case,
    DifferentError,
    as_bytes,
    as_int,
    as_list,
    as_object,
    as_optional_bytes,
    as_optional_str,
    as_partitions,
    as_str,
    as_task,
    canonical_bytes,
    check_refusal,
    fail,
    json_text,
    must_accept,
    same,
    same_bytes,
    same_fields,
    task_json,
)
from tests.conformance.wire_case_connect import check_connect, check_connect_bad


def run_wire_case(kind: str, case: dict[str, object]) -> str | None:
    """Check one case of a format from :data:`WIRE_KINDS`: None when it holds, else a short reason.

    A case that is not in the format is a difference as well. KeyError for an unknown ``kind``.
    """
    check = WIRE_KINDS[kind]
    try:
        check(case)
    except DifferentError as difference:
        return str(difference)
    except (DecodeError, EncodeError) as error:
        return f"{type(error).__name__}: {error}"[:300]
    except KeyError as missing:
        return f"the case has no {missing}"
    except (TypeError, ValueError, AttributeError) as error:
        return f"the case is not in the format: {error}"[:300]
    return None


def wire_kind(path_name: str, first_case: Mapping[str, object]) -> str | None:
    """Return the format of a file by its name, or by the keys of a case; None if it is not a known format."""
    stem = PurePath(path_name).stem
    if stem in WIRE_KINDS:
        return stem
    keys, kind = first_case.keys(), first_case.get("kind")
    if "value" in keys:
        return "encode_errors" if kind in ("subscription_info", "assignment_info") else None
    if "hex" not in keys:
        return None
    if "java" in keys:
        return _bad_kind(first_case, kind)
    fields = first_case.get("fields")
    if not isinstance(fields, dict):
        return None
    if kind in ("worker_state", "assignment") and "config_offset" in fields:
        return "connect"
    if kind in ("subscription", "assignment") and "user_data" in fields:
        return "consumer_protocol"
    if kind is None and "task_offset_sums" in fields:
        return "subscription_info"
    return "assignment_info" if kind is None and "partitions_by_host" in fields else None


def _bad_kind(case: Case, kind: object) -> str | None:
    if "reader" in case:
        return "connect_bad"
    if kind in ("subscription", "assignment"):
        return "consumer_protocol_bad"
    if kind is not None:
        return None
    return "assignment_info_bad" if "expect" in case else "subscription_info_bad"


# -- SubscriptionInfo ----------------------------------------------------------------------------------------

_SUBSCRIPTION_INFO_UNORDERED: Final = ("active_tasks", "standby_tasks", "task_offset_sums")


def _subscription_info_json(info: SubscriptionInfo) -> dict[str, object]:
    return {
        "version": info.version,
        "latest_supported": info.latest_supported_version,
        "process_id": str(info.process_id),
        "user_end_point": info.endpoint,
        "active_tasks": [task_json(task) for task in info.active_tasks],
        "standby_tasks": [task_json(task) for task in info.standby_tasks],
        "task_offset_sums": [[*task_json(task), offset_sum] for task, offset_sum in info.task_offset_sums.items()],
        "unique_field": info.unique_field,
        "error_code": info.error_code,
        "client_tags": dict(info.client_tags),
    }


def _offset_sums(value: object) -> dict[TaskId, int]:
    sums = {}
    for entry in as_list(value):
        *task, offset_sum = as_list(entry)
        sums[as_task(task)] = as_int(offset_sum)
    return sums


def _subscription_info(case: Case) -> None:
    data = as_bytes(case["hex"])
    version, latest_supported = as_int(case["version"]), as_int(case["latest_supported"])
    given = as_object(case["input"])
    decoded = decode_subscription_info(data)
    same_fields("fields", _subscription_info_json(decoded), case["fields"], _SUBSCRIPTION_INFO_UNORDERED)
    same("version", decoded.version, version)
    if version >= 3:
        same("latest_supported", decoded.latest_supported_version, latest_supported)
    offset_sums = _offset_sums(given["task_offset_sums"])
    if len(offset_sums) != len(as_list(given["task_offset_sums"])):
        fail("input.task_offset_sums repeats a task")
    value = SubscriptionInfo(
        ProcessId.parse(as_str(given["process_id"])),
        version,
        latest_supported,
        as_optional_str(given["user_end_point"]),
        offset_sums,
        as_int(given["unique_field"]),
        as_int(given["error_code"]),
        {key: as_str(tag) for key, tag in as_object(given["client_tags"]).items()},
    )
    canonical = canonical_bytes(case, data, permutes_bytes=True)
    same_bytes("encoding input", encode_subscription_info(value), canonical)
    same_bytes("encoding what was decoded", encode_subscription_info(decoded), canonical)


# Kinds of failure that both sides must agree on. A version below 1 is excepted: Java first reads on.
_SUBSCRIPTION_INFO_FAILURES: Final[Mapping[str, type[DecodeError]]] = {
    "java.nio.BufferUnderflowException": TruncatedDecodeError,
    "java.lang.RuntimeException": InvalidLengthDecodeError,
    "java.lang.IllegalArgumentException": InvalidVersionDecodeError,
    "java.lang.IllegalStateException": RepeatedTagDecodeError,
}


def _subscription_info_bad(case: Case) -> None:
    data = as_bytes(case["hex"])
    accept = must_accept(case)
    stage = "decode"
    try:
        decoded = decode_subscription_info(data)
        stage = "accessor"
        ours = _subscription_info_json(decoded)
    except DecodeError as error:
        if accept:
            raise
        check_refusal(error, case)
        same("stage", stage, case.get("stage", "decode"))
        expected = _SUBSCRIPTION_INFO_FAILURES[as_str(case["java"])]
        impossible_version = len(data) >= 4 and int.from_bytes(data[:4], "big", signed=True) < 1
        if not isinstance(error, expected) and not impossible_version:
            fail(f"refused with {type(error).__name__}, Java with {case['java']}")
        return
    if not accept:
        fail("accepted, but must be refused")
    same_fields("fields", ours, case["fields"], _SUBSCRIPTION_INFO_UNORDERED)


# -- AssignmentInfo ------------------------------------------------------------------------------------------

_ASSIGNMENT_INFO_UNORDERED: Final = ("standby_tasks", "partitions_by_host", "standby_partitions_by_host")


def _assignment_info_json(info: AssignmentInfo) -> dict[str, object]:
    def host_map(hosts: Mapping[HostInfo, Iterable[TopicPartition]]) -> list[object]:
        return [[host, port, [list(entry) for entry in members]] for (host, port), members in hosts.items()]

    return {
        "version": info.version,
        "commonly_supported": info.commonly_supported_version,
        "active_tasks": [task_json(task) for task in info.active_tasks],
        "standby_tasks": [
            [task_json(task), [list(entry) for entry in members]] for task, members in info.standby_tasks.items()
        ],
        "partitions_by_host": host_map(info.partitions_by_host),
        "standby_partitions_by_host": host_map(info.standby_partitions_by_host),
        "error_code": info.error_code,
        "next_rebalance_ms": info.next_rebalance_ms,
    }


def _unique_partitions(value: object) -> frozenset[TopicPartition]:
    members = frozenset(as_partitions(value))
    if len(members) != len(as_list(value)):
        fail("a set of partitions repeats one")
    return members


def _host_map(value: object) -> dict[HostInfo, frozenset[TopicPartition]]:
    hosts = {}
    for entry in as_list(value):
        host, port, members = as_list(entry)
        hosts[HostInfo(as_str(host), as_int(port))] = _unique_partitions(members)
    if len(hosts) != len(as_list(value)):
        fail("a host map repeats a host")
    return hosts


def _standby_tasks(value: object) -> dict[TaskId, frozenset[TopicPartition]]:
    tasks = {}
    for entry in as_list(value):
        task, members = as_list(entry)
        tasks[as_task(task)] = _unique_partitions(members)
    if len(tasks) != len(as_list(value)):
        fail("standby_tasks repeats a task")
    return tasks


def _assignment_info(case: Case) -> None:
    data = as_bytes(case["hex"])
    given = as_object(case.get("input", case["fields"]))
    decoded = decode_assignment_info(data)
    same_fields("fields", _assignment_info_json(decoded), case["fields"], _ASSIGNMENT_INFO_UNORDERED)
    same("version", decoded.version, case["version"])
    value = AssignmentInfo(
        as_int(given["version"]),
        as_int(given["commonly_supported"]),
        tuple(as_task(task) for task in as_list(given["active_tasks"])),
        _standby_tasks(given["standby_tasks"]),
        _host_map(given["partitions_by_host"]),
        _host_map(given["standby_partitions_by_host"]),
        as_int(given["error_code"]),
        as_int(given["next_rebalance_ms"]),
    )
    # The dictionary may be numbered in another way, so the bytes need not be the same ones.
    canonical = canonical_bytes(case, data, permutes_bytes=value.version < 5)
    same_bytes("encoding input", encode_assignment_info(value), canonical)
    same_bytes("encoding what was decoded", encode_assignment_info(decoded), canonical)


def _assignment_info_bad(case: Case) -> None:
    data = as_bytes(case["hex"])
    accept = must_accept(case)
    try:
        decoded = decode_assignment_info(data)  # raises only task-assignment errors, by type
    except DecodeError as error:
        if accept:
            raise
        check_refusal(error, case)
        if case["java"] not in ("ok", "org.apache.kafka.streams.errors.TaskAssignmentException"):
            fail(f"a task-assignment error with us, {case['java']} in Java")
        return
    if not accept:
        fail("accepted, but must be refused")
    same_fields("fields", _assignment_info_json(decoded), case["fields"], _ASSIGNMENT_INFO_UNORDERED)


# -- consumer protocol ---------------------------------------------------------------------------------------


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _subscription_json(value: Subscription) -> dict[str, object]:
    return {
        "topics": list(value.topics),
        "user_data": _hex(value.user_data),
        "owned_partitions": [list(entry) for entry in value.owned_partitions],
        "generation_id": value.generation_id,
        "rack_id": value.rack_id,
    }


def _assignment_json(value: consumer.Assignment) -> dict[str, object]:
    return {"partitions": [list(entry) for entry in value.partitions], "user_data": _hex(value.user_data)}


def _consumer_protocol(case: Case) -> None:
    data = as_bytes(case["hex"])
    version = as_int(case["version"])
    given = as_object(case["input"])
    canonical = canonical_bytes(case, data, permutes_bytes=True)
    user_data = as_optional_bytes(given["user_data"])
    same("version", int.from_bytes(data[:2], "big"), version)
    if case["kind"] == "subscription":
        decoded = consumer.decode_subscription(data)
        same_fields("fields", _subscription_json(decoded), case["fields"], ())
        generation_id = given["generation_id"]
        value = Subscription(
            tuple(as_str(topic) for topic in as_list(given["topics"])),
            user_data,
            as_partitions(given["owned_partitions"]),
            None if generation_id is None else as_int(generation_id),
            as_optional_str(given["rack_id"]),
        )
        same_bytes("encoding input", consumer.encode_subscription(value, version), canonical)
        same_bytes("encoding what was decoded", consumer.encode_subscription(decoded, version), canonical)
    elif case["kind"] == "assignment":
        given_partitions = as_partitions(given["partitions"])
        assignment = consumer.decode_assignment(data)
        same_fields("fields", _assignment_json(assignment), case["fields"], ())
        same_bytes(
            "encoding input",
            consumer.encode_assignment(consumer.Assignment(given_partitions, user_data), version),
            canonical,
        )
        same_bytes("encoding what was decoded", consumer.encode_assignment(assignment, version), canonical)
    else:
        fail(f"unknown kind {json_text(case['kind']):.80}")


def _consumer_protocol_bad(case: Case) -> None:
    data = as_bytes(case["hex"])
    accept = must_accept(case)
    kind = case["kind"]
    if kind not in ("subscription", "assignment"):
        fail(f"unknown kind {json_text(kind):.80}")
    try:
        ours = (
            _subscription_json(consumer.decode_subscription(data))
            if kind == "subscription"
            else _assignment_json(consumer.decode_assignment(data))
        )
    except DecodeError as error:
        if accept:
            raise
        check_refusal(error, case)
        return
    if not accept:
        fail("accepted, but must be refused")
    same_fields("fields", ours, case["fields"], ())


# -- values that cannot be written -----------------------------------------------------------------------------


def _refused_value(kind: object, value: Mapping[str, object]) -> Callable[[], bytes]:
    version = as_int(value["version"])
    if kind == "subscription_info":
        latest_supported = as_int(value["latest_supported"])
        sums = _offset_sums(value.get("task_offset_sums", []))
        if "topology_name_length" in value:
            sums[TaskId(0, 0, "n" * as_int(value["topology_name_length"]))] = 0
        process_id = ProcessId.parse("00112233-4455-6677-8899-aabbccddeeff")
        info = SubscriptionInfo(process_id, version, latest_supported, task_offset_sums=sums)
        return lambda: encode_subscription_info(info)
    if kind == "assignment_info":
        tasks = tuple(as_task(task) for task in as_list(value.get("active_tasks", [])))
        host_length = value.get("host_length")
        hosts = {} if host_length is None else {HostInfo("h" * as_int(host_length), 1): frozenset[TopicPartition]()}
        return lambda: encode_assignment_info(AssignmentInfo(version, active_tasks=tasks, partitions_by_host=hosts))
    raise DifferentError(f"unknown kind {json_text(kind):.80}")


def _encode_errors(case: Case) -> None:
    accept = must_accept(case)
    encode = _refused_value(case["kind"], as_object(case["value"]))
    try:
        encode()
    except EncodeError as error:
        if accept:
            raise
        in_java = case["java"] == "org.apache.kafka.streams.errors.TaskAssignmentException"
        if in_java != isinstance(error, TaskAssignmentEncodeError):
            fail(f"refused with {type(error).__name__}, Java with {case['java']}")
        return
    if not accept:
        fail("written, but must be refused")


WIRE_KINDS: Final[Mapping[str, Callable[[Case], None]]] = {
    "subscription_info": _subscription_info,
    "subscription_info_bad": _subscription_info_bad,
    "assignment_info": _assignment_info,
    "assignment_info_bad": _assignment_info_bad,
    "consumer_protocol": _consumer_protocol,
    "consumer_protocol_bad": _consumer_protocol_bad,
    "encode_errors": _encode_errors,
    "connect": check_connect,
    "connect_bad": check_connect_bad,
}
"""Name of each format -> its check."""
