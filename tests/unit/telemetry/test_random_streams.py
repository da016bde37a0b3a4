"""Random events of random instances, in several partitions, some repeated, some from a broker whose clock is behind:
looks anywhere give the rows of one fold."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from streams_protocol import LATEST_OFFSET
from streams_py.events.codec import decode_event
from streams_py.events.model import Event
from streams_py.ports import MemberSubscription
from streams_py.telemetry.fold import GroupFold, Output
from streams_py.telemetry.live import Live
from streams_py.telemetry.order import Record, in_order
from tests.support.events.kit import Recorder
from tests.support.leader.kit import member
from tests.support.telemetry.history import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, History, Stored
from tests.support.telemetry.live import Tables, records_of

EVENTS = (
    "assigned", "running", "suspended", "closed", "lost", "restore_started", "restored", "warm", "first_record",
    "last_record",
)  # fmt: skip
PAUSES_MS = (0, 0, 10, 1_000, MINUTE_MS, 11 * MINUTE_MS, 2 * HOUR_MS, DAY_MS)


def group(rng: random.Random) -> dict[str, MemberSubscription]:
    left = ["in-0", "in-1", "in-2", "in-3"]
    rng.shuffle(left)
    found = {}
    for number in rng.sample([1, 2, 3, 4], rng.randint(1, 3)):
        owned = [left.pop() for _ in range(rng.randint(0, len(left)))]
        sums = {f"0_{n}": rng.choice([0, 10, 990, -3]) for n in range(4) if rng.random() < 0.4}
        sums |= {f"0_{name[-1]}": LATEST_OFFSET for name in owned}
        found[f"m{number}"] = member(number, owned=" ".join(sorted(owned)), sums=sums)
    return found


def lived(rng: random.Random) -> list[Stored]:
    history = History(Recorder(acceptable_recovery_lag=500, num_standby_replicas=rng.randint(0, 1)))
    history.now_ms = START_MS + DAY_MS - rng.randint(0, 2 * HOUR_MS)
    for _ in range(rng.randint(3, 40)):
        process, task, event = rng.randint(1, 4), f"0_{rng.randint(0, 3)}", rng.choice(EVENTS)
        what = rng.random()
        if what < 0.25:
            history.rebalance(group(rng), leader=process)
            history.recorder.generation += rng.choice([0, 0, 1])  # some of Java leaders
        elif what < 0.35:
            history.sample(process, input_lag=[rng.randint(0, 99)], busy_us=[rng.randint(0, 99)])
        elif event == "last_record":
            history.last_record(process, task, ago_ms=rng.randint(0, 3_000))
        else:
            history.task(process, task, event)
        history.later(rng.choice(PAUSES_MS))
    return history.records


def in_partitions(rng: random.Random, stored: Sequence[Stored]) -> list[Record]:
    """Each key to one partition; the broker of one of them may be ten seconds behind."""
    count, behind_ms = rng.randint(1, 3), rng.choice([0, 10_000])
    partitions: dict[str, list[Stored]] = {}
    order: list[tuple[int, int]] = []
    keys: dict[str, int] = {}
    for record in stored:
        event = decode_event(record.value)
        assert isinstance(event, Event)
        key = str(getattr(event.body, "rebalance_id", None) or getattr(event.body, "task", event.envelope.process))
        partition = keys.setdefault(key, rng.randrange(count))
        for _ in range(1 + (rng.random() < 0.1)):
            own = partitions.setdefault(str(partition), [])
            late = behind_ms if partition == 1 or rng.random() < 0.1 else 0
            order.append((partition, len(own)))
            own.append(Stored(record.append_ms - late, len(own), record.value))
    placed = {int(name): records_of(own, int(name)) for name, own in partitions.items()}
    return [placed[partition][offset] for partition, offset in order]


def folded(records: Sequence[Record]) -> tuple[list[Output], Live, list[Output]]:
    """Rows that stay, where the fold stands, rows that hold until the next event."""
    fold, closed, last = GroupFold(), [], None
    for last, record in in_order(records)[0]:
        closed += fold.feed(record.value, last.place_ms, record.append_ms)
    live = Live(0, {}, fold.snapshot(), last)
    return closed, live, list(fold.finish())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
@example(109156)
def test_looks_anywhere_give_the_rows_of_one_fold_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    records = in_partitions(rng, lived(rng))
    tables = Tables()
    end = 0
    while end < len(records):
        start, end = end, end + rng.choice([1, 2, 5, 20])
        if not tables.look(records[start:end]):  # the day is to be built again, as Spark does it
            tables.closed, tables.live, tables.open_rows = folded(records[:end])
        closed, _, open_rows = folded(records[:end])
        assert tables.rows() == sorted(map(repr, [*closed, *open_rows]))
