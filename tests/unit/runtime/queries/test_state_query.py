"""Typed queries (KIP-796): partitions that answer, their state and position, and answers by kind of store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from streams_py import (
    FailureReason,
    InvalidStateStoreError,
    KeyQuery,
    Materialized,
    MultiVersionedKeyQuery,
    Query,
    RangeQuery,
    SessionWindows,
    StateStoreMigratedError,
    StreamsBuilder,
    StreamsNotStartedError,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    TimeWindows,
    UnknownStateStoreError,
    ValueAndTimestamp,
    VersionedKeyQuery,
    VersionedRecord,
    Windowed,
    WindowKeyQuery,
    WindowRangeQuery,
    custom_store,
    key_value_store,
)
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.queries.state_query import query_store
from streams_py.runtime.thread.states import State
from streams_py.serdes import INT64, STRING
from streams_py.state.reading.typed_queries import QueryResult, StateQueryResult, answer_of, is_up_to
from streams_py.testing import TopologyTestDriver
from tests.support.runtime.world import Steps, World, counting, task, tp
from tests.support.state.custom_stores import TopStore

A, B = task("0_0"), task("0_1")
BOTH = {A: [tp("in-0")], B: [tp("in-1")]}


class Client:
    """A client with one stepped thread."""

    def __init__(self, world: World, folder: Path) -> None:
        self.steps = Steps(world, counting(), folder)
        self.state = State.RUNNING

    def ask(self, query: Query[Any], store: str = "counts", **options: Any) -> StateQueryResult[Any]:
        choice: dict[str, Any] = {"partitions": None, "bound": None, "require_active": False, **options}
        choice["is_global"] = False
        names, threads = sorted(self.steps.instance.hosts.stores), [self.steps.thread]
        return query_store(store, query, lambda: self.state, threads, names, dict, **choice)


@pytest.fixture
def world() -> World:
    made = World(**{"in": 2, "out": 2, "app-counts-changelog": 2})
    for partition in (0, 1):
        count = (10 + partition).to_bytes(8, "big")
        made.log.produce("app-counts-changelog", count, b"old-%d" % partition, partition, None, 1, None)
        made.committed[tp(f"in-{partition}")] = OffsetAndMetadata(0)  # otherwise the stores would be suspect
    return made


@pytest.fixture
def client(world: World, tmp_path: Path) -> Iterator[Client]:
    client = Client(world, tmp_path)
    yield client
    client.steps.close()


def test_each_partition_answers(client: Client) -> None:
    client.steps.run(BOTH)
    result = client.ask(KeyQuery("old-1"))
    assert {partition: found.value for partition, found in result.partitions.items()} == {0: None, 1: 11}
    assert result.only is result.partitions[1]
    assert client.ask(KeyQuery("none")).only is None
    everything = client.ask(RangeQuery())
    assert [list(found.value) for found in everything.partitions.values()] == [[("old-0", 10)], [("old-1", 11)]]
    with pytest.raises(ValueError, match="2 partitions have answers"):
        client.ask(RangeQuery()).only  # noqa: B018


def test_partitions_that_are_asked_for_all_have_a_result(client: Client) -> None:
    client.steps.run({A: [tp("in-0")]})
    result = client.ask(KeyQuery("old-0"), partitions=[0, 1, -1])
    reasons = {partition: found.failure for partition, found in result.partitions.items()}
    assert reasons == {-1: FailureReason.DOES_NOT_EXIST, 0: None, 1: FailureReason.NOT_PRESENT}
    assert list(client.ask(KeyQuery("old-0")).partitions) == [0]
    with pytest.raises(InvalidStateStoreError, match="no answer: not present: partition 1 of store 'counts'"):
        result.partitions[1].value  # noqa: B018


def test_standby_answers_unless_an_active_is_required(client: Client) -> None:
    client.steps.run({A: [tp("in-0")]}, standby={B: [tp("in-1")]})
    assert client.ask(KeyQuery("old-1")).partitions[1].value == 11
    required = client.ask(KeyQuery("old-1"), require_active=True)
    assert required.partitions[0].is_success
    assert required.partitions[1].failure is FailureReason.NOT_ACTIVE
    assert "0_1 with store 'counts' is a standby" in required.partitions[1].message


def test_task_that_is_being_restored_is_not_present(client: Client) -> None:
    client.steps.run({A: [tp("in-0")]})
    client.steps.membership.round(BOTH)
    client.steps.loop.iterate()
    assert client.steps.tasks == {"0_0": "RUNNING", "0_1": "RESTORING"}
    found = client.ask(KeyQuery("old-1"), partitions=[1]).partitions[1]
    assert found.failure is FailureReason.NOT_PRESENT
    found = client.ask(KeyQuery("old-1"), require_active=True).partitions[1]
    assert (found.failure, "being restored" in found.message) == (FailureReason.NOT_ACTIVE, True)


def test_task_that_was_revoked_is_not_said_to_be_restored(client: Client) -> None:
    client.steps.run(BOTH)
    client.steps.membership.revoke([tp("in-1")])
    client.steps.loop.iterate()
    assert client.steps.tasks == {"0_0": "RUNNING", "0_1": "SUSPENDED"}
    found = client.ask(KeyQuery("old-1"), require_active=True).partitions[1]
    assert found.failure is FailureReason.NOT_ACTIVE
    assert "0_1 with store 'counts' is not running (SUSPENDED) on this instance" in found.message


def test_position_is_that_of_the_last_record_processed(world: World, client: Client) -> None:
    client.steps.run(BOTH)
    assert client.ask(KeyQuery("x")).position == {}
    world.write("in", b"x", b"y", key=b"new")
    client.steps.turn()
    result = client.ask(KeyQuery("new"))
    assert result.only is not None
    assert result.only.value == 2
    assert result.position == {"in": {0: 1}}
    assert client.ask(KeyQuery("new"), bound=result.position).only is not None
    ahead = client.ask(KeyQuery("new"), bound={"in": {0: 2}})
    assert ahead.partitions[0].failure is FailureReason.NOT_UP_TO_BOUND
    assert ahead.partitions[0].position == {"in": {0: 1}}
    assert ahead.partitions[1].is_success  # it was not mentioned
    assert client.ask(KeyQuery("new"), bound={"in": {0: 2}}, require_active=True).only is not None


def test_position_is_known_before_anything_is_committed_and_of_partitions_that_do_not_answer(
    world: World, client: Client
) -> None:
    client.steps.run(BOTH)
    world.write("in", b"x", b"y", key=b"new")
    client.steps.turn()
    assert world.committed[tp("in-0")].offset == 0
    assert client.ask(KeyQuery("new"), bound={"in": {0: 9}}).position == {"in": {0: 1}}
    assert client.ask(KeyQuery("new"), partitions=[7]).position == {}


def test_position_is_known_after_a_restart(world: World, client: Client) -> None:
    client.steps.run(BOTH)
    world.write("in", b"x", b"y", key=b"new")
    client.steps.turn()
    world.clock.advance(2000)
    client.steps.turn()
    assert world.committed
    client.steps.run({B: [tp("in-1")]})
    client.steps.run(BOTH)
    assert client.ask(KeyQuery("new"), bound={"in": {0: 1}}).partitions[0].is_success
    assert client.ask(KeyQuery("new"), bound={"in": {0: 2}}).partitions[0].failure is FailureReason.NOT_UP_TO_BOUND


def test_standby_is_up_to_no_bound(client: Client) -> None:
    client.steps.run({}, standby={B: [tp("in-1")]})
    assert client.ask(KeyQuery("x"), bound={"in": {1: 0}}).partitions[1].failure is FailureReason.NOT_UP_TO_BOUND


def test_bound_speaks_of_its_own_partitions_only() -> None:
    bound = {"a": {0: 5}, "b": {1: 7}}
    assert is_up_to({"a": {0: 5}}, bound, 0)
    assert not is_up_to({"a": {0: 4}}, bound, 0)
    assert not is_up_to({"a": {0: 9}}, bound, 1)
    assert is_up_to({}, bound, 2)
    assert is_up_to({}, {}, 0)


def test_client_has_to_run_and_to_know_the_store(client: Client) -> None:
    with pytest.raises(UnknownStateStoreError, match="'cuonts'; it has: counts"):
        client.ask(KeyQuery("x"), "cuonts")
    client.state = State.CREATED
    with pytest.raises(StreamsNotStartedError):
        client.ask(KeyQuery("x"))
    client.state = State.PENDING_SHUTDOWN
    with pytest.raises(InvalidStateStoreError, match=r"(?i)shutdown"):
        client.ask(KeyQuery("x"))


def test_store_that_raises_is_told_with_its_message(client: Client) -> None:
    client.steps.run({A: [tp("in-0")]})
    store: Any = client.steps.parts.table.shown[0].stores.store("counts")

    def broken(key: str) -> None:
        raise OSError("disk is gone")

    store.peek = broken
    found = client.ask(KeyQuery("x")).partitions[0]
    assert (found.failure, found.message) == (FailureReason.STORE_EXCEPTION, "OSError: disk is gone")
    del store.peek


def test_partition_that_leaves_meanwhile_is_not_present(client: Client) -> None:
    client.steps.run({A: [tp("in-0")]})
    store: Any = client.steps.parts.table.shown[0].stores.store("counts")

    def going(key: str) -> None:
        client.steps.membership.lose()

    store.peek = going
    assert client.ask(KeyQuery("x"), partitions=[0]).partitions[0].failure is FailureReason.NOT_PRESENT


def test_store_of_a_task_that_starts_over_meanwhile_is_not_read_half_restored(client: Client) -> None:
    client.steps.run({A: [tp("in-0")]})
    running: Any = client.steps.parts.table.shown[0]

    def start_over() -> dict[Any, int]:
        client.steps.parts.table.revive({A: frozenset()})
        client.steps.loop.iterate()
        assert client.steps.tasks == {"0_0": "RESTORING"}
        assert running.stores.is_open
        return {}

    running.contained_positions = start_over
    found = client.ask(KeyQuery("old-0"), partitions=[0]).partitions[0]
    assert found.failure is FailureReason.NOT_PRESENT


# -- what each kind of store answers ---------------------------------------------------------------------------


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    builder = StreamsBuilder(key=STRING, value=STRING)
    grouped = builder.stream("in").group_by_key()
    grouped.reduce(lambda a, b: a + b, store="timestamped")
    grouped.windowed_by(TimeWindows.of(10)).count(store="windows")
    grouped.windowed_by(SessionWindows.of(5)).count(store="sessions")
    builder.table("t", materialized=Materialized("versions", history=1000, key=STRING, value=STRING))
    builder.add_state_store(key_value_store("plain"))
    builder.add_state_store(custom_store("top", TopStore))
    builder.stream("in").process(lambda record, context: [], stores=["plain", "top"])
    with TopologyTestDriver(builder.build()) as driver:
        given = driver.input_topic("in", key=STRING, value=STRING)
        for key, value, at in (("a", "p", 1), ("b", "q", 3), ("a", "r", 14)):
            given.send(key, value, timestamp_ms=at)
        for value, at in (("x", 10), ("y", 20)):
            driver.input_topic("t", key=STRING, value=STRING).send("a", value, timestamp_ms=at)
        stores: dict[str, Any] = dict(driver.stores())
        stores["plain"].put("k", "v")
        stores["top"].add("ann", 3)
        yield driver


def answer(driver: TopologyTestDriver, name: str, query: Query[Any]) -> QueryResult[Any]:
    store = driver.store(name)
    return answer_of(query, name, store, lambda: [store])


V = ValueAndTimestamp


@pytest.mark.parametrize(
    ("store", "query", "expected"),
    [
        ("plain", KeyQuery("k"), "v"),
        ("plain", RangeQuery("a", None), [("k", "v")]),
        ("timestamped", KeyQuery("a"), "pr"),
        ("timestamped", TimestampedKeyQuery("a"), V("pr", 14)),
        ("timestamped", TimestampedKeyQuery("none"), None),
        ("timestamped", RangeQuery(None, "a"), [("a", "pr")]),
        ("timestamped", RangeQuery(reverse=True), [("b", "q"), ("a", "pr")]),
        ("timestamped", TimestampedRangeQuery("b"), [("b", V("q", 3))]),
        ("windows", WindowKeyQuery("a", 0, 100), [(0, V(1, 1)), (10, V(1, 14))]),
        ("windows", WindowKeyQuery("a", 1, 100), [(10, V(1, 14))]),
        (
            "windows",
            WindowRangeQuery(first=0, last=9),
            [(Windowed("a", 0, 10), V(1, 1)), (Windowed("b", 0, 10), V(1, 3))],
        ),
        ("sessions", WindowRangeQuery("a"), [(Windowed("a", 1, 1), 1), (Windowed("a", 14, 14), 1)]),
        ("versions", VersionedKeyQuery("a"), VersionedRecord("y", 20)),
        ("versions", VersionedKeyQuery("a", 15), VersionedRecord("x", 10, 20)),
        ("versions", MultiVersionedKeyQuery("a", 0, 15), [VersionedRecord("x", 10, 20)]),
        (
            "versions",
            MultiVersionedKeyQuery("a", reverse=True),
            [VersionedRecord("y", 20), VersionedRecord("x", 10, 20)],
        ),
    ],
    ids=str,
)
def test_store_answers(driver: TopologyTestDriver, store: str, query: Query[Any], expected: Any) -> None:
    found = answer(driver, store, query).value
    assert (list(found) if isinstance(expected, list) else found) == expected


@pytest.mark.parametrize(
    ("store", "query"),
    [
        ("plain", TimestampedKeyQuery("k")),
        ("plain", TimestampedRangeQuery()),
        ("plain", WindowKeyQuery("k", 0, 1)),
        ("timestamped", VersionedKeyQuery("a")),
        ("windows", KeyQuery("a")),
        ("windows", WindowRangeQuery("a")),
        ("windows", WindowRangeQuery(first=0)),
        ("sessions", WindowRangeQuery(first=0, last=9)),
        ("sessions", WindowKeyQuery("a", 0, 9)),
        ("versions", KeyQuery("a")),
        ("versions", RangeQuery()),
        ("top", KeyQuery("ann")),
        pytest.param("plain", Query(), id="plain-Query"),
    ],
    ids=str,
)
def test_store_of_another_kind_does_not_know_the_query(driver: TopologyTestDriver, store: str, query: Any) -> None:
    found = answer(driver, store, query)
    assert found.failure is FailureReason.UNKNOWN_QUERY_TYPE
    assert store in found.message


class Leaders(Query[list[tuple[str, int]]]):
    """A custom query."""

    count = 5


def test_custom_store_answers_queries_of_its_own(driver: TopologyTestDriver) -> None:
    top: Any = driver.store("top")
    assert answer(driver, "top", Leaders()).failure is FailureReason.UNKNOWN_QUERY_TYPE
    top.query = lambda query: top.leaders(query.count) if isinstance(query, Leaders) else NotImplemented
    assert answer(driver, "top", Leaders()).value == [("ann", 3)]


@pytest.mark.parametrize("ask", [lambda query: 7, lambda query: 1 // 0])
def test_custom_store_that_is_closed_while_it_answers_is_not_present(
    driver: TopologyTestDriver, ask: Callable[[Query[int]], int]
) -> None:
    top: Any = driver.store("top")
    top.query = ask

    def gone() -> NoReturn:
        raise StateStoreMigratedError("has moved")

    assert answer_of(Leaders(), "top", top, gone).failure is FailureReason.NOT_PRESENT


def test_global_store_answers_once() -> None:
    builder = StreamsBuilder(key=STRING, value=INT64)
    builder.global_table("g", store="everywhere")
    builder.stream("in").to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("g", key=STRING, value=INT64).send("k", 7)
        stores = {"everywhere": driver.store("everywhere")}
        choice: dict[str, Any] = {"is_global": True, "partitions": None, "bound": None, "require_active": False}

        def ask(key: str) -> StateQueryResult[Any]:
            return query_store(
                "everywhere", KeyQuery(key), lambda: State.RUNNING, [], ["everywhere"], lambda: stores, **choice
            )

        found = ask("k")
        assert found.only is not None
        assert (found.only.value, found.only is found.global_result, found.partitions) == (7, True, {})
        assert found.position == {}
        store: Any = stores["everywhere"]
        store.peek = lambda key: stores.clear()  # the client is closed meanwhile
        closed = ask("k").global_result
        assert closed is not None
        assert closed.failure is FailureReason.NOT_PRESENT
