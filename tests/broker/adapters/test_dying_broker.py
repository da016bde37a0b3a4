"""A member while its broker dies during each of its requests: it accepts nothing wrong, and recovers.

The table has one row per call and kind of request, like the table of the record clients. Wherever a request is
interrupted, no member gets partitions that no leader assigned. A commit that returns was made, and committed offsets
are the real ones. A process that may not be a member does not claim to be one. Afterwards the same member works again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from streams_py.adapters.confluent import ConfluentClients
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import StreamsError
from streams_py.ports import Admin, OffsetAndMetadata
from tests.support.dying_broker import DyingBroker, Place, places
from tests.support.waiting import commit, until

pytestmark = pytest.mark.broker

METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP = 3, 8, 9, 10, 11
HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, API_VERSIONS = 12, 13, 14, 18
BEFORE, AFTER = OffsetAndMetadata(3, "before"), OffsetAndMetadata(5, "after")


class World:
    """A group whose member reaches the broker through the proxy, and a second client that reaches it directly."""

    def __init__(self, group: Any, proxy: DyingBroker) -> None:
        self.group = group
        self.proxy = proxy
        self.direct = _admin(group.broker.bootstrap, group.id)
        self.through = _admin(proxy.bootstrap, group.id)
        self.member: Any = None
        self.thread: Any = None

    def prepare(self) -> None:
        """Create a member without starting it."""
        settings = {"bootstrap": self.proxy.bootstrap, "request_timeout_ms": 2_000, "retry_backoff_ms": 50}
        self.member, self.thread = self.group.join(start=False, **settings)

    def start(self) -> None:
        self.member.start()
        self.member.subscribe(frozenset({self.group.topic}))

    def join(self) -> None:
        """Start a member that has committed an offset."""
        self.prepare()
        self.start()
        self.wait_settled()
        commit(self.member, {self.group.partitions[0]: BEFORE})

    def rejoin(self) -> None:
        self.member.request_rejoin("a test wants it")

    def wait_until_dead(self) -> None:
        until(lambda: self.proxy.deaths == 1 or self._looks_fine(), "the request is made")
        assert self.proxy.deaths == 1

    def _looks_fine(self) -> bool:
        self.check()
        return False

    def wait_for_the_end_of_the_session(self) -> None:
        self.wait_until_dead()
        until(lambda: not self.member.is_member(), "the member knows that its session is over")

    def commit(self) -> None:
        with contextlib.suppress(StreamsError):
            self.member.commit({self.group.partitions[0]: AFTER}, timeout_ms=2_000)
            assert self.committed_for_all_to_see() == AFTER.offset

    def committed_for_all_to_see(self) -> int | None:
        one = self.group.partitions[0]
        return self.direct.committed_offsets(self.group.id, [one])[one]

    def committed(self) -> None:
        one, two, *_ = self.group.partitions
        for _ in range(2):  # while it dies, and after that
            try:
                assert self.member.committed([one, two], timeout_ms=2_000).result(60) == {one: BEFORE, two: None}
            except StreamsError as error:
                _expect_passing(error)

    def check(self) -> None:
        """Check that the member accepted nothing wrong."""
        self.member.check()
        everything = tuple(self.group.partitions)
        assert {found for name, found in self.thread.calls if name == "on_assignment"} <= {everything}
        assert self.thread.owned in ((), everything)
        metadata = self.member.group_metadata()
        assert metadata is None or (metadata.generation > 0 and metadata.member_id)

    def wait_settled(self) -> None:
        def works() -> bool:
            self.check()
            return bool(self.thread.owned) and self.member.is_member() and self.thread.names()[-1] == "on_assigned"

        until(works, "the member owns everything")

    def close(self) -> None:
        self.direct.close()
        self.through.close()


class Row(NamedTuple):
    """The preparation, the kind of request during which the broker dies, and the call that makes it."""

    name: str
    api_key: int
    before: Callable[[World], None]
    act: Callable[[World], None]


TABLE = [
    Row("start", API_VERSIONS, World.prepare, World.start),
    Row("start", METADATA, World.prepare, World.start),
    Row("start", FIND_COORDINATOR, World.prepare, World.start),
    Row("join", JOIN_GROUP, World.prepare, World.start),
    Row("join", SYNC_GROUP, World.prepare, World.start),
    Row("rejoin", JOIN_GROUP, World.join, World.rejoin),
    Row("rejoin", SYNC_GROUP, World.join, World.rejoin),
    Row("heartbeat", HEARTBEAT, World.join, World.wait_for_the_end_of_the_session),
    Row("commit", OFFSET_COMMIT, World.join, World.commit),
    Row("committed", OFFSET_FETCH, World.join, World.committed),
]
ALWAYS = {("join", SYNC_GROUP), ("commit", OFFSET_COMMIT), ("committed", OFFSET_FETCH)}


@pytest.fixture
def world(group: Any) -> Iterator[World]:
    proxy = DyingBroker(group.broker.bootstrap.partition(",")[0])
    made = World(group, proxy)
    yield made
    proxy.heal()
    group.close()
    made.close()
    proxy.close()


@pytest.mark.parametrize(("row", "place"), places(TABLE, ALWAYS))
def test_member_believes_only_the_truth_when_the_broker_dies_under_it(world: World, row: Row, place: Place) -> None:
    row.before(world)
    world.proxy.die_at(row.api_key, place)
    row.act(world)
    world.wait_until_dead()
    world.check()
    world.proxy.heal()
    world.wait_settled()
    commit(world.member, {world.group.partitions[1]: AFTER})
    two = world.group.partitions[1]
    assert world.direct.committed_offsets(world.group.id, [two]) == {two: AFTER.offset}


LEAVING = [Row("leave", LEAVE_GROUP, World.join, lambda world: None)]


@pytest.mark.parametrize(("row", "place"), places(LEAVING, {("leave", LEAVE_GROUP)}))
def test_member_that_leaves_is_none_and_its_place_is_free_when_the_broker_dies_under_it(
    world: World, row: Row, place: Place
) -> None:
    row.before(world)
    world.proxy.die_at(row.api_key, place)
    world.member.leave_and_close(leave_group=True, timeout_ms=2_000)
    assert world.proxy.deaths == 1
    assert not world.member.is_member()
    assert world.member.group_metadata() is None
    _, successor = world.group.join(name="successor")
    until(lambda: successor.owned == tuple(world.group.partitions), "the successor owns everything")


REMOVING = [
    Row("remove static member", FIND_COORDINATOR, World.prepare, World.start),
    Row("remove static member", LEAVE_GROUP, World.prepare, World.start),
]


@pytest.mark.parametrize(("row", "place"), places(REMOVING, {("remove static member", LEAVE_GROUP)}))
def test_static_member_is_gone_when_its_removal_returns_though_the_broker_died_under_it(
    world: World, row: Row, place: Place
) -> None:
    member, thread = world.group.join(instance_id="static", session_timeout_ms=60_000)
    until(lambda: thread.owned, "the static member is there")
    member.leave_and_close(leave_group=False, timeout_ms=5_000)
    assert _members(world) == 1
    world.proxy.die_at(row.api_key, place)
    for _ in range(2):
        _assert_removed_or_passing(world)
    assert world.proxy.deaths == 1
    world.proxy.heal()
    until(lambda: _assert_removed_or_passing(world), "the member is removed, once the broker is back")


def _assert_removed_or_passing(world: World) -> bool:
    try:
        world.through.remove_member(world.group.id, "static", "")
    except StreamsError as error:
        _expect_passing(error)
        return False
    assert _members(world) == 0
    return True


def _expect_passing(error: StreamsError) -> None:
    if not error.retriable:
        raise error


def _members(world: World) -> int:
    client = AdminClient({"bootstrap.servers": world.group.broker.bootstrap})
    return len(client.describe_consumer_groups([world.group.id])[world.group.id].result(60).members)


def _admin(bootstrap: str, group: str) -> Admin:
    keys = {"application.id": group, "bootstrap.servers": bootstrap, "admin.default.api.timeout.ms": 3_000}
    return ConfluentClients(StreamsConfig.of(keys)).admin()
