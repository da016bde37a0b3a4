"""Telemetry can process the history that its benchmark generates."""

from __future__ import annotations

from itertools import islice

from benchmarks.spark_telemetry import _GROUPS, _history, _merged  # a program has no public names
from streams_py.events.codec import decode_event
from streams_py.events.model import Event
from streams_py.telemetry.fold import GroupFold
from streams_py.telemetry.schemas import TABLES


def test_every_table_gets_rows() -> None:
    fold = GroupFold()
    filled = set()
    for append_ms, value in islice(_history("group"), 3_000):
        filled |= {made.table for made in fold.feed(value, append_ms, append_ms)}
    filled |= {made.table for made in fold.finish()}
    assert TABLES.keys() - filled <= {"warmup", "offender"}


def test_groups_take_turns_in_order_of_time() -> None:
    records = list(islice(_merged(1_000), 1_000))
    times = [append_ms for append_ms, _ in records]
    assert times == sorted(times)
    groups = {event.envelope.group for _, value in records if isinstance(event := decode_event(value), Event)}
    assert len(groups) == _GROUPS
