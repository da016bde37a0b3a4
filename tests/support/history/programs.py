"""Programs and records for runs over a history."""

from __future__ import annotations

import random

from streams_py import Materialized, StreamsBuilder, Topology, serdes
from tests.support.history.runs import Given, numbered


def word_count() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    words = builder.stream("lines").flat_map_values(str.split)
    counts = words.group_by(lambda _, word: word).count(store="counts")
    counts.to_stream().to("totals", value=serdes.INT64)
    return builder.build()


def some_lines(count: int, partitions: int) -> list[Given]:
    chance = random.Random(7)
    return [
        Given("lines", at % partitions, at // partitions, 1_000 + at, None, b"the %d quick %d" % (at % 13, at % 7))
        for at in range(count)
        if chance.random() < 0.9
    ]


def merged() -> Topology:
    """Merges the records of two topics."""
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    both = builder.stream("a", value=serdes.INT32).map_values(str).merge(builder.stream("b"))
    both.group_by_key().reduce(lambda old, new: old + new, store="both").to_stream().to("out")
    return builder.build()


PASSED_OVER = [
    Given("a", 0, at, at_ms, b"k", value)
    for at, (at_ms, value) in enumerate([(10, b"\0\0\0\1"), (900, b"what"[:3]), (30, b"\0\0\0\2"), (20, b"\0\0\0\3")])
] + [Given("b", 0, at, at_ms, b"k", b"x") for at, at_ms in enumerate([15, 25, 40])]
"""The second record cannot be deserialized. Its timestamp is the largest of all."""


def versions() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    prices = builder.table("prices", materialized=Materialized("prices", history=1_000))
    builder.stream("orders").join(prices, lambda order, price: f"{order}@{price}").to("out")
    return builder.build()


VERSIONS = [
    Given("prices", 0, at, at_ms, key, value)
    for at, (at_ms, key, value) in enumerate(
        [(100, b"rum", b"old"), (50_000, b"tea", b"first"), (50_600, b"tea", b"second"), (50_300, b"tea", b"late"),
         (50_700, b"gin", b"gone"), (50_800, b"gin", None), (49_000, b"ale", b"too late")]
    )
]  # fmt: skip
"""The price of tea is ``second`` at the end and was ``late`` before. Rum has not changed within the store's history."""


def priced() -> Topology:
    """Orders join a global table of prices. The sums, behind a repartition, join it again."""
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    prices = builder.global_table("prices", value=serdes.INT32)
    orders = builder.stream("orders").left_join(prices, lambda item, price: f"{item}:{price}", on=lambda _, item: item)
    sums = orders.group_by(lambda _, item: item.split(":")[0]).reduce(lambda a, b: a + "," + b, store="sums")
    sums.to_stream().join(prices, lambda text, price: f"{text}={price}", on=lambda item, _: item).to("out")
    return builder.build()


PRICES = [
    Given("prices", 0, at, 5_000 + at, key, value)
    for at, (key, value) in enumerate(
        [(b"tea", b"\0\0\0\1"), (b"rum", b"\0\0\0\7"), (b"tea", b"\0\0\0\2"), (None, b"\0\0\0\3"), (b"rum", None)]
    )
]
"""Tea costs 2 at the end, and the price of rum is deleted. One row has no key."""

ORDERS = numbered([("orders", 1_000 + at, b"k%d" % (at % 5), item) for at, item in enumerate([b"tea", b"rum"] * 9)], 2)
