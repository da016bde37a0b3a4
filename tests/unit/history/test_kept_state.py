"""The state of every store is available at the end of a history, with or without a changelog."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streams_py import Materialized, Processor, StreamsBuilder, TimeWindows, Topology, Windowed, serdes
from streams_py.state.custom.lru import lru_map
from streams_py.topology.declare.stores import key_value_store, timestamped_key_value_store
from streams_py.topology.declare.versioned_stores import versioned_key_value_store
from streams_py.topology.declare.window_stores import session_store, window_store
from tests.support.history.kept_state import TEXT, own, prices

pytest.importorskip("pyarrow")

from streams_py.history.kept_state import stores_without_state
from tests.support.history.programs import VERSIONS, versions
from tests.support.history.runs import Given, numbered, run_locally

ROWS = numbered(
    [
        ("prices", at_ms, key, value)
        for at_ms, key, value in [
            (100, b"tea", b"1"),
            (90, b"tea", b"2"),
            (200, b"rum", b"7"),
            (300, b"gin", b"4"),
            (400, b"rum", None),
        ]
    ],
    2,
)


@pytest.mark.parametrize("optimization", ["all", "none"])
def test_table_leaves_the_same_state_whatever_its_changelog_is(optimization: str) -> None:
    run = run_locally(prices, ROWS, 2, {"topology.optimization": optimization})
    assert run.plan.changelogs == ({} if optimization == "all" else {"test-table-changelog": 2})
    found = {key: kept for (_, key), kept in run.state[run.plan.stores["table"]].items()}
    assert found == {b"tea": (90, b"2", None), b"gin": (300, b"4", None)}


def test_topology_that_is_named_is_built_with_the_optimizations_that_the_settings_list(tmp_path: Path) -> None:
    text = "builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)\nbuilder.table('prices', store='table')\n"
    (tmp_path / "app.py").write_text(f"from streams_py import StreamsBuilder, serdes\n{text}")
    listed = {"topology.optimization": "merge.repartition.topics,reuse.ktable.source.topics"}
    for config, changelogs in (({}, {"test-table-changelog": 2}), (listed, {})):
        assert run_locally(f"{tmp_path}/app.py:builder", ROWS, 2, config).plan.changelogs == changelogs


def test_versions_of_a_table_whose_topic_is_its_changelog_are_all_there() -> None:
    def builder() -> StreamsBuilder:
        made = StreamsBuilder(**TEXT)
        made.table("prices", materialized=Materialized("prices", history=1_000)).to_stream().to("out")
        return made

    optimised = run_locally(builder, VERSIONS, 1, {"topology.optimization": "all"})
    assert not optimised.plan.changelogs
    assert optimised.folded("test-prices-changelog") == run_locally(versions, VERSIONS).folded("test-prices-changelog")


KEPT = ["plain", "fading", "windows", "sessions", "old"]


class Keeps(Processor[str, str, str, str]):
    """Puts a record into stores of every kind."""

    batch_safe = True

    def init(self, context: Any) -> None:
        super().init(context)
        self.stores = {
            name: context.get_state_store(name) for name in ("plain", "fading", "windows", "sessions", "old")
        }

    def process(self, record: Any) -> None:
        key, value, at = record.key, record.value, record.timestamp
        self.stores["plain"].put(key, None if value == "v3" else value)
        self.stores["fading"].put(key, value)
        self.stores["windows"].put(key, value, at)
        self.stores["sessions"].put(Windowed(key, at - 5, at), value)
        self.stores["old"].put(key, value, at)


def everything(logging: bool) -> Topology:
    builder = StreamsBuilder(**TEXT)
    for store in (
        key_value_store("plain", **TEXT),
        key_value_store("fading", ttl=300, **TEXT),
        window_store("windows", retention=200, size=10, **TEXT),
        session_store("sessions", retention=200, **TEXT),
        versioned_key_value_store("old", history=500, **TEXT),
    ):
        builder.add_state_store(dataclasses.replace(store, logging=logging))
    orders = builder.stream("orders")
    orders.process(Keeps, stores=KEPT)
    grouped = orders.group_by_key()
    grouped.count(materialized=Materialized("counts", value=serdes.INT64, logging=logging))
    windows = TimeWindows.of(50)
    grouped.windowed_by(windows).count(materialized=Materialized("per-window", value=serdes.INT64, logging=logging))
    return builder.build()


def some_orders() -> list[Given]:
    chance = random.Random(5)
    at = sorted(chance.randrange(1_000) for _ in range(150))
    return numbered([("orders", when, b"k%d" % chance.randrange(9), b"v%d" % (when % 7)) for when in at], 2)


def test_store_without_a_changelog_leaves_the_state_that_it_has_with_one() -> None:
    kept, logged = (run_locally(partial(everything, logging), some_orders(), 2) for logging in (False, True))
    assert not kept.plan.changelogs
    assert set(logged.plan.changelogs) == set(logged.plan.stores.values()) == set(kept.plan.stores.values())
    assert len(logged.state) == 7
    for changelog in logged.plan.changelogs:
        assert kept.folded(changelog) == logged.folded(changelog), changelog
        assert kept.folded(changelog), changelog


@pytest.mark.parametrize("declare", [key_value_store, timestamped_key_value_store])
def test_store_that_drops_what_it_likes_leaves_what_it_has(declare: Callable[..., Any]) -> None:
    class Last(Processor[str, str, str, str]):
        batch_safe = True

        def process(self, record: Any) -> None:
            store = self.context.get_state_store("last")
            put = getattr(store, "put_value", None)
            if put is None:
                store.put(record.key, record.value)
            else:
                put(record.key, record.value, record.timestamp)

    def topology() -> Topology:
        builder = StreamsBuilder(**TEXT)
        builder.add_state_store(declare("last", supplier=lru_map(2), logging=False, **TEXT))
        builder.stream("orders").process(Last, stores=["last"])
        return builder.build()

    orders = numbered([("orders", at, b"k%d" % at, b"v%d" % at) for at in range(5)])
    timed = declare is timestamped_key_value_store
    left = {(0, b"k%d" % at): (at if timed else -1, b"v%d" % at, None) for at in (3, 4)}
    assert run_locally(topology, orders).state["test-last-changelog"] == left


def copied() -> Topology:
    def copies(record: Any, context: Any) -> None:
        context.get_state_store("copy").put(record.key, record.value)

    copies.batch_safe = True  # type: ignore[attr-defined]
    topology = Topology()
    store = key_value_store("copy", logging=False, **TEXT)
    return topology.add_read_only_state_store(store, "read", "prices", "write", copies, **TEXT)


def test_store_that_only_copies_a_topic_leaves_the_last_value_of_each_key() -> None:
    run = run_locally(copied, ROWS, 2)
    assert {key: kept for (_, key), kept in run.state["test-copy-changelog"].items()} == {
        b"tea": (-1, b"2", None),
        b"gin": (-1, b"4", None),
    }


def test_store_whose_state_cannot_be_had_is_named_with_a_remedy() -> None:
    found = stores_without_state(own(False))
    assert set(found) == {"own", "rates"}
    assert "store own is a custom store without a changelog" in found["own"]
    assert "with logging" in found["own"]
    assert "global store rates is filled from topic rates" in found["rates"]
    assert set(stores_without_state(own(True))) == {"rates"}


def test_store_of_the_users_own_may_have_files_and_leaves_what_it_logs() -> None:
    orders = numbered([("orders", at, b"k%d" % (at % 2), b"") for at in range(5)])
    run = run_locally(partial(own, True), orders)
    assert run.state["test-own-changelog"] == {(0, b"k1"): (3, b"4", None), (0, b"k0"): (4, b"5", None)}
    kept = run_locally(partial(own, False), orders)
    assert (kept.state, kept.plan.stores) == ({}, {})
