"""Checks the recorded vectors of Kafka Connect's group protocol against ``streams_protocol.connect``.

Java's reader keeps jobs that occur twice and task numbers below -1; ours drops the former and refuses the latter. The
vectors record what Java says, so the bytes are read twice: once by a small reader that does as Java does, which must
give the recorded fields exactly, and once by ours, which must give them without the repeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streams_protocol import DecodeError, connect
from streams_protocol.buffer import Reader
from tests.conformance.wire_case import (
    Case,
    DifferentError,
    as_bytes,
    as_int,
    as_list,
    as_object,
    as_partition,
    as_str,
    canonical_bytes,
    check_refusal,
    fail,
    json_text,
    must_accept,
    same,
    same_bytes,
    same_fields,
)

_UNORDERED: Final = ("connectors", "tasks", "revoked_connectors", "revoked_tasks")


def _read_as_java(kind: object, data: bytes, reader_version: int) -> dict[str, object]:
    """What Java's reader says: it keeps jobs that occur twice and takes any negative number but -1 for a task."""
    reader = Reader(data, f"Connect {kind}")
    if (version := reader.int16("version")) < 0:
        fail("a negative version")
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


def _java_reads(kind: object, data: bytes, reader_version: int) -> bool:
    try:
        _read_as_java(kind, data, reader_version)
    except (DecodeError, DifferentError):
        return False
    return True


def _read_jobs_as_java(reader: Reader, count: int | None) -> tuple[list[object], list[object]]:
    connectors: list[object] = []
    tasks: list[object] = []
    for _ in range(count or 0):
        connector = reader.string("connector")
        (numbers,) = reader.columns("i", reader.count("tasks", row_bytes_min=1), "tasks")
        connectors.extend(connector for number in numbers if number == -1)
        tasks.extend([connector, number] for number in numbers if number != -1)
    return connectors, tasks


def _as_json(value: connect.WorkerState | connect.Assignment, reader_version: int) -> dict[str, object]:
    if isinstance(value, connect.WorkerState):
        state: dict[str, object] = {"url": value.url, "config_offset": value.config_offset}
        if reader_version >= 1:
            held = value.allocation
            state["allocation"] = None if held is None else _as_json(held, reader_version)
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
        theirs = dict(as_object(recorded))
        _same_connect(f"{what}.allocation", as_object(ours["allocation"]), theirs["allocation"])
        same_fields(what, {**ours, "allocation": None}, {**theirs, "allocation": None}, ())
    else:
        same_fields(what, ours, recorded, _UNORDERED)


def _without_repeats(fields: Mapping[str, object]) -> dict[str, object]:
    plain = dict(fields)
    for key in _UNORDERED:
        if key in plain:
            plain[key] = list({json_text(job): job for job in as_list(plain[key])}.values())
    if isinstance(plain.get("allocation"), dict):
        plain["allocation"] = _without_repeats(as_object(plain["allocation"]))
    return plain


def _distinct(value: object) -> list[object]:
    jobs = as_list(value)
    if len({json_text(job) for job in jobs}) != len(jobs):
        fail("the input repeats a job")
    return jobs


def _names(value: object) -> tuple[str, ...]:
    return tuple(as_str(name) for name in _distinct(value))


def _tasks(value: object) -> tuple[connect.TaskId, ...]:
    return tuple(connect.TaskId(*as_partition(entry)) for entry in _distinct(value))


def _assignment(given: Mapping[str, object], version: int) -> connect.Assignment:
    revoked_connectors: tuple[str, ...] = ()
    revoked_tasks: tuple[connect.TaskId, ...] = ()
    delay_ms = 0
    if version >= 1:
        same("version of the assignment", given["version"], version)
        revoked_connectors, revoked_tasks = _names(given["revoked_connectors"]), _tasks(given["revoked_tasks"])
        delay_ms = as_int(given["delay_ms"])
    return connect.Assignment(
        as_str(given["leader"]),
        as_str(given["leader_url"]),
        as_int(given["config_offset"]),
        as_int(given["error"]),
        _names(given["connectors"]),
        _tasks(given["tasks"]),
        revoked_connectors,
        revoked_tasks,
        delay_ms,
        version,
    )


def check_connect(case: Case) -> None:
    """Check one case of ``connect.jsonl``: bytes that Java wrote."""
    data = as_bytes(case["hex"])
    version = as_int(case["version"])
    given = as_object(case["input"])
    canonical = canonical_bytes(case, data, permutes_bytes=True)
    same("version", int.from_bytes(data[:2], "big"), version)
    _same_connect("fields, read as Java does", _read_as_java(case["kind"], data, version), case["fields"])
    if case["kind"] == "assignment":
        assignment = connect.decode_assignment(data, reader_version=version)
        _same_connect("fields", _as_json(assignment, version), case["fields"])
        written = connect.encode_assignment(_assignment(given, version), version)
        again = connect.encode_assignment(assignment, version)
    elif case["kind"] == "worker_state":
        state = connect.decode_worker_state(data, reader_version=version)
        _same_connect("fields", _as_json(state, version), case["fields"])
        held = given["allocation"] if version >= 1 else None
        value = connect.WorkerState(
            as_str(given["url"]),
            as_int(given["config_offset"]),
            None if held is None else _assignment(as_object(held), version),
        )
        written, again = connect.encode_worker_state(value, version), connect.encode_worker_state(state, version)
    else:
        fail(f"unknown kind {json_text(case['kind']):.80}")
    same_bytes("encoding input", written, canonical)
    same_bytes("encoding what was decoded", again, canonical)


def check_connect_bad(case: Case) -> None:
    """Check one case of ``connect_bad.jsonl``: bytes that Java was given to read."""
    data = as_bytes(case["hex"])
    accept = must_accept(case)
    reader_version = as_int(case["reader"])
    kind = case["kind"]
    if kind not in ("worker_state", "assignment") or reader_version not in (0, 1, 2):
        fail(f"unknown kind or reader: {json_text([kind, reader_version]):.80}")
    in_java: dict[str, object] = {}
    if case["java"] == "ok":
        in_java = _read_as_java(kind, data, reader_version)
        _same_connect("fields, read as Java does", in_java, case["fields"])
    elif _java_reads(kind, data, reader_version):
        fail("Java is said to refuse it, but would read it")
    try:
        ours = _as_json(
            connect.decode_worker_state(data, reader_version=reader_version)
            if kind == "worker_state"
            else connect.decode_assignment(data, reader_version=reader_version),
            reader_version,
        )
    except DecodeError as error:
        if accept:
            raise
        check_refusal(error, case)
        return
    if not accept:
        fail("accepted, but must be refused")
    _same_connect("fields", ours, _without_repeats(in_java))
