"""The rule by which a range is read, against the obvious fold: any order of records and events, in any calls."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams_py.adapters.confluent.bulk.range_rule import RangePosition

END_OF_PARTITION = "end of partition"
LOST_CONNECTION = "lost connection"
Event = tuple[str, int]
"""``record``, END_OF_PARTITION or LOST_CONNECTION, with an offset."""


def message(event: Event) -> Message:
    kind, offset = event
    if kind == "record":
        return Message("t", 0, offset, None, b"v")
    code = KafkaError._PARTITION_EOF if kind == END_OF_PARTITION else KafkaError._TRANSPORT
    return Message("t", 0, offset, error=KafkaError(code))


@st.composite
def clients(draw: st.DrawFn) -> tuple[list[int], int, int, list[Event]]:
    """A log with gaps, a range of it, and all that a client delivers: it starts at the range, goes back now and then,
    reports the end of the log when it is there, and other events at any time."""
    log = sorted(draw(st.sets(st.integers(0, 40), max_size=16)))
    log_end = (log[-1] + 1 if log else 0) + draw(st.integers(0, 3))  # the last offsets may be markers
    end = log_end - draw(st.integers(0, log_end) | st.just(0))
    start = draw(st.integers(0, end) | st.just(0))
    events: list[Event] = []
    at = start
    for step in draw(st.lists(st.sampled_from(["deliver", "deliver", "go back", "end", "lose"]), max_size=12)):
        left = [offset for offset in log if offset >= at]
        if step == "deliver" and left:
            count = draw(st.integers(1, len(left)))
            events += [("record", offset) for offset in left[:count]]
            at = left[count - 1] + 1
        elif step == "go back":
            at = draw(st.integers(0, at))  # a change of leaders; also to an offset before the range
        elif step == "end" and not left:
            at = log_end
            events.append((END_OF_PARTITION, log_end))
        elif step == "lose":
            events.append((LOST_CONNECTION, at))
    events += [("record", offset) for offset in log if offset >= at] + [(END_OF_PARTITION, log_end)]
    return log, start, end, events


@st.composite
def split(draw: st.DrawFn, events: Sequence[Event]) -> list[list[Event]]:
    """The events in calls; some calls bring nothing."""
    cuts = sorted(draw(st.lists(st.integers(0, len(events)), max_size=4)))
    return [list(events[low:high]) for low, high in zip([0, *cuts], [*cuts, len(events)], strict=True)]


def check_log_is_read(client: tuple[list[int], int, int, list[Event]], data: st.DataObject) -> None:
    log, start, end, events = client
    position = RangePosition(start, end)
    found: list[int] = []
    for call in data.draw(split(events)):
        assert position.is_finished <= (found == [offset for offset in log if start <= offset < end])
        taken = position.take([message(event) for event in call])
        assert [record.offset() for record in taken.records] == taken.offsets
        found += taken.offsets
    assert found == [offset for offset in log if start <= offset < end]
    assert position.is_finished
    assert position.redelivered == sum(kind == "record" for kind, _ in events) - len(
        {offset for kind, offset in events if kind == "record" and offset >= start}
    )


def check_fold(start: int, end: int, events: list[Event], data: st.DataObject) -> None:
    """Events in an order that no client has: the rule says what is taken, in whatever calls they come."""
    expected: list[int] = []
    at = start
    for kind, offset in events:
        if kind == "record" and at <= offset:
            expected += [offset] if offset < end else []
            at = offset + 1
        if kind == END_OF_PARTITION and at < offset:
            at = offset
    position = RangePosition(start, end)
    found: list[int] = []
    errors = 0
    for call in data.draw(split(events)):
        taken = position.take([message(event) for event in call])
        found += taken.offsets
        errors += len(taken.errors)
    assert (found, position.position, position.is_finished) == (expected, at, at >= end)
    assert errors == sum(kind == LOST_CONNECTION for kind, _ in events)


kinds = st.sampled_from(["record", "record", "record", END_OF_PARTITION, LOST_CONNECTION])
any_events = st.lists(st.tuples(kinds, st.integers(0, 12)), max_size=12)
in_short = settings(max_examples=300, deadline=None)
at_length = settings(max_examples=100_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@in_short
@given(clients(), st.data())
def test_each_record_of_a_range_is_taken_once_and_in_order(
    client: tuple[list[int], int, int, list[Event]], data: st.DataObject
) -> None:
    check_log_is_read(client, data)


@in_short
@given(st.integers(0, 6), st.integers(0, 12), any_events, st.data())
def test_rule_is_the_obvious_fold_whatever_comes(
    start: int, end: int, events: list[Event], data: st.DataObject
) -> None:
    check_fold(start, end, events, data)


@pytest.mark.weekly
@pytest.mark.timeout(7200)
@at_length
@given(clients(), st.data())
def test_each_record_is_taken_once_in_100_000_interleavings(
    client: tuple[list[int], int, int, list[Event]], data: st.DataObject
) -> None:
    check_log_is_read(client, data)


@pytest.mark.weekly
@pytest.mark.timeout(7200)
@at_length
@given(st.integers(0, 6), st.integers(0, 12), any_events, st.data())
def test_rule_is_the_obvious_fold_in_100_000_interleavings(
    start: int, end: int, events: list[Event], data: st.DataObject
) -> None:
    check_fold(start, end, events, data)
