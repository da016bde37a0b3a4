"""Foreign-key joins of tables: results, names, bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from streams_py.errors import SerializationError
from streams_py.serdes import STRING, Serde
from streams_py.testing.driver import InputTopic, TopologyTestDriver
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.formats.foreign_keys import (
    Instruction,
    Response,
    ResponseSerde,
    Subscription,
    SubscriptionSerde,
    murmur3_128,
)
from streams_py.topology.topology import Topology
from tests.support.topology.driver_parts import written_by


def by_first_letter(key: str, value: str) -> str | None:
    return value[:1] if value else None


def orders_and_customers(kind: str, **options: Any) -> Topology:
    builder = StreamsBuilder(key=STRING, value=STRING)
    orders, customers = builder.table("orders"), builder.table("customers")
    joined = getattr(orders, kind)(customers, lambda o, c: f"{o}/{c}", on=by_first_letter, **options)
    joined.to_stream().to("out")
    return builder.build()


class Running:
    """A running join. ``out`` returns the results since the last call."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.orders: InputTopic[str, str] = driver.input_topic("orders", key=STRING, value=STRING)
        self.customers: InputTopic[str, str] = driver.input_topic("customers", key=STRING, value=STRING)
        self._out = driver.output_topic("out", key=STRING, value=STRING)

    def out(self) -> list[tuple[str | None, str | None]]:
        return sorted(self._out.read_pairs(), key=str)


@contextmanager
def running(kind: str, **options: Any) -> Iterator[Running]:
    with TopologyTestDriver(orders_and_customers(kind, **options), partitions=3) as driver:
        yield Running(driver)


def test_changes_of_both_sides_reach_all_rows_that_belong_together() -> None:
    with running("join") as join:
        join.orders.send_all([("o1", "a1"), ("o2", "a2"), ("o3", "b1")])
        assert join.out() == []
        join.customers.send("a", "Anna")
        assert join.out() == [("o1", "a1/Anna"), ("o2", "a2/Anna")]
        join.orders.send("o1", "a9")
        assert join.out() == [("o1", "a9/Anna")]
        join.customers.send("a", None)
        assert join.out() == [("o1", None), ("o2", None)]


def test_row_follows_its_foreign_key() -> None:
    with running("join") as join:
        join.customers.send_all([("a", "Anna"), ("b", "Bert")])
        join.orders.send("o1", "a1")
        join.orders.send("o1", "b1")
        join.customers.send("a", "Alice")
        assert join.out() == [("o1", "a1/Anna"), ("o1", "b1/Bert")]
        join.orders.send("o1", "c1")
        assert join.out() == [("o1", None)]
        join.orders.send("o1", "b2")
        join.orders.send("o1", None)
        assert join.out() == [("o1", "b2/Bert"), ("o1", None)]


def test_row_without_a_foreign_key_leaves_an_inner_join() -> None:
    with running("join") as join:
        join.customers.send("a", "Anna")
        join.orders.send("o1", "a1")
        join.orders.send("o1", "")
        join.customers.send("a", "Alice")
        assert join.out() == [("o1", "a1/Anna"), ("o1", None)]


def test_left_join_keeps_rows_without_a_partner() -> None:
    with running("left_join", store="joined") as join:
        join.orders.send_all([("o1", "a1"), ("o2", "")])
        assert join.out() == [("o1", "a1/None"), ("o2", "/None")]
        join.customers.send("a", "Anna")
        join.customers.send("a", None)
        assert join.out() == [("o1", "a1/Anna"), ("o1", "a1/None")]
        join.orders.send("o2", None)
        assert join.out() == [("o2", None)]


def test_answer_that_was_asked_for_without_a_left_row_is_joined_as_in_kafka_streams() -> None:
    with TopologyTestDriver(orders_and_customers("join")) as driver:
        topic = "test-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic"
        responses = driver.input_topic(topic, key=STRING, value=ResponseSerde(STRING))
        for response in (Response(None, "Ann"), Response(HASH, "late"), Response(None, None)):
            responses.send("o1", response)
        assert driver.output_topic("out", key=STRING, value=STRING).read_pairs() == [("o1", "None/Ann"), ("o1", None)]


def test_names_and_groups_are_those_of_kafka_streams() -> None:
    metadata = orders_and_customers("join").metadata("app")
    registration = "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic"
    response = "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic"
    assert metadata.copartition_groups == (frozenset({registration, "customers"}), frozenset({response, "orders"}))
    left, right = metadata.subtopologies.values()
    assert (set(left.repartition_sources), set(right.repartition_sources)) == ({response}, {registration})
    assert set(right.changelogs) == {
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-0000000010-changelog",
        "app-customers-STATE-STORE-0000000003-changelog",
    }
    named = [node.name for node in orders_and_customers("left_join", name="fk", store="res").nodes]
    assert {name for name in named if name.startswith("fk-")} == {
        "fk-foreign-join-subscription",
        "fk-result",
        "fk-subscription-join-foreign",
        "fk-subscription-receive",
        "fk-subscription-registration-processor",
        "fk-subscription-registration-sink",
        "fk-subscription-registration-source",
        "fk-subscription-response-resolver",
        "fk-subscription-response-sink",
        "fk-subscription-response-source",
    }


# -- bytes, recorded from Apache Kafka Streams 4.3.1 ----------------------------------------------------------

HASH = murmur3_128(b"a1")
A1 = "353e0e4f3af5ce6b8fb80c06f3fdc584"
SUBSCRIPTIONS = SubscriptionSerde(STRING, "t", "s-changelog")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "9d2764a018e329428c3cf3b035938518"),
        (b"a", "3361634e7e0f5188e9c7dda24eae326b"),
        (b"0123456789abcdef", "1a6e941ec6a76967d7d82808f505d6b1"),
        (b"0123456789abcdefXYZ", "bb31fe14c8ec1d0e325aa157c895f535"),
        ("éÿ".encode(), "89391c48fa1137104e997471d83f26bc"),
    ],
)
def test_hash_is_that_of_kafka_streams(data: bytes, expected: str) -> None:
    assert murmur3_128(data).hex() == expected


@pytest.mark.parametrize(
    ("subscription", "data"),
    [
        (Subscription(HASH, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE, "pk", 2), f"0103{A1}706b00000002"),
        (Subscription(None, Instruction.DELETE_KEY_AND_PROPAGATE, "pk", 0), "8101706b00000000"),
        (Subscription(HASH, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE, "pk", None, 0), f"0002{A1}706b"),
    ],
)
def test_subscription_has_the_bytes_of_kafka_streams(subscription: Subscription, data: str) -> None:
    assert SUBSCRIPTIONS.serializer("app-t", is_key=False)(subscription).hex() == data
    assert SUBSCRIPTIONS.deserializer("app-t", is_key=False)(bytes.fromhex(data)) == subscription


@pytest.mark.parametrize(("response", "data"), [(Response(HASH, "fv"), f"00{A1}6676"), (Response(None, None), "80")])
def test_response_has_the_bytes_of_kafka_streams(response: Response, data: str) -> None:
    serde = ResponseSerde(STRING)
    assert serde.serializer("t", is_key=False)(response).hex() == data
    assert serde.deserializer("t", is_key=False)(bytes.fromhex(data)) == response


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x81\x04pk\0\0\0\0", b"\x85\x01", b"\x81\x01\0"])
def test_other_bytes_are_no_subscription(data: bytes) -> None:
    with pytest.raises(SerializationError):
        SUBSCRIPTIONS.deserializer("app-t", is_key=False)(data)


@pytest.mark.parametrize(("config", "version"), [({}, 1), ({"upgrade.from": "3.3"}, 0)])
def test_version_of_subscriptions_is_one_that_the_release_of_other_members_reads(
    config: dict[str, str], version: int
) -> None:
    with TopologyTestDriver(orders_and_customers("join", name="fk"), config) as driver:
        driver.input_topic("orders", key=STRING, value=STRING).send("o1", "a1")
        written = written_by(driver)
    topics = ("fk-subscription-registration-topic", "fk-subscription-store-changelog")
    for topic in topics:
        (record,) = [record for at, records in written.items() if at.topic.endswith(topic) for record in records]
        assert (record.value() or b"")[0] == version


# -- rows with bytes of an older release ----------------------------------------------------------------------


class Growing(Serde[Any]):
    """Rows as JSON. A new release adds a field with a default."""

    name = "growing"

    def __init__(self) -> None:
        self.has_new_field = False

    def serializer(self, topic: str, *, is_key: bool) -> Any:
        return lambda row: json.dumps({**row, **({"new": None} if self.has_new_field else {})}).encode()

    def deserializer(self, topic: str, *, is_key: bool) -> Any:
        return json.loads


LEFT_TABLES = {
    "source table": lambda builder, serde: builder.table("L", value=serde, store="left"),
    "source table in memory": lambda builder, serde: builder.table(
        "L", materialized=Materialized("left", value=serde, persistent=False), value=serde
    ),
    "versioned table": lambda builder, serde: builder.table(
        "L", materialized=Materialized("left", value=serde, history=1000), value=serde
    ),
    "filtered table": lambda builder, serde: builder.table("L", value=serde, store="left").filter(lambda k, v: True),
    "aggregate": lambda builder, serde: (
        builder.stream("L", value=serde)
        .group_by_key()
        .aggregate(dict, lambda key, row, _: row, value=serde, store="left")
    ),
    "stored filter": lambda builder, serde: builder.table("L", value=serde, store="base").filter(
        lambda k, v: True, materialized=Materialized("left", value=serde)
    ),
}


@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize("left", LEFT_TABLES.values(), ids=LEFT_TABLES)
@pytest.mark.parametrize("kind", ["join", "left_join"])
def test_row_that_was_written_by_an_older_release_is_joined(kind: str, left: Any, cache: int) -> None:
    serde = Growing()
    builder = StreamsBuilder(key=STRING)
    right = builder.table("R", value=STRING, store="right")
    joined = getattr(left(builder, serde), kind)(right, lambda row, value: value, on=lambda key, row: row.get("fk"))
    joined.to_stream().to("out", value=STRING)
    with TopologyTestDriver(builder.build(), {"statestore.cache.max.bytes": cache}) as driver:
        rows = driver.input_topic("L", key=STRING, value=serde)
        values = driver.input_topic("R", key=STRING, value=STRING)
        out = driver.output_topic("out", key=STRING, value=STRING)
        values.send("f", "1", timestamp_ms=1)
        rows.send("k", {"fk": "f"}, timestamp_ms=2)
        assert out.read_pairs()[-1] == ("k", "1")
        serde.has_new_field = True
        values.send("f", "2", timestamp_ms=3)
        assert out.read_pairs() == [("k", "2")]
        rows.send("k", {"fk": "f"}, timestamp_ms=4)
        out.read_pairs()
        values.send("f", "3", timestamp_ms=5)
        assert out.read_pairs() == [("k", "3")]
