"""Which answers about topic ids are accepted."""

from __future__ import annotations

import pytest

from streams_py.errors import BrokerUnavailableError
from streams_py.runtime.thread.topic_ids import TopicIds
from tests.support.runtime.world import World, WorldAdmin


@pytest.fixture
def world() -> World:
    made = World(**{"in": 1})
    made.topic_ids["in"] = "first"
    return made


@pytest.fixture
def ids(world: World) -> TopicIds:
    admin = WorldAdmin(world)
    made = TopicIds(lambda: admin, world.clock)
    made._start = lambda: None  # type: ignore[method-assign]  # the test calls its checks
    made.watch("a thread", ["in"])
    made.check()
    return made


def test_new_id_is_believed_when_a_second_answer_names_it(world: World, ids: TopicIds) -> None:
    assert ids.now == {"in": "first"}
    world.topic_ids["in"] = "second"
    assert ids.check() < ids.check()  # confirmed soon
    assert ids.now == {"in": "second"}


def test_one_stale_answer_changes_nothing(world: World, ids: TopicIds) -> None:
    before = ids.now
    world.topic_ids["in"] = "stale"
    ids.check()
    world.topic_ids["in"] = "first"
    ids.check()
    world.topic_ids["in"] = "stale"
    ids.check()
    assert ids.now is before


def test_replaced_id_is_never_believed_again(world: World, ids: TopicIds) -> None:
    world.topic_ids["in"] = "second"
    ids.check()
    ids.check()
    world.topic_ids["in"] = "first"  # from a broker that is behind
    for _ in range(5):
        ids.check()
    assert ids.now == {"in": "second"}


def test_answers_without_an_id_or_without_a_broker_change_nothing(world: World, ids: TopicIds) -> None:
    del world.topic_ids["in"]
    ids.check()
    world.away = True
    ids.check()
    with pytest.raises(BrokerUnavailableError):
        WorldAdmin(world).describe_topics()
    assert ids.now == {"in": "first"}


def test_topic_that_is_not_known_yet_is_not_reported(
    world: World, ids: TopicIds, caplog: pytest.LogCaptureFixture
) -> None:
    ids.watch("a thread", ["in", "new"])
    for _ in range(5):
        ids.check()
    assert not caplog.records
    world.topics["new"], world.topic_ids["new"] = 1, "a"
    ids.check()
    assert ids.now == {"in": "first", "new": "a"}


def test_topic_that_is_deleted_and_not_created_again_is_an_error_every_minute(
    world: World, ids: TopicIds, caplog: pytest.LogCaptureFixture
) -> None:
    del world.topics["in"]
    ids.check()
    ids.check()
    assert not caplog.records
    for _ in range(180):
        world.clock.advance(1_000)
        ids.check()
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
    assert "topic in was deleted while this client uses it" in caplog.text


def test_only_topics_in_use_are_requested(world: World, ids: TopicIds) -> None:
    world.topics["other"], world.topic_ids["other"] = 1, "b"
    ids.watch("another thread", ["other"])
    ids.check()
    assert ids.now == {"in": "first", "other": "b"}
    ids.watch("a thread", [])
    world.topic_ids["in"] = "second"
    ids.check()
    ids.check()
    assert ids.now["in"] == "first"
