"""The instance of a key or a store, and the lags of the local copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import HostInfo, TopicPartition
from streams_py import StreamsBuilder
from streams_py.errors import UnknownStateStoreError
from streams_py.member.tasks import HostView
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.queries.hosts import NOT_AVAILABLE, KeyQueryMetadata, StoreHosts, StreamsMetadata
from streams_py.runtime.queries.lags import LagInfo, store_partition_lags
from streams_py.serdes import INT64, STRING, SerdeDefaults
from streams_py.topology.partitioning import partition_for
from streams_py.topology.topology import Topology
from tests.support.runtime.world import Steps, World, counting, task, tp

ONE, TWO = HostInfo("one", 1), HostInfo("two", 2)


def topology() -> Topology:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.global_table("everywhere", store="global")
    grouped = builder.stream("in").group_by_key()
    grouped.count(store="counts")
    builder.table("other", store="table")
    return builder.build()


def hosts(view: HostView | None = None, own: HostInfo | None = ONE) -> StoreHosts:
    made = StoreHosts(topology(), "app", own, SerdeDefaults(STRING, STRING))
    if view is not None:
        made.show(view)
    return made


@pytest.fixture
def known() -> StoreHosts:
    return hosts(
        HostView(
            active={ONE: {tp("in-0"), tp("in-1"), tp("other-0")}, TWO: {tp("in-2")}},
            standby={TWO: {tp("in-0"), tp("other-0")}, ONE: {tp("in-2")}},
        )
    )


def key_in(partition: int, count: int = 3) -> str:
    return next(key for key in map(str, range(100)) if partition_for(key.encode(), count) == partition)


def test_nothing_is_known_before_the_first_assignment() -> None:
    fresh = hosts()
    found = fresh.of_key("counts", "k", key_serde=None, partitioner=None)
    assert found is NOT_AVAILABLE
    assert not found.is_available
    assert (found.active_host, found.partition) == (HostInfo("unavailable", -1), -1)
    assert fresh.instances() == []


def test_key_is_where_its_partition_is(known: StoreHosts) -> None:
    def of(key: str) -> KeyQueryMetadata:
        return known.of_key("counts", key, key_serde=None, partitioner=None)

    assert of(key_in(0)) == KeyQueryMetadata(ONE, frozenset({TWO}), 0)
    assert of(key_in(1)) == KeyQueryMetadata(ONE, frozenset(), 1)
    assert of(key_in(2)) == KeyQueryMetadata(TWO, frozenset({ONE}), 2)


def test_key_serde_and_partitioner_of_the_caller_decide(known: StoreHosts) -> None:
    number = known.of_key("counts", 7, key_serde=INT64, partitioner=None)
    assert number.partition == partition_for((7).to_bytes(8, "big"), 3)
    asked: list[Any] = []

    def last(topic: str, key: Any, value: Any, count: int) -> int:
        asked.append((topic, key, value, count))
        return count - 1

    assert known.of_key("counts", "k", key_serde=None, partitioner=last).active_host == TWO
    assert asked == [("in", "k", None, 3)]
    assert known.of_key("counts", "k", key_serde=None, partitioner=lambda *_: [1]).partition == 1
    with pytest.raises(ValueError, match="one partition of key 'k'"):
        known.of_key("counts", "k", key_serde=None, partitioner=lambda *_: [0, 1])


def test_partition_that_no_instance_with_an_address_has_is_not_available() -> None:
    some = hosts(HostView(active={TWO: {tp("in-2")}}))  # the others have no application.server setting
    assert some.of_key("counts", key_in(2), key_serde=None, partitioner=None).active_host == TWO
    assert not some.of_key("counts", key_in(1), key_serde=None, partitioner=None).is_available


def test_global_store_is_here(known: StoreHosts) -> None:
    found = known.of_key("global", "k", key_serde=None, partitioner=None)
    assert found == KeyQueryMetadata(ONE, frozenset(), -1)


def test_instances_are_told_with_their_stores(known: StoreHosts) -> None:
    one, two = known.instances()
    assert one == StreamsMetadata(
        ONE,
        frozenset({"counts", "table", "global"}),
        frozenset({tp("in-0"), tp("in-1"), tp("other-0")}),
        frozenset({"counts"}),
        frozenset({tp("in-2")}),
    )
    assert (two.stores, two.standby_stores) == (frozenset({"counts", "global"}), frozenset({"counts", "table"}))
    assert known.with_store("table") == [one, two]
    assert known.with_store("global") == [one, two]


def test_unknown_store_is_answered_with_the_known_ones(known: StoreHosts) -> None:
    with pytest.raises(UnknownStateStoreError, match=r"'cuonts'; it has: counts, global, table"):
        known.with_store("cuonts")
    with pytest.raises(UnknownStateStoreError):
        known.of_key("cuonts", "k", key_serde=None, partitioner=None)


def test_address_goes_to_the_leader_and_comes_back_to_every_member(tmp_path: Path) -> None:
    world = World(**{"in": 2, "out": 2})
    steps = Steps(world, counting(), tmp_path, application_server="host-1:8080")
    assert steps.membership.join().endpoint == "host-1:8080"
    steps.membership.lead()
    (found,) = steps.instance.hosts.instances()
    assert (found.host, found.stores) == (HostInfo("host-1", 8080), frozenset({"counts"}))
    assert found.partitions == {tp("in-0"), tp("in-1")}
    steps.close()


def test_lag_of_a_copy_is_what_it_lacks_and_a_running_active_has_none(tmp_path: Path) -> None:
    world = World(**{"in": 2, "out": 2, "app-counts-changelog": 2})
    changelog = "app-counts-changelog"
    for partition in (0, 1):
        world.log.produce(changelog, (1).to_bytes(8, "big"), b"k", partition, None, 1, None)
        world.committed[tp(f"in-{partition}")] = OffsetAndMetadata(0)  # otherwise the stores would be suspect
    steps = Steps(world, counting(), tmp_path)
    steps.run({task("0_0"): [tp("in-0")]}, standby={task("0_1"): [tp("in-1")]})
    for partition in (0, 1):
        for _ in range(3):
            world.log.produce(changelog, (1).to_bytes(8, "big"), b"k", partition, None, 1, None)
    lags = store_partition_lags(steps.thread.shown_tasks, world.admin())
    assert lags == {"counts": {0: LagInfo(4, 4), 1: LagInfo(1, 4)}}
    assert [lag.lag for lag in lags["counts"].values()] == [0, 3]
    del world.topics[changelog]  # no broker reports the end offset
    assert store_partition_lags(steps.thread.shown_tasks, world.admin()) == {}
    steps.close()
    assert store_partition_lags(steps.thread.shown_tasks, world.admin()) == {}


def test_partition_is_looked_up_in_the_largest_topic_that_the_store_reads() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.stream(["small", "large"]).group_by_key().count(store="counts")
    some = StoreHosts(builder.build(), "app", ONE, SerdeDefaults(STRING, STRING))
    large = {TopicPartition("large", partition) for partition in range(4)}
    some.show(HostView(active={ONE: {tp("small-0"), *large}}))
    assert some.of_key("counts", key_in(3, 4), key_serde=None, partitioner=None).partition == 3
