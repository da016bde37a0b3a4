"""Split one assign step into several records of limited size, and join them again.

A broker refuses records of more than a megabyte, and consumers of many small topics do not expect large records. A
group of 10,000 tasks and 1,000 clients needs 1.5 MB, and a client with 10,000 offset sums a third of a megabyte. So a
rebalance is a header, then parts with the tasks to assign, then one part per client. Parts that are still too large are
split further: sub-topologies by partition, clients by task.

A reader has the whole rebalance when it has the parts 0 to ``parts - 1``. If a rebalance exceeds the limits, the writer
sends only a header with an error instead of an incomplete rebalance.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, TypeAlias, TypeVar

from streams_protocol import DecodeError
from streams_protocol.types import TaskId
from streams_py.events.codec import encode_value
from streams_py.events.model import (
    ClientPart,
    Envelope,
    ErrorInfo,
    Event,
    OffsetSums,
    Racks,
    RebalanceHeader,
    SubtopologySlice,
    Tasks,
    TasksPart,
    ThreadTasks,
)
from streams_py.events.taskset import TASKS_MAX

VALUE_BYTES_TARGET: Final = 64 << 10
"""Size in bytes above which a part is split, if possible."""
VALUE_BYTES_MAX: Final = 128 << 10
"""Maximum size of a part in bytes."""
REBALANCE_BYTES_MAX: Final = 64 << 20
"""Maximum size of all parts of a rebalance in bytes."""
_PARTS_MAX: Final = 1 << 20
_TOO_LARGE: Final = "TooLarge"

T = TypeVar("T")
_Part: TypeAlias = RebalanceHeader | TasksPart | ClientPart


class _TooLargeError(Exception):
    """A part cannot be split into small enough pieces, or a rebalance is too large."""


# -- splitting ---------------------------------------------------------------------------------------------------------


def cut_rebalance(
    envelope: Envelope, header: RebalanceHeader, slices: Sequence[SubtopologySlice], clients: Sequence[ClientPart]
) -> list[Event]:
    """Return all records of a rebalance, the header first. ``part`` and ``parts`` of the arguments are ignored.

    If a value would exceed 128 KiB, or all values together 64 MiB, only the header is returned, with the error
    ``TooLarge``.
    """
    try:
        sized = [(header, _size(envelope, header)), *_tasks_parts(envelope, header, slices)]
        for client in clients:
            sized += _client_parts(envelope, client)
        _check(sized)
    except _TooLargeError as error:
        reason = ErrorInfo(0, _TOO_LARGE, str(error))
        return [Event(envelope, replace(header, part=0, parts=1, error=header.error or reason))]
    return [Event(envelope, replace(body, part=number, parts=len(sized))) for number, (body, _) in enumerate(sized)]


def _size(envelope: Envelope, body: _Part) -> int:
    """Return an upper limit for the size in bytes of a part whose number is not known yet."""
    return len(encode_value(Event(envelope, replace(body, part=_PARTS_MAX, parts=_PARTS_MAX))))


def _check(sized: Sequence[tuple[_Part, int]]) -> None:
    largest = max(size for _, size in sized)
    if largest > VALUE_BYTES_MAX:
        raise _TooLargeError(f"a part has {largest} bytes and cannot be split; the maximum is {VALUE_BYTES_MAX}")
    total = sum(size for _, size in sized)
    if total > REBALANCE_BYTES_MAX:
        raise _TooLargeError(f"the rebalance has {total} bytes; the maximum is {REBALANCE_BYTES_MAX}")


def _tasks_parts(
    envelope: Envelope, header: RebalanceHeader, slices: Sequence[SubtopologySlice]
) -> Iterator[tuple[_Part, int]]:
    """Pack slices into parts up to the target size."""

    def part(subs: Sequence[SubtopologySlice]) -> TasksPart:
        return TasksPart(rebalance_id=header.rebalance_id, part=_PARTS_MAX, parts=_PARTS_MAX, subs=subs)

    packed: list[SubtopologySlice] = []
    packed_bytes = 0
    for whole in slices:
        pieces = _pieces(whole, whole.count, _partition_slice, lambda piece: _size(envelope, part([piece])))
        for piece, size in pieces:
            if packed and packed_bytes + size > VALUE_BYTES_TARGET:
                yield part(packed), packed_bytes
                packed, packed_bytes = [], 0
            packed.append(piece)
            packed_bytes += size
    if packed:
        yield part(packed), packed_bytes


def _partition_slice(whole: SubtopologySlice, low: int, high: int) -> SubtopologySlice:
    racks = whole.racks
    if racks is not None:
        racks = Racks(racks.names, {topic: of[low:high] for topic, of in racks.p.items()})
    return replace(
        whole,
        first=whole.first + low,
        count=high - low,
        end=None if whole.end is None else whole.end[low:high],
        weight=None if whole.weight is None else whole.weight[low:high],
        racks=racks,
    )


def _client_parts(envelope: Envelope, client: ClientPart) -> list[tuple[_Part, int]]:
    client = _ascending(replace(client, slice=0, slices=1))
    size = _size(envelope, client)
    if size <= VALUE_BYTES_TARGET:
        return [(client, size)]
    tasks = _all_tasks(client)
    pieces = _pieces(
        replace(client, slices=_PARTS_MAX),
        len(tasks),
        lambda whole, low, high: _task_slice(whole, tasks, low, high),
        lambda piece: _size(envelope, piece),
    )
    return [(replace(piece, slice=number, slices=len(pieces)), size) for number, (piece, size) in enumerate(pieces)]


def _pieces(whole: T, length: int, cut: Callable[[T, int, int], T], size_of: Callable[[T], int]) -> list[tuple[T, int]]:
    """Split ``whole`` into pieces below the target size, if that is possible. Returns the pieces with their sizes."""
    largest = size_of(whole)
    if largest <= VALUE_BYTES_TARGET or length <= 1:
        return [(whole, largest)]
    count = min(length, -(-largest // (VALUE_BYTES_TARGET * 3 // 4)))
    while True:
        pieces = [cut(whole, low, high) for low, high in pairwise(length * n // count for n in range(count + 1))]
        sized = [(piece, size_of(piece)) for piece in pieces]
        before, largest = largest, max(size for _, size in sized)
        # Pieces that do not shrink consist mainly of content that is not split, such as a thousand members of a client.
        if largest <= VALUE_BYTES_TARGET or count == length or largest > before * 3 // 4:
            return sized
        count = min(length, count * 2)


def _ascending(client: ClientPart) -> ClientPart:
    """Return a copy in which every task set is in ascending order, including offset sums."""
    sums = sorted(zip(client.sums.tasks, client.sums.v, strict=True))
    return replace(
        client,
        prev_active=sorted(client.prev_active),
        prev_standby=sorted(client.prev_standby),
        sums=OffsetSums(tuple(task for task, _ in sums), tuple(value for _, value in sums)),
        active=sorted(client.active),
        standby=sorted(client.standby),
        warmup=sorted(client.warmup),
        threads=[ThreadTasks(sorted(t.active), sorted(t.standby), sorted(t.withheld)) for t in client.threads],
        reasons={code: sorted(tasks) for code, tasks in client.reasons.items()},
    )


def _all_tasks(client: ClientPart) -> list[TaskId]:
    tasks = {*client.prev_active, *client.prev_standby, *client.sums.tasks}
    tasks.update(client.active, client.standby, client.warmup, *client.reasons.values())
    for thread in client.threads:
        tasks.update(thread.active, thread.standby, thread.withheld)
    return sorted(tasks)


def _task_slice(whole: ClientPart, tasks: Sequence[TaskId], low: int, high: int) -> ClientPart:
    def of(given: Tasks) -> Tasks:
        start = 0 if low == 0 else bisect_left(given, tasks[low])
        end = len(given) if high == len(tasks) else bisect_left(given, tasks[high])
        return given[start:end]

    start = 0 if low == 0 else bisect_left(whole.sums.tasks, tasks[low])
    sums = of(whole.sums.tasks)
    return replace(
        whole,
        tags=whole.tags if low == 0 else {},
        consumers=whole.consumers if low == 0 else (),
        prev_active=of(whole.prev_active),
        prev_standby=of(whole.prev_standby),
        sums=OffsetSums(sums, whole.sums.v[start : start + len(sums)]),
        active=of(whole.active),
        standby=of(whole.standby),
        warmup=of(whole.warmup),
        threads=[ThreadTasks(of(t.active), of(t.standby), of(t.withheld)) for t in whole.threads],
        reasons={code: found for code, given in whole.reasons.items() if (found := of(given))},
    )


# -- joining -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WholeRebalance:
    """A complete rebalance: one slice per sub-topology, one part per client."""

    header: RebalanceHeader
    slices: Sequence[SubtopologySlice]
    clients: Sequence[ClientPart]


def join_rebalance(parts: Mapping[int, _Part]) -> WholeRebalance | None:
    """Join the parts, given by number, to a rebalance. None while parts are missing.

    A header with the error ``TooLarge`` is a complete rebalance without content.

    Raises:
        DecodeError: The parts contradict each other.
    """
    header = parts.get(0)
    if header is None:
        return None
    if not isinstance(header, RebalanceHeader):
        raise _contradiction(f"part 0 has the kind {header.KIND}, expected {RebalanceHeader.KIND}")
    if any(part.rebalance_id != header.rebalance_id or part.parts != header.parts for part in parts.values()):
        raise _contradiction(f"the parts of {header.rebalance_id} have different rebalance ids or different counts")
    if len(parts) < header.parts:
        return None
    if sorted(parts) != list(range(header.parts)):
        raise _contradiction(f"the parts of {header.rebalance_id} are not numbered from 0 to {header.parts - 1}")
    slices: dict[str, list[SubtopologySlice]] = {}
    clients: dict[str, list[ClientPart]] = {}
    for number in range(1, header.parts):
        match parts[number]:
            case TasksPart() as tasks:
                for piece in tasks.subs:
                    slices.setdefault(piece.sub, []).append(piece)
            case ClientPart() as client:
                clients.setdefault(client.client, []).append(client)
            case RebalanceHeader():
                raise _contradiction(f"part {number} of {header.rebalance_id} is a second header")
    whole = WholeRebalance(
        header, [join_slices(of) for of in slices.values()], [join_clients(of) for of in clients.values()]
    )
    if sum(piece.count for piece in whole.slices) > TASKS_MAX:
        raise _contradiction(f"{header.rebalance_id} has more than {TASKS_MAX} tasks")
    for one in whole.clients:
        if header.outcome == "ok" and len(one.threads) != len(one.consumers):
            raise _contradiction(f"client {one.client} has {len(one.consumers)} members and {len(one.threads)} threads")
    return whole


def join_slices(pieces: Sequence[SubtopologySlice]) -> SubtopologySlice:
    """Join adjacent slices to one. DecodeError if partitions are missing or repeated."""
    pieces = sorted(pieces, key=lambda piece: piece.first)
    first = pieces[0]
    if len(pieces) == 1:
        return first
    at = first.first
    for piece in pieces:
        if piece.first != at:
            raise _contradiction(f"slices of sub-topology {first.sub} have a gap or an overlap at partition {at}")
        at += piece.count
    racks = [piece.racks for piece in pieces]
    joined: Racks | None = None
    if any(rack is not None and first.racks is not None and rack.p.keys() != first.racks.p.keys() for rack in racks):
        raise _contradiction(f"slices of sub-topology {first.sub} have different topics")
    if first.racks is not None and None not in racks:
        names = first.racks.names
        joined = Racks(
            names, {topic: [r for rack in racks if rack is not None for r in rack.p[topic]] for topic in first.racks.p}
        )
    return replace(
        first,
        count=at - first.first,
        end=_concatenated([piece.end for piece in pieces]),
        weight=_concatenated([piece.weight for piece in pieces]),
        racks=joined,
    )


def _concatenated(lists: Sequence[Sequence[T] | None]) -> tuple[T, ...] | None:
    known = [of for of in lists if of is not None]
    return tuple(item for of in known for item in of) if len(known) == len(lists) else None


def join_clients(pieces: Sequence[ClientPart]) -> ClientPart:
    """Join the slices of a client to one. DecodeError if slices are missing."""
    pieces = sorted(pieces, key=lambda piece: piece.slice)
    first = pieces[0]
    if [piece.slice for piece in pieces] != list(range(first.slices)):
        raise _contradiction(f"slices of client {first.client} are missing or repeated")
    if any(len(piece.threads) != len(first.threads) for piece in pieces):
        raise _contradiction(f"slices of client {first.client} have different numbers of threads")
    if len(pieces) == 1:
        return first
    reasons: dict[str, list[TaskId]] = {}
    for piece in pieces:
        for code, tasks in piece.reasons.items():
            reasons.setdefault(code, []).extend(tasks)

    def all_of(take: Callable[[ClientPart], Tasks]) -> Tasks:
        return tuple(task for piece in pieces for task in take(piece))

    return replace(
        first,
        slice=0,
        slices=1,
        prev_active=all_of(lambda piece: piece.prev_active),
        prev_standby=all_of(lambda piece: piece.prev_standby),
        sums=OffsetSums(all_of(lambda piece: piece.sums.tasks), tuple(v for piece in pieces for v in piece.sums.v)),
        active=all_of(lambda piece: piece.active),
        standby=all_of(lambda piece: piece.standby),
        warmup=all_of(lambda piece: piece.warmup),
        threads=[_joined_thread([piece.threads[n] for piece in pieces]) for n in range(len(first.threads))],
        reasons={code: tuple(tasks) for code, tasks in reasons.items()},
    )


def _joined_thread(pieces: Sequence[ThreadTasks]) -> ThreadTasks:
    return ThreadTasks(
        tuple(task for piece in pieces for task in piece.active),
        tuple(task for piece in pieces for task in piece.standby),
        tuple(task for piece in pieces for task in piece.withheld),
    )


def _contradiction(what: str) -> DecodeError:
    return DecodeError(what, offset=0, remedy="two writers used the same rebalance id, or the records are damaged")
