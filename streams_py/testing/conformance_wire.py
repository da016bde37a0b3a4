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

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Final, NoReturn

from streams_protocol import (
    AssignmentInfo,
    DecodeError,
    EncodeError,
    HostInfo,
    InvalidLengthDecodeError,
    InvalidVersionDecodeError,
    NotAllowedDecodeError,
    ProcessId,
    RepeatedTagDecodeError,
    Subscription,
    SubscriptionInfo,
    TaskAssignmentEncodeError,
    TaskId,
    TopicPartition,
    TruncatedDecodeError,
    connect,
    consumer,
    decode_assignment_info,
    decode_subscription_info,
    encode_assignment_info,
    encode_subscription_info,
)
from streams_protocol.buffer import Reader

__all__ = ["WIRE_KINDS", "run_wire_case", "wire_kind"]

Case = Mapping[str, object]


class _Different(Exception):
    """The case does not hold; the text says why."""


def run_wire_case(kind: str, case: dict[str, object]) -> str | None:
    """Check one case of a format from :data:`WIRE_KINDS`: None when it holds, else a short reason.

    A case that is not in the format is a difference as well. KeyError for an unknown ``kind``.
    """
    check = WIRE_KINDS[kind]
    try:
        check(case)
    except _Different as difference:
        return str(difference)
    except (DecodeError, EncodeError) as error:
        return f"{type(error).__name__}: {error}"[:300]
    except KeyError as missing:
        return f"the case has no {missing}"
    except (TypeError, ValueError, AttributeError) as error:
        return f"the case is not in the format: {error}"[:300]
    return None


def wire_kind(path_name: str, first_case: Mapping[str, object]) -> str | None:
    """Format of a file, by its name or else by the keys of a case; None when it is none of ours."""
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


# -- comparing -----------------------------------------------------------------------------------------------


def _fail(reason: str) -> NoReturn:
    raise _Different(reason)


def _text(value: object) -> str:
    """JSON with sorted keys; tells 1 from true and 1.0, which ``==`` does not."""
    return json.dumps(value, sort_keys=True)


def _same(what: str, ours: object, recorded: object) -> None:
    left, right = _text(ours), _text(recorded)
    if left != right:
        at = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
        start = max(0, at - 30)
        _fail(f"{what}: ours ...{left[start : at + 50]}... recorded ...{right[start : at + 50]}...")


def _same_fields(what: str, ours: Mapping[str, object], recorded: object, unordered: Iterable[str]) -> None:
    """Compare key by key; lists named in ``unordered`` are sets on the wire and are compared without order."""
    theirs = _object(recorded)
    _same(f"keys of {what}", sorted(ours), sorted(theirs))
    for key, value in ours.items():
        if key in unordered:
            _same(f"{what}.{key}", _sorted(value), _sorted(theirs[key]))
        else:
            _same(f"{what}.{key}", value, theirs[key])


def _sorted(value: object) -> object:
    """Lists of lists without order, at both levels of a map entry ``[key..., [partition, ...]]``."""
    entries = [
        [*entry[:-1], sorted(entry[-1], key=_text)]
        if isinstance(entry, list) and isinstance(entry[-1], list)
        else entry
        for entry in _list(value)
    ]
    return sorted(entries, key=_text)


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        _fail(f"expected an object, not {_text(value):.80}")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        _fail(f"expected a list, not {_text(value):.80}")
    return value


def _int(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        _fail(f"expected an integer, not {_text(value):.80}")
    return value


def _str(value: object) -> str:
    if not isinstance(value, str):
        _fail(f"expected a string, not {_text(value):.80}")
    return value


def _optional_str(value: object) -> str | None:
    return None if value is None else _str(value)


def _bytes(value: object) -> bytes:
    data = bytes.fromhex(_str(value))
    if data.hex() != value:
        _fail(f"not plain lower-case hex: {value:.80}")
    return data


def _optional_bytes(value: object) -> bytes | None:
    return None if value is None else _bytes(value)


def _task(value: object) -> TaskId:
    subtopology, partition, name = _list(value)
    return TaskId(_int(subtopology), _int(partition), _optional_str(name))


def _partition(value: object) -> TopicPartition:
    topic, partition = _list(value)
    return TopicPartition(_str(topic), _int(partition))


def _partitions(value: object) -> tuple[TopicPartition, ...]:
    return tuple(_partition(entry) for entry in _list(value))


def _task_json(task: TaskId) -> list[object]:
    return [task.subtopology, task.partition, task.topology_name]


def _same_bytes(what: str, ours: bytes, recorded: bytes) -> None:
    if ours != recorded:
        at = next((i for i, (a, b) in enumerate(zip(ours, recorded, strict=False)) if a != b), -1)
        at = min(len(ours), len(recorded)) if at < 0 else at
        _fail(
            f"{what}: differs at byte {at} (ours {len(ours)} bytes ...{ours[at : at + 8].hex()}, "
            f"recorded {len(recorded)} bytes ...{recorded[at : at + 8].hex()})"
        )


def _canonical_bytes(case: Case, data: bytes, *, permutes_bytes: bool) -> bytes:
    """The bytes that our writer must give. Original and canonical bytes hold the same entries in another order."""
    if case["canonical"] is True:
        if "canonical_hex" in case:
            _fail("canonical_hex beside canonical bytes")
        return data
    if case["canonical"] is not False:
        _fail("canonical is neither true nor false")
    canonical = _bytes(case["canonical_hex"])
    if canonical == data:
        _fail("canonical_hex equals hex, but canonical is false")
    if len(canonical) != len(data) or (permutes_bytes and sorted(canonical) != sorted(data)):
        _fail("hex and canonical_hex do not hold the same entries")
    return canonical


def _must_accept(case: Case) -> bool:
    """What the case demands of us; raises when its statements contradict each other."""
    java = _str(case["java"])
    if java != "ok" and not java.startswith(("java.", "org.apache.kafka.")):
        _fail(f"java is neither ok nor the class of an exception: {java:.80}")
    expect = case.get("expect", "ok" if java == "ok" else "reject")
    if expect not in ("ok", "reject"):
        _fail(f"expect is neither ok nor reject: {_text(expect):.80}")
    if expect == "ok" and java != "ok":
        _fail("a case that Java refuses cannot be expected to pass")
    return expect == "ok"


def _check_refusal(error: DecodeError, case: Case) -> None:
    """A refusal that Java does not share must be one of the documented ones."""
    if case["java"] == "ok" and not isinstance(error.__cause__ or error, NotAllowedDecodeError):
        _fail(f"refused, and Java accepts it: {error}"[:300])


# -- SubscriptionInfo ----------------------------------------------------------------------------------------

_SUBSCRIPTION_INFO_UNORDERED: Final = ("active_tasks", "standby_tasks", "task_offset_sums")


def _subscription_info_json(info: SubscriptionInfo) -> dict[str, object]:
    return {
        "version": info.version,
        "latest_supported": info.latest_supported_version,
        "process_id": str(info.process_id),
        "user_end_point": info.endpoint,
        "active_tasks": [_task_json(task) for task in info.active_tasks],
        "standby_tasks": [_task_json(task) for task in info.standby_tasks],
        "task_offset_sums": [[*_task_json(task), offset_sum] for task, offset_sum in info.task_offset_sums.items()],
        "unique_field": info.unique_field,
        "error_code": info.error_code,
        "client_tags": dict(info.client_tags),
    }


def _offset_sums(value: object) -> dict[TaskId, int]:
    sums = {}
    for entry in _list(value):
        *task, offset_sum = _list(entry)
        sums[_task(task)] = _int(offset_sum)
    return sums


def _subscription_info(case: Case) -> None:
    data = _bytes(case["hex"])
    version, latest_supported = _int(case["version"]), _int(case["latest_supported"])
    given = _object(case["input"])
    decoded = decode_subscription_info(data)
    _same_fields("fields", _subscription_info_json(decoded), case["fields"], _SUBSCRIPTION_INFO_UNORDERED)
    _same("version", decoded.version, version)
    if version >= 3:
        _same("latest_supported", decoded.latest_supported_version, latest_supported)
    offset_sums = _offset_sums(given["task_offset_sums"])
    if len(offset_sums) != len(_list(given["task_offset_sums"])):
        _fail("input.task_offset_sums repeats a task")
    value = SubscriptionInfo(
        ProcessId.parse(_str(given["process_id"])),
        version,
        latest_supported,
        _optional_str(given["user_end_point"]),
        offset_sums,
        _int(given["unique_field"]),
        _int(given["error_code"]),
        {key: _str(tag) for key, tag in _object(given["client_tags"]).items()},
    )
    canonical = _canonical_bytes(case, data, permutes_bytes=True)
    _same_bytes("encoding input", encode_subscription_info(value), canonical)
    _same_bytes("encoding what was decoded", encode_subscription_info(decoded), canonical)


# Kinds of failure that both sides must agree on. A version below 1 is excepted: Java first reads on.
_SUBSCRIPTION_INFO_FAILURES: Final[Mapping[str, type[DecodeError]]] = {
    "java.nio.BufferUnderflowException": TruncatedDecodeError,
    "java.lang.RuntimeException": InvalidLengthDecodeError,
    "java.lang.IllegalArgumentException": InvalidVersionDecodeError,
    "java.lang.IllegalStateException": RepeatedTagDecodeError,
}


def _subscription_info_bad(case: Case) -> None:
    data = _bytes(case["hex"])
    accept = _must_accept(case)
    stage = "decode"
    try:
        decoded = decode_subscription_info(data)
        stage = "accessor"
        ours = _subscription_info_json(decoded)
    except DecodeError as error:
        if accept:
            raise
        _check_refusal(error, case)
        _same("stage", stage, case.get("stage", "decode"))
        expected = _SUBSCRIPTION_INFO_FAILURES[_str(case["java"])]
        if not isinstance(error, expected) and int.from_bytes(data[:4], "big", signed=True) >= 1:
            _fail(f"refused with {type(error).__name__}, Java with {case['java']}")
        return
    if not accept:
        _fail("accepted, but must be refused")
    _same_fields("fields", ours, case["fields"], _SUBSCRIPTION_INFO_UNORDERED)


# -- AssignmentInfo ------------------------------------------------------------------------------------------

_ASSIGNMENT_INFO_UNORDERED: Final = ("standby_tasks", "partitions_by_host", "standby_partitions_by_host")


def _assignment_info_json(info: AssignmentInfo) -> dict[str, object]:
    def host_map(hosts: Mapping[HostInfo, Iterable[TopicPartition]]) -> list[object]:
        return [[host, port, [list(entry) for entry in members]] for (host, port), members in hosts.items()]

    return {
        "version": info.version,
        "commonly_supported": info.commonly_supported_version,
        "active_tasks": [_task_json(task) for task in info.active_tasks],
        "standby_tasks": [
            [_task_json(task), [list(entry) for entry in members]] for task, members in info.standby_tasks.items()
        ],
        "partitions_by_host": host_map(info.partitions_by_host),
        "standby_partitions_by_host": host_map(info.standby_partitions_by_host),
        "error_code": info.error_code,
        "next_rebalance_ms": info.next_rebalance_ms,
    }


def _unique_partitions(value: object) -> frozenset[TopicPartition]:
    members = frozenset(_partitions(value))
    if len(members) != len(_list(value)):
        _fail("a set of partitions repeats one")
    return members


def _host_map(value: object) -> dict[HostInfo, frozenset[TopicPartition]]:
    hosts = {}
    for entry in _list(value):
        host, port, members = _list(entry)
        hosts[HostInfo(_str(host), _int(port))] = _unique_partitions(members)
    if len(hosts) != len(_list(value)):
        _fail("a host map repeats a host")
    return hosts


def _standby_tasks(value: object) -> dict[TaskId, frozenset[TopicPartition]]:
    tasks = {}
    for entry in _list(value):
        task, members = _list(entry)
        tasks[_task(task)] = _unique_partitions(members)
    if len(tasks) != len(_list(value)):
        _fail("standby_tasks repeats a task")
    return tasks


def _assignment_info(case: Case) -> None:
    data = _bytes(case["hex"])
    given = _object(case.get("input", case["fields"]))
    decoded = decode_assignment_info(data)
    _same_fields("fields", _assignment_info_json(decoded), case["fields"], _ASSIGNMENT_INFO_UNORDERED)
    _same("version", decoded.version, case["version"])
    value = AssignmentInfo(
        _int(given["version"]),
        _int(given["commonly_supported"]),
        tuple(_task(task) for task in _list(given["active_tasks"])),
        _standby_tasks(given["standby_tasks"]),
        _host_map(given["partitions_by_host"]),
        _host_map(given["standby_partitions_by_host"]),
        _int(given["error_code"]),
        _int(given["next_rebalance_ms"]),
    )
    # The dictionary may be numbered in another way, so the bytes need not be the same ones.
    canonical = _canonical_bytes(case, data, permutes_bytes=value.version < 5)
    _same_bytes("encoding input", encode_assignment_info(value), canonical)
    _same_bytes("encoding what was decoded", encode_assignment_info(decoded), canonical)


def _assignment_info_bad(case: Case) -> None:
    data = _bytes(case["hex"])
    accept = _must_accept(case)
    try:
        decoded = decode_assignment_info(data)  # raises only task-assignment errors, by type
    except DecodeError as error:
        if accept:
            raise
        _check_refusal(error, case)
        if case["java"] not in ("ok", "org.apache.kafka.streams.errors.TaskAssignmentException"):
            _fail(f"a task-assignment error with us, {case['java']} in Java")
        return
    if not accept:
        _fail("accepted, but must be refused")
    _same_fields("fields", _assignment_info_json(decoded), case["fields"], _ASSIGNMENT_INFO_UNORDERED)


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
    data = _bytes(case["hex"])
    version = _int(case["version"])
    given = _object(case["input"])
    canonical = _canonical_bytes(case, data, permutes_bytes=True)
    user_data = _optional_bytes(given["user_data"])
    _same("version", int.from_bytes(data[:2], "big"), version)
    if case["kind"] == "subscription":
        decoded = consumer.decode_subscription(data)
        _same_fields("fields", _subscription_json(decoded), case["fields"], ())
        generation_id = given["generation_id"]
        value = Subscription(
            tuple(_str(topic) for topic in _list(given["topics"])),
            user_data,
            _partitions(given["owned_partitions"]),
            None if generation_id is None else _int(generation_id),
            _optional_str(given["rack_id"]),
        )
        _same_bytes("encoding input", consumer.encode_subscription(value, version), canonical)
        _same_bytes("encoding what was decoded", consumer.encode_subscription(decoded, version), canonical)
    elif case["kind"] == "assignment":
        given_partitions = _partitions(given["partitions"])
        assignment = consumer.decode_assignment(data)
        _same_fields("fields", _assignment_json(assignment), case["fields"], ())
        _same_bytes(
            "encoding input",
            consumer.encode_assignment(consumer.Assignment(given_partitions, user_data), version),
            canonical,
        )
        _same_bytes("encoding what was decoded", consumer.encode_assignment(assignment, version), canonical)
    else:
        _fail(f"unknown kind {_text(case['kind']):.80}")


def _consumer_protocol_bad(case: Case) -> None:
    data = _bytes(case["hex"])
    accept = _must_accept(case)
    kind = case["kind"]
    if kind not in ("subscription", "assignment"):
        _fail(f"unknown kind {_text(kind):.80}")
    try:
        ours = (
            _subscription_json(consumer.decode_subscription(data))
            if kind == "subscription"
            else _assignment_json(consumer.decode_assignment(data))
        )
    except DecodeError as error:
        if accept:
            raise
        _check_refusal(error, case)
        return
    if not accept:
        _fail("accepted, but must be refused")
    _same_fields("fields", ours, case["fields"], ())


# -- values that cannot be written -----------------------------------------------------------------------------


def _refused_value(kind: object, value: Mapping[str, object]) -> Callable[[], bytes]:
    version = _int(value["version"])
    if kind == "subscription_info":
        latest_supported = _int(value["latest_supported"])
        sums = _offset_sums(value.get("task_offset_sums", []))
        if "topology_name_length" in value:
            sums[TaskId(0, 0, "n" * _int(value["topology_name_length"]))] = 0
        process_id = ProcessId.parse("00112233-4455-6677-8899-aabbccddeeff")
        info = SubscriptionInfo(process_id, version, latest_supported, task_offset_sums=sums)
        return lambda: encode_subscription_info(info)
    if kind == "assignment_info":
        tasks = tuple(_task(task) for task in _list(value.get("active_tasks", [])))
        host_length = value.get("host_length")
        hosts = {} if host_length is None else {HostInfo("h" * _int(host_length), 1): frozenset[TopicPartition]()}
        return lambda: encode_assignment_info(AssignmentInfo(version, active_tasks=tasks, partitions_by_host=hosts))
    _fail(f"unknown kind {_text(kind):.80}")


def _encode_errors(case: Case) -> None:
    accept = _must_accept(case)
    encode = _refused_value(case["kind"], _object(case["value"]))
    try:
        encode()
    except EncodeError as error:
        if accept:
            raise
        in_java = case["java"] == "org.apache.kafka.streams.errors.TaskAssignmentException"
        if in_java != isinstance(error, TaskAssignmentEncodeError):
            _fail(f"refused with {type(error).__name__}, Java with {case['java']}")
        return
    if not accept:
        _fail("written, but must be refused")


# -- Connect -------------------------------------------------------------------------------------------------

_CONNECT_UNORDERED: Final = ("connectors", "tasks", "revoked_connectors", "revoked_tasks")


def _read_as_java(kind: object, data: bytes, reader_version: int) -> dict[str, object]:
    """What Java's reader says: it keeps jobs that occur twice and takes any negative number but -1 for a task."""
    reader = Reader(data, f"Connect {kind}")
    if (version := reader.int16("version")) < 0:
        _fail("a negative version")
    if kind == "worker_state":
        state: dict[str, object] = {"url": reader.string("url"), "config_offset": reader.int64("configOffset")}
        if reader_version >= 1:
            blob = reader.nullable_blob("allocation") if reader.remaining else None
            state["allocation"] = None if blob is None else _read_as_java("assignment", blob, reader_version)
        return state
    fields: dict[str, object] = {
        "error": reader.int16("error"),
        "leader": reader.string("leader"),
        "leader_url": reader.string("leaderUrl"),
        "config_offset": reader.int64("configOffset"),
    }
    if reader_version == 0:
        count: int | None = reader.count("assigned", row_bytes_min=1)
        fields["connectors"], fields["tasks"] = _read_jobs_as_java(reader, count)
        return fields
    for prefix in ("", "revoked_"):
        count = reader.nullable_count("jobs", row_bytes_min=1) if reader.remaining else None
        fields[f"{prefix}connectors"], fields[f"{prefix}tasks"] = _read_jobs_as_java(reader, count)
    return fields | {"version": version, "delay_ms": reader.int32("delay") if reader.remaining else 0}


def _read_jobs_as_java(reader: Reader, count: int | None) -> tuple[list[object], list[object]]:
    connectors: list[object] = []
    tasks: list[object] = []
    for _ in range(count or 0):
        connector = reader.string("connector")
        (numbers,) = reader.columns("i", reader.count("tasks", row_bytes_min=1), "tasks")
        connectors.extend(connector for number in numbers if number == -1)
        tasks.extend([connector, number] for number in numbers if number != -1)
    return connectors, tasks


def _connect_json(value: connect.WorkerState | connect.Assignment, reader_version: int) -> dict[str, object]:
    if isinstance(value, connect.WorkerState):
        state: dict[str, object] = {"url": value.url, "config_offset": value.config_offset}
        if reader_version >= 1:
            held = value.allocation
            state["allocation"] = None if held is None else _connect_json(held, reader_version)
        return state
    fields: dict[str, object] = {
        "error": value.error,
        "leader": value.leader,
        "leader_url": value.leader_url,
        "config_offset": value.config_offset,
        "connectors": list(value.connectors),
        "tasks": [list(task) for task in value.tasks],
    }
    if reader_version == 0:
        return fields
    return fields | {
        "version": value.version,
        "revoked_connectors": list(value.revoked_connectors),
        "revoked_tasks": [list(task) for task in value.revoked_tasks],
        "delay_ms": value.delay_ms,
    }


def _same_connect(what: str, ours: Mapping[str, object], recorded: object) -> None:
    if isinstance(ours.get("allocation"), dict):
        theirs = dict(_object(recorded))
        _same_connect(f"{what}.allocation", _object(ours["allocation"]), theirs["allocation"])
        _same_fields(what, {**ours, "allocation": None}, {**theirs, "allocation": None}, ())
    else:
        _same_fields(what, ours, recorded, _CONNECT_UNORDERED)


def _without_repeats(fields: Mapping[str, object]) -> dict[str, object]:
    plain = dict(fields)
    for key in _CONNECT_UNORDERED:
        if key in plain:
            plain[key] = list({_text(job): job for job in _list(plain[key])}.values())
    if isinstance(plain.get("allocation"), dict):
        plain["allocation"] = _without_repeats(_object(plain["allocation"]))
    return plain


def _connect_tasks(value: object) -> tuple[connect.TaskId, ...]:
    return tuple(connect.TaskId(*_partition(entry)) for entry in _list(value))


def _connect_assignment(given: Mapping[str, object], version: int) -> connect.Assignment:
    assignment = connect.Assignment(
        _str(given["leader"]),
        _str(given["leader_url"]),
        _int(given["config_offset"]),
        _int(given["error"]),
        tuple(_str(name) for name in _list(given["connectors"])),
        _connect_tasks(given["tasks"]),
        version=version,
    )
    if version == 0:
        return assignment
    _same("version of the assignment", _int(given["version"]), version)
    return connect.Assignment(
        assignment.leader,
        assignment.leader_url,
        assignment.config_offset,
        assignment.error,
        assignment.connectors,
        assignment.tasks,
        tuple(_str(name) for name in _list(given["revoked_connectors"])),
        _connect_tasks(given["revoked_tasks"]),
        _int(given["delay_ms"]),
        version,
    )


def _connect(case: Case) -> None:
    data = _bytes(case["hex"])
    version = _int(case["version"])
    given = _object(case["input"])
    canonical = _canonical_bytes(case, data, permutes_bytes=True)
    _same("version", int.from_bytes(data[:2], "big"), version)
    _same_connect("fields, read as Java does", _read_as_java(case["kind"], data, version), case["fields"])
    if case["kind"] == "assignment":
        assignment = connect.decode_assignment(data, reader_version=version)
        _same_connect("fields", _connect_json(assignment, version), case["fields"])
        written = connect.encode_assignment(_connect_assignment(given, version), version)
        again = connect.encode_assignment(assignment, version)
    elif case["kind"] == "worker_state":
        state = connect.decode_worker_state(data, reader_version=version)
        _same_connect("fields", _connect_json(state, version), case["fields"])
        held = given["allocation"] if version >= 1 else None
        value = connect.WorkerState(
            _str(given["url"]),
            _int(given["config_offset"]),
            None if held is None else _connect_assignment(_object(held), version),
        )
        written, again = connect.encode_worker_state(value, version), connect.encode_worker_state(state, version)
    else:
        _fail(f"unknown kind {_text(case['kind']):.80}")
    _same_bytes("encoding input", written, canonical)
    _same_bytes("encoding what was decoded", again, canonical)


def _connect_bad(case: Case) -> None:
    data = _bytes(case["hex"])
    accept = _must_accept(case)
    reader_version = _int(case["reader"])
    kind = case["kind"]
    if kind not in ("worker_state", "assignment") or reader_version not in (0, 1, 2):
        _fail(f"unknown kind or reader: {_text([kind, reader_version]):.80}")
    in_java: dict[str, object] = {}
    if case["java"] == "ok":
        in_java = _read_as_java(kind, data, reader_version)
        _same_connect("fields, read as Java does", in_java, case["fields"])
    try:
        ours = _connect_json(
            connect.decode_worker_state(data, reader_version=reader_version)
            if kind == "worker_state"
            else connect.decode_assignment(data, reader_version=reader_version),
            reader_version,
        )
    except DecodeError as error:
        if accept:
            raise
        _check_refusal(error, case)
        return
    if not accept:
        _fail("accepted, but must be refused")
    _same_connect("fields", ours, _without_repeats(in_java))


WIRE_KINDS: Final[Mapping[str, Callable[[Case], None]]] = {
    "subscription_info": _subscription_info,
    "subscription_info_bad": _subscription_info_bad,
    "assignment_info": _assignment_info,
    "assignment_info_bad": _assignment_info_bad,
    "consumer_protocol": _consumer_protocol,
    "consumer_protocol_bad": _consumer_protocol_bad,
    "encode_errors": _encode_errors,
    "connect": _connect,
    "connect_bad": _connect_bad,
}
"""Name of each format -> its check."""
