"""After a warm start, an application has the same state as one that has processed all records, byte for byte.

Half of its records are history, which Spark processes, and half arrive later. Only windows that had expired at the end
of the history are missing in its changelogs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Producer

from streams_py.state.windowed.layout import SESSION_LAYOUT, WINDOW_LAYOUT
from tests.support.spark.cluster import Cluster
from tests.support.spark.source import read
from tests.support.spark.warm_start import App, committed_text
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.weekly, pytest.mark.timeout(900)]

# A task writes to the partition that it reads, so outputs have the order of its records.
_PROGRAM: Final = """
from streams_py import SessionWindows, SlidingWindows, StreamsBuilder, Suppressed, TimeWindows, serdes


def said(name, table):
    return table.to_stream().map(lambda at, found: (at.key, f"{{name}} {{at.start}} {{at.end}} {{found}}"))


def topology(out):
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    grouped = builder.stream({lines!r}).group_by_key()
    hopping = grouped.windowed_by(TimeWindows.of(60_000, grace=30_000, advance=20_000)).count(store="hopping")
    sliding = grouped.windowed_by(SlidingWindows.of(10_000, grace=20_000)).reduce(
        lambda a, b: f"{{a}},{{b}}"[-20:], store="sliding"
    )
    sessions = grouped.windowed_by(SessionWindows.of(5_000, grace=30_000)).count(store="sessions")
    final = hopping.suppress(Suppressed.until_window_closes(), name="final")
    every = grouped.reduce(lambda a, b: f"{{a}},{{b}}"[-40:], store="texts").to_stream()
    for name, table in (("hop", hopping), ("slide", sliding), ("session", sessions), ("final", final)):
        every = every.merge(said(name, table))
    every.to(out)
    return builder.build()


def warm():
    return topology({warm!r})


def scratch():
    return topology({scratch!r})
"""
_KEYS: Final = [f"k{number}" for number in range(8)]
_DAY_MS: Final = 86_400_000
_KEPT: Final = {  # the time in a changelog's key, and how long after that the store keeps the window
    "hopping": (WINDOW_LAYOUT.time_of, 90_000),
    "sliding": (WINDOW_LAYOUT.time_of, 40_000),
    "sessions": (SESSION_LAYOUT.time_of, 35_000),
}


def records(base_ms: int) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """(key, timestamp) of the history, and of the later records.

    Both have records out of order, some too late for any window, some a month old.
    """
    chance = random.Random(8)

    def some(count: int, first_ms: int) -> Iterator[tuple[str, int]]:
        for at in range(count):
            yield chance.choice(_KEYS), first_ms + at * 2_000 - chance.choice((0, 0, 1_500, 20_000, 70_000))

    history = [(key, base_ms - 30 * _DAY_MS + at * 1_000) for at, key in enumerate(_KEYS * 2)]
    history += some(150, base_ms)
    # An operator forgets the time of its last record when it starts, live as well. These are the newest everywhere.
    later = [(key, base_ms + 310_000 + at) for at, key in enumerate(_KEYS)]
    later += [(_KEYS[0], base_ms - 30 * _DAY_MS), *some(90, base_ms + 312_000), (_KEYS[1], base_ms - 30 * _DAY_MS)]
    return history, later


@pytest.fixture
def apps(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> tuple[App, App]:
    """An application with a warm start, and one that runs from the first record, with the same input."""
    warm = App(cluster, tmp_path)
    scratch = copy(warm)
    scratch.id, scratch.out, scratch.state_dir = f"{warm.id}-scratch", cluster.topic(2), tmp_path / "state from scratch"
    file = tmp_path / "both.py"
    file.write_text(_PROGRAM.format(lines=warm.lines, warm=warm.out, scratch=scratch.out))
    warm.topology, scratch.topology = f"{file}:warm", f"{file}:scratch"
    return warm, scratch


def produce(app: App, given: list[tuple[str, int]]) -> None:
    producer = Producer({"bootstrap.servers": app.cluster.bootstrap, "partitioner": "murmur2"})
    for at, (key, time_ms) in enumerate(given):
        producer.produce(app.lines, f"v{at}", key, timestamp=time_ms)
    assert producer.flush(30) == 0


def rows(app: App, topic: str) -> list[dict[str, Any]]:
    return read({"kafka.bootstrap.servers": app.cluster.bootstrap, "topics": topic})


def live_until(app: App, count: int) -> None:
    """Run it until ``count`` records and their outputs are committed."""
    with app.live(statestore_cache_max_bytes=0):
        until(lambda: sum(offset for offset, _ in committed_text(app).values()) == count, f"{count} records committed")


def outputs(app: App) -> dict[int, list[tuple[Any, ...]]]:
    """By partition, in order."""
    found: dict[int, list[tuple[Any, ...]]] = {0: [], 1: []}
    for row in rows(app, app.out):
        found[row["partition"]].append((row["key"], row["value"], row["timestamp_ms"], row["headers"]))
    return found


def changelog(app: App, store: str) -> dict[tuple[int, bytes], tuple[Any, ...]]:
    """The last record of each key. Records of suppress have the time of writing as their timestamp."""
    found: dict[tuple[int, bytes], tuple[Any, ...]] = {}
    for row in rows(app, f"{app.id}-{store}-changelog"):
        at = (row["partition"], row["key"])
        found.pop(at, None)
        if row["value"] is not None:
            found[at] = (row["value"], row["headers"], None if store == "final-store" else row["timestamp_ms"])
    return found


def test_application_that_starts_warm_becomes_the_one_that_was_always_there(apps: tuple[App, App]) -> None:
    warm, scratch = apps
    history, later = records((int(time.time()) - 3_600) * 1_000)
    produce(warm, history)
    ended_ms: dict[int, int] = {}
    for row in rows(warm, warm.lines):
        ended_ms[row["partition"]] = max(row["timestamp_ms"], ended_ms.get(row["partition"], 0))
    assert warm.plan().exit_code == 0
    warm.ok("run", "--sinks", "--commit")
    produce(warm, later)
    for app in apps:
        live_until(app, len(history) + len(later))
    assert outputs(warm) == outputs(scratch)
    for store in ("texts", "final-store", *_KEPT):
        here, there = changelog(warm, store), changelog(scratch, store)
        assert here, store
        assert here == {at: entry for at, entry in there.items() if at in here}, store
        gone = there.keys() - here.keys()
        if store not in _KEPT:
            assert not gone, store
            continue
        time_of, kept_ms = _KEPT[store]
        assert all(time_of(key) + kept_ms <= ended_ms[partition] for partition, key in gone), store
        assert any(time_of(key) < ended_ms[partition] - _DAY_MS for partition, key in gone), store
