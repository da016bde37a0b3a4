"""Reading the JSON of a recorded wire vector strictly, and comparing it with ours.

Everything raises :class:`DifferentError` with a short reason. Numbers, texts and bytes are taken as they stand: 1 is
neither ``true`` nor 1.0, and hex is lower-case without blanks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NoReturn

from streams_protocol import DecodeError, NotAllowedDecodeError, TaskId, TopicPartition

Case = Mapping[str, object]


class DifferentError(Exception):
    """The case does not hold; the text says why."""


def fail(reason: str) -> NoReturn:
    """Give up with a reason."""
    raise DifferentError(reason)


def json_text(value: object) -> str:
    """JSON with sorted keys; tells 1 from true and 1.0, which ``==`` does not."""
    return json.dumps(value, sort_keys=True)


def same(what: str, ours: object, recorded: object) -> None:
    """Compare two JSON values by their text; the reason shows where they part."""
    left, right = json_text(ours), json_text(recorded)
    if left != right:
        at = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
        start = max(0, at - 30)
        fail(f"{what}: ours ...{left[start : at + 50]}... recorded ...{right[start : at + 50]}...")


def same_fields(what: str, ours: Mapping[str, object], recorded: object, unordered: Iterable[str]) -> None:
    """Compare key by key; lists named in ``unordered`` are sets on the wire and are compared without order."""
    theirs = as_object(recorded)
    same(f"keys of {what}", sorted(ours), sorted(theirs))
    for key, value in ours.items():
        if key in unordered:
            same(f"{what}.{key}", _sorted(value), _sorted(theirs[key]))
        else:
            same(f"{what}.{key}", value, theirs[key])


def _sorted(value: object) -> object:
    """Lists of lists without order, at both levels of a map entry ``[key..., [partition, ...]]``."""
    entries = [
        [*entry[:-1], sorted(entry[-1], key=json_text)]
        if isinstance(entry, list) and isinstance(entry[-1], list)
        else entry
        for entry in as_list(value)
    ]
    return sorted(entries, key=json_text)


def as_object(value: object) -> dict[str, object]:
    """``value`` as a JSON object."""
    if not isinstance(value, dict):
        fail(f"expected an object, not {json_text(value):.80}")
    return value


def as_list(value: object) -> list[object]:
    """``value`` as a JSON list."""
    if not isinstance(value, list):
        fail(f"expected a list, not {json_text(value):.80}")
    return value


def as_int(value: object) -> int:
    """Return ``value`` as an integer; a bool or a float is not one."""
    if not isinstance(value, int) or isinstance(value, bool):
        fail(f"expected an integer, not {json_text(value):.80}")
    return value


def as_str(value: object) -> str:
    """``value`` as a string."""
    if not isinstance(value, str):
        fail(f"expected a string, not {json_text(value):.80}")
    return value


def as_optional_str(value: object) -> str | None:
    """``value`` as a string or null."""
    return None if value is None else as_str(value)


def as_bytes(value: object) -> bytes:
    """``value`` as bytes, from lower-case hex."""
    data = bytes.fromhex(as_str(value))
    if data.hex() != value:
        fail(f"not plain lower-case hex: {value:.80}")
    return data


def as_optional_bytes(value: object) -> bytes | None:
    """``value`` as bytes, from lower-case hex, or null."""
    return None if value is None else as_bytes(value)


def as_task(value: object) -> TaskId:
    """``[subtopology, partition, topology name or null]``."""
    subtopology, partition, name = as_list(value)
    return TaskId(as_int(subtopology), as_int(partition), as_optional_str(name))


def as_partition(value: object) -> TopicPartition:
    """``[topic, partition]``."""
    topic, partition = as_list(value)
    return TopicPartition(as_str(topic), as_int(partition))


def as_partitions(value: object) -> tuple[TopicPartition, ...]:
    """A list of ``[topic, partition]``."""
    return tuple(as_partition(entry) for entry in as_list(value))


def task_json(task: TaskId) -> list[object]:
    """A task as the vectors write it."""
    return [task.subtopology, task.partition, task.topology_name]


def same_bytes(what: str, ours: bytes, recorded: bytes) -> None:
    """Compare bytes; the reason names the first that differs."""
    if ours != recorded:
        at = next((i for i, (a, b) in enumerate(zip(ours, recorded, strict=False)) if a != b), -1)
        at = min(len(ours), len(recorded)) if at < 0 else at
        fail(
            f"{what}: differs at byte {at} (ours {len(ours)} bytes ...{ours[at : at + 8].hex()}, "
            f"recorded {len(recorded)} bytes ...{recorded[at : at + 8].hex()})"
        )


def canonical_bytes(case: Case, data: bytes, *, permutes_bytes: bool) -> bytes:
    """The bytes that our writer must give. Original and canonical bytes hold the same entries in another order."""
    if case["canonical"] is True:
        if "canonical_hex" in case:
            fail("canonical_hex beside canonical bytes")
        return data
    if case["canonical"] is not False:
        fail("canonical is neither true nor false")
    canonical = as_bytes(case["canonical_hex"])
    if canonical == data:
        fail("canonical_hex equals hex, but canonical is false")
    if len(canonical) != len(data) or (permutes_bytes and sorted(canonical) != sorted(data)):
        fail("hex and canonical_hex do not hold the same entries")
    return canonical


def must_accept(case: Case) -> bool:
    """Return what the case requires; raise an error if its statements contradict each other."""
    java = as_str(case["java"])
    if java != "ok" and not java.startswith(("java.", "org.apache.kafka.")):
        fail(f"java is neither ok nor the class of an exception: {java:.80}")
    expect = case.get("expect", "ok" if java == "ok" else "reject")
    if expect not in ("ok", "reject"):
        fail(f"expect is neither ok nor reject: {json_text(expect):.80}")
    if expect == "ok" and java != "ok":
        fail("a case that Java refuses cannot be expected to pass")
    return expect == "ok"


def check_refusal(error: DecodeError, case: Case) -> None:
    """A refusal that Java does not share must be one of the documented ones."""
    if case["java"] == "ok" and not isinstance(error.__cause__ or error, NotAllowedDecodeError):
        fail(f"refused, and Java accepts it: {error}"[:300])
