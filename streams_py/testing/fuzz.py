"""Damaged bytes for everything that reads bytes of others, and what must not come of it.

The invariant, in one sentence: whatever the bytes, a reader returns a value or raises one of its documented errors,
soon, and without holding much more memory than the bytes themselves; and a value that was read can be written and
reads as itself.

Inputs start from good ones: recorded vectors where a checkout has them, otherwise values made up here. They are left
whole, cut, mutated, spliced with each other, or replaced by noise; lengths are overwritten with the numbers that hurt.
The same seed gives the same inputs, in any process.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
import tracemalloc
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias, cast

from streams_protocol import (
    Assignment,
    AssignmentInfo,
    DecodeError,
    EncodeError,
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
from streams_py.config import StreamsConfig
from streams_py.errors import ConfigError
from streams_py.state.checkpoint import CHECKPOINT_FILE, read_checkpoint, write_checkpoint

__all__ = ["TARGETS", "Finding", "FuzzResult", "find_vectors", "fuzz_target", "inputs_for"]

SECONDS_MAX: Final = 0.05
"""Processor time for one input of up to a megabyte."""
INPUT_BYTES_MAX: Final = 1 << 20
MEMORY_FACTOR: Final = 4
MEMORY_SLACK_BYTES: Final = 1 << 20
"""A reader may hold this many times its input, and this much more."""
_MEASURE_ONE_IN: Final = 40
"""Memory is measured for one input in so many (it is slow), and for every one that promises great lengths."""
_FINDINGS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that did what none may do."""

    target: str
    what: str
    data: bytes


@dataclass(slots=True)
class FuzzResult:
    """What became of one target's inputs. Times in seconds of processor time, memory in bytes."""

    target: str
    inputs: int = 0
    input_bytes: int = 0
    values: int = 0
    """Inputs that were read as a value."""
    refused: Counter[str] = field(default_factory=Counter)
    """Inputs that were refused, by the name of the error."""
    seconds: float = 0.0
    slowest: float = 0.0
    most_memory: int = 0
    """Most that was held beyond the input, of those that were measured."""
    findings: list[Finding] = field(default_factory=list)


_Write: TypeAlias = Callable[[object], bytes]


@dataclass(frozen=True, slots=True)
class _Target:
    read: Callable[[bytes], object]
    allowed: tuple[type[Exception], ...]
    samples: Callable[[], Sequence[bytes]]
    vectors: tuple[str, str] | None = None
    """File of recorded vectors, and the kind of case in it (empty: all)."""
    write: _Write | None = None
    """For the way back: what was read is written and must read as itself."""
    same: Callable[[object, object], bool] = lambda a, b: a == b


# -- inputs --------------------------------------------------------------------------------------------------

_HURTFUL: Final = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x01\x86\xa1",
    b"\xff\xff\xff\xfe",
    b"\x7f\xff",
    b"\xff\xff",
    b"\x00\x00\x00\x00",
    b"\x00\x00\x00\x0c",
)


def inputs_for(corpus: Sequence[bytes], rng: random.Random) -> Iterator[tuple[bytes, bool]]:
    """(bytes, whether a length in them was made to hurt), without end."""
    while True:
        base = rng.choice(corpus)
        match rng.randrange(8):
            case 0:
                yield base, False
            case 1:
                yield base[: rng.randrange(len(base) + 1)], False
            case 2 | 3:
                yield _mutated(base, rng), False
            case 4:
                other = rng.choice(corpus)
                yield base[: rng.randrange(len(base) + 1)] + other[rng.randrange(len(other) + 1) :], False
            case 5 | 6:
                at = rng.randrange(len(base) + 1)
                number = rng.choice(_HURTFUL)
                yield base[:at] + number + base[at + len(number) :], True
            case _:
                yield rng.randbytes(rng.choice((0, 1, 3, 8, 40, 400))), False


def _mutated(base: bytes, rng: random.Random) -> bytes:
    data = bytearray(base)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        if not data:
            break
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.randrange(256)
            case 2:
                del data[at : at + rng.randrange(1, 9)]
            case _:
                data[at:at] = data[at : at + rng.randrange(1, 60)]
    return bytes(data)


def find_vectors() -> Path | None:
    """The folder of recorded vectors in the checkout that this package is run from; None without one."""
    for parent in Path(__file__).resolve().parents:
        folder = parent / "protocol" / "vectors"
        if folder.is_dir():
            return folder
    return None


def _recorded(folder: Path | None, wanted: tuple[str, str] | None) -> list[bytes]:
    if folder is None or wanted is None:
        return []
    name, kind = wanted
    found = []
    for path in sorted(folder.glob(f"{name}*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            case: Mapping[str, object] = json.loads(line)
            text = case.get("hex")
            if isinstance(text, str) and (not kind or case.get("kind") == kind):
                found.append(bytes.fromhex(text))
    return found


# -- running -------------------------------------------------------------------------------------------------


def fuzz_target(name: str, inputs: int, *, seed: int = 1, vectors: Path | None = None) -> FuzzResult:
    """Feed one target. KeyError for a name that is not in :data:`TARGETS`."""
    target = TARGETS[name]
    rng = random.Random(f"fuzz {name} {seed}")
    corpus = _recorded(vectors, target.vectors) or []
    corpus += target.samples()
    result = FuzzResult(name)
    for number, (data, hurts) in zip(range(inputs), inputs_for(corpus, rng), strict=False):
        result.inputs += 1
        result.input_bytes += len(data)
        _feed(target, data, result, measure=hurts or number % _MEASURE_ONE_IN == 0)
        if len(result.findings) >= _FINDINGS_MAX:
            break
    return result


def _feed(target: _Target, data: bytes, result: FuzzResult, *, measure: bool) -> None:
    value: object = None
    error: BaseException | None = None
    if measure:
        tracemalloc.start()
    started = time.thread_time()
    try:
        value = target.read(data)
    except BaseException as raised:  # MemoryError and RecursionError are findings, too
        if isinstance(raised, KeyboardInterrupt):
            raise
        error = raised
    seconds = time.thread_time() - started
    if measure:
        _, held = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        result.most_memory = max(result.most_memory, held)
        if held > MEMORY_FACTOR * len(data) + MEMORY_SLACK_BYTES:
            _find(result, f"held {held:,} bytes for an input of {len(data):,}", data)
    else:  # measuring memory makes it slow
        result.seconds += seconds
        result.slowest = max(result.slowest, seconds)
        if seconds > SECONDS_MAX and len(data) <= INPUT_BYTES_MAX and _slow_again(target, data):
            _find(result, f"took {1000 * seconds:.0f} ms for {len(data):,} bytes", data)
    if error is None:
        result.values += 1
        _check_way_back(target, value, data, result)
    elif isinstance(error, target.allowed):
        result.refused[type(error).__name__] += 1
    else:
        _find(result, f"{type(error).__name__}: {error}", data)


def _slow_again(target: _Target, data: bytes) -> bool:
    """Whether an input is slow by itself, and not because something else happened just then."""
    for _ in range(3):
        started = time.thread_time()
        with suppress(*target.allowed):
            target.read(data)
        if time.thread_time() - started <= SECONDS_MAX:
            return False
    return True


def _check_way_back(target: _Target, value: object, data: bytes, result: FuzzResult) -> None:
    if target.write is None:
        return
    try:
        written = target.write(value)
    except EncodeError:
        return  # what was read cannot always be written: a future version, a value that only a reader tolerates
    except DecodeError:
        return  # client tags that occur twice are refused when they are looked at
    except Exception as error:
        _find(result, f"cannot be written again: {type(error).__name__}: {error}", data)
        return
    try:
        again = target.read(written)
    except Exception as error:
        _find(result, f"what was written cannot be read: {type(error).__name__}: {error}", data)
        return
    if not target.same(value, again):
        _find(result, "reads differently after it was written", data)


def _find(result: FuzzResult, what: str, data: bytes) -> None:
    result.findings.append(Finding(result.target, what, data))


# -- targets -------------------------------------------------------------------------------------------------

_PARTITIONS: Final = tuple(TopicPartition(topic, p) for topic in ("orders", "app-counts-changelog") for p in range(3))


def _subscription_infos() -> list[bytes]:
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
        for version in range(1, 12)
    ]


def _assignment_infos() -> list[bytes]:
    hosts = {HostInfo("host", 9092): frozenset(_PARTITIONS[:3]), HostInfo("other", 1): frozenset(_PARTITIONS[3:])}
    return [
        encode_assignment_info(
            AssignmentInfo(
                version,
                11,
                (TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)),
                {TaskId(0, 2): frozenset(_PARTITIONS[2:3])},
                hosts if version >= 2 else {},
                hosts if version >= 6 else {},
                0,
            )
        )
        for version in range(1, 12)
    ]


def _subscriptions() -> list[bytes]:
    value = Subscription(("in", "other"), b"\x00\x01user data", _PARTITIONS, 7, "rack-1")
    return [encode_subscription(value, version) for version in range(4)] + [encode_subscription(Subscription())]


def _assignments() -> list[bytes]:
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


def _connect_assignments() -> list[bytes]:
    return [connect.encode_assignment(_connect_assignment(), version) for version in range(connect.LATEST_VERSION + 1)]


def _worker_states() -> list[bytes]:
    state = connect.WorkerState(
        "http://worker:8083/", 42, _connect_assignment(), frozenset({"sink"}), frozenset({connect.TaskId("sink", 0)})
    )
    return [connect.encode_worker_state(state, version) for version in range(connect.LATEST_VERSION + 1)]


_FOLDER: Final = tempfile.TemporaryDirectory(prefix="streams-py-fuzz-")


def _read_checkpoint(data: bytes) -> object:
    Path(_FOLDER.name, CHECKPOINT_FILE).write_bytes(data)
    return read_checkpoint(_FOLDER.name)


def _checkpoints() -> list[bytes]:
    samples = [b"0\n0\n", b"0\n1\napp-s-changelog 3 -4\n"]
    write_checkpoint(_FOLDER.name, {tp: 1000 * n for n, tp in enumerate(_PARTITIONS)})
    return [*samples, Path(_FOLDER.name, CHECKPOINT_FILE).read_bytes()]


def _read_properties(data: bytes) -> object:
    path = Path(_FOLDER.name, "app.properties")
    path.write_bytes(data)
    return StreamsConfig.of(path)


def _read_toml(data: bytes) -> object:
    path = Path(_FOLDER.name, "app.toml")
    path.write_bytes(data)
    return StreamsConfig.of(path)


_SETTINGS: Final = {
    "application.id": "app",
    "bootstrap.servers": "localhost:9092",
    "num.stream.threads": "2",
    "num.standby.replicas": "1",
    "upgrade.from": "2.3",
    "application.server": "host:8080",
    "acceptable.recovery.lag": "10000",
    "client.tag.zone": "eu-1",
    "rack.aware.assignment.tags": "zone",
    "topic.segment.bytes": "52428800",
    "consumer.max.poll.records": "1000",
    "processing.guarantee": "at_least_once",
}


def _properties_files() -> list[bytes]:
    return ["".join(f"{key} = {value}\n" for key, value in _SETTINGS.items()).encode(), b"application.id=a\\\nb\n# x\n"]


def _toml_files() -> list[bytes]:
    return [
        "".join(f'"{key}" = "{value}"\n' for key, value in _SETTINGS.items()).encode(),
        b"[application]\nid = 'x'\n",
    ]


TARGETS: Final[Mapping[str, _Target]] = {
    "subscription_info": _Target(
        decode_subscription_info,
        (DecodeError,),
        _subscription_infos,
        ("subscription_info", ""),
        cast("_Write", encode_subscription_info),
    ),
    "assignment_info": _Target(
        decode_assignment_info,
        (DecodeError,),
        _assignment_infos,
        ("assignment_info", ""),
        cast("_Write", encode_assignment_info),
    ),
    "consumer_subscription": _Target(
        decode_subscription,
        (DecodeError,),
        _subscriptions,
        ("consumer_protocol", "subscription"),
        cast("_Write", encode_subscription),
        lambda a, b: _sorted_subscription(a) == _sorted_subscription(b),
    ),
    "consumer_assignment": _Target(
        decode_assignment,
        (DecodeError,),
        _assignments,
        ("consumer_protocol", "assignment"),
        cast("_Write", encode_assignment),
        lambda a, b: _sorted_assignment(a) == _sorted_assignment(b),
    ),
    "connect_worker_state": _Target(
        connect.decode_worker_state,
        (DecodeError,),
        _worker_states,
        ("connect", "worker_state"),
        cast("_Write", connect.encode_worker_state),
        lambda a, b: _sorted_state(a) == _sorted_state(b),
    ),
    "connect_assignment": _Target(
        connect.decode_assignment,
        (DecodeError,),
        _connect_assignments,
        ("connect", "assignment"),
        cast("_Write", connect.encode_assignment),
        lambda a, b: _sorted_jobs(a) == _sorted_jobs(b),
    ),
    "checkpoint": _Target(_read_checkpoint, (ValueError,), _checkpoints),
    "config_properties": _Target(_read_properties, (ConfigError,), _properties_files),
    "config_toml": _Target(_read_toml, (ConfigError,), _toml_files),
}
"""Everything that is fed, by name."""


def _sorted_subscription(value: object) -> object:
    assert isinstance(value, Subscription)
    parts = (value.user_data, value.generation_id, value.rack_id)
    return sorted(value.topics), parts, sorted(value.owned_partitions)


def _sorted_assignment(value: object) -> object:
    assert isinstance(value, Assignment)
    return sorted(value.partitions), value.user_data


def _sorted_jobs(value: object) -> object:
    """A Connect assignment without the order of its jobs, and without the version it was read in."""
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
