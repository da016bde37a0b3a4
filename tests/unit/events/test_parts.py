"""Rebalances of any size as records of a bounded one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams_protocol import DecodeError
from streams_protocol.types import TaskId
from streams_py.events.codec import decode_event, encode_value
from streams_py.events.model import (
    ClientPart,
    Consumer,
    Event,
    OffsetSums,
    Racks,
    RebalanceHeader,
    SubtopologySlice,
    TasksPart,
    ThreadTasks,
)
from streams_py.events.parts import VALUE_BYTES_MAX, WholeRebalance, cut_rebalance, join_rebalance
from tests.support.events.golden import EVENTS
from tests.support.events.kit import ENVELOPE, whole


def header() -> RebalanceHeader:
    body = EVENTS["rebalance"].body
    assert isinstance(body, RebalanceHeader)
    return replace(body, parts=1)


def tasks(sub: int, numbers: range) -> tuple[TaskId, ...]:
    return tuple(TaskId(sub, number) for number in numbers)


def client(number: int, *, consumers: int = 1, owned: range = range(0), sums: int = 0) -> ClientPart:
    mine = tasks(0, owned)
    reported = tasks(0, range(0, 2 * sums, 2))
    threads = [ThreadTasks(mine[n::consumers], reported[n::consumers], ()) for n in range(consumers)]
    return ClientPart(
        rebalance_id=header().rebalance_id,
        part=0,
        parts=0,
        client=f"client-{number:05}",
        slice=0,
        slices=1,
        host=None,
        rack="a",
        tags={"zone": "a"},
        consumers=[Consumer(f"member-{number}-{n}-" + "x" * 60, 11, 11, mine[n::consumers]) for n in range(consumers)],
        prev_active=mine,
        prev_standby=reported,
        sums=OffsetSums(reported, tuple(1_000_000_007 * n % 10_000_000_019 for n in range(sums))),
        active=mine,
        standby=reported,
        warmup=(),
        threads=threads,
        reasons={"kept": mine, "standby_default": reported},
    )


def slice_of(sub: int, count: int) -> SubtopologySlice:
    racks = [[n % 3, (n + 1) % 3] for n in range(count)]
    return SubtopologySlice(
        sub=str(sub),
        first=0,
        count=count,
        stateful=True,
        logged=True,
        stores=["s"],
        sources=["in"],
        changelogs=["c"],
        end=[10_000_000_000 + n for n in range(count)],
        weight=[1.5] * count,
        racks=Racks(["a", "b", "c"], {"in": racks, "c": racks}),
    )


def sent_and_read(events: list[Event]) -> WholeRebalance:
    """Through bytes, all within the bound."""
    values = [encode_value(event) for event in events]
    assert max(map(len, values)) <= VALUE_BYTES_MAX
    decoded = [decode_event(value) for value in values]
    return whole([event for event in decoded if isinstance(event, Event)])


def comparable(part: ClientPart) -> ClientPart:
    """Lists as tuples, and without the numbers that cutting gives."""
    return replace(
        part,
        part=0,
        parts=0,
        consumers=tuple(part.consumers),
        threads=tuple(ThreadTasks(tuple(t.active), tuple(t.standby), tuple(t.withheld)) for t in part.threads),
    )


def test_ten_thousand_tasks_on_a_thousand_clients_fit() -> None:
    clients = [client(n, owned=range(10 * n, 10 * n + 10), sums=30) for n in range(1_000)]
    events = cut_rebalance(ENVELOPE, header(), [slice_of(0, 5_000), slice_of(1, 5_000)], clients)
    read = sent_and_read(events)
    assert [s.count for s in read.slices] == [5_000, 5_000]
    assert list(read.slices[0].end or ()) == list(slice_of(0, 5_000).end or ())
    assert read.slices[1].racks is not None
    assert list(map(list, read.slices[1].racks.p["c"])) == list(slice_of(1, 5_000).racks.p["c"])
    assert [comparable(part) for part in read.clients] == [comparable(c) for c in clients]


def test_client_with_ten_thousand_sums_is_cut_and_joined() -> None:
    large = client(1, consumers=4, owned=range(20_001, 20_401), sums=10_000)
    events = cut_rebalance(ENVELOPE, header(), [], [large])
    slices = [event.body for event in events if isinstance(event.body, ClientPart)]
    assert len(slices) > 1
    assert [part.slice for part in slices] == list(range(slices[0].slices))
    assert [len(part.consumers) for part in slices[1:]] == [0] * (len(slices) - 1)
    (joined,) = sent_and_read(events).clients
    assert comparable(joined) == comparable(large)


def test_header_says_too_large_when_a_part_cannot_be_cut() -> None:
    crowd = client(1, consumers=2_000, owned=range(4_000))
    (event,) = cut_rebalance(ENVELOPE, header(), [], [crowd])
    assert isinstance(event.body, RebalanceHeader)
    assert event.body.parts == 1
    assert event.body.error is not None
    assert event.body.error.type == "TooLarge"
    assert sent_and_read([event]) == WholeRebalance(event.body, [], [])


def test_rebalance_is_not_there_while_a_part_is_missing() -> None:
    events = cut_rebalance(ENVELOPE, header(), [slice_of(0, 3)], [client(1), client(2)])
    bodies = {event.body.part: event.body for event in events}
    for number in bodies:
        assert join_rebalance({n: body for n, body in bodies.items() if n != number}) is None
    assert join_rebalance(bodies) is not None


def test_parts_of_two_rebalances_are_refused() -> None:
    events = cut_rebalance(ENVELOPE, header(), [], [client(1), client(2)])
    bodies = {event.body.part: event.body for event in events}
    bodies[1] = replace(bodies[1], rebalance_id="other")
    with pytest.raises(DecodeError):
        join_rebalance(bodies)


def test_parts_that_contradict_each_other_are_refused() -> None:
    def joined(*clients: ClientPart, slices: Sequence[SubtopologySlice] = ()) -> WholeRebalance | None:
        parts = TasksPart(rebalance_id=header().rebalance_id, part=1, parts=0, subs=slices)
        bodies: list[RebalanceHeader | TasksPart | ClientPart] = [header(), parts, *clients]
        return join_rebalance(
            {number: replace(body, part=number, parts=len(bodies)) for number, body in enumerate(bodies)}
        )

    assert joined(client(1), client(2), slices=[slice_of(0, 3)]) is not None
    one_thread = client(1).threads
    with pytest.raises(DecodeError, match="2 members and 1 threads"):
        joined(replace(client(1, consumers=2), threads=one_thread))
    first, second = replace(client(1, consumers=2), slices=2), replace(client(1), slice=1, slices=2)
    with pytest.raises(DecodeError, match="have different numbers of threads"):
        joined(first, second)
    other = replace(slice_of(0, 2), first=3, racks=Racks(["a"], {"in": [[0], [0]]}))
    with pytest.raises(DecodeError, match="have different topics"):
        joined(client(1), slices=[slice_of(0, 3), other])
    huge = [replace(slice_of(sub, 1), count=900_000, end=None, weight=None, racks=None) for sub in range(2)]
    with pytest.raises(DecodeError, match="more than 1000000 tasks"):
        joined(client(1), slices=huge)
