"""What `assignment.events.level` turns on, and that the leader's bytes do not depend on it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError
from streams_py.events.assignment_events import AssignmentEvents, check_event_clients, open_assignment_events
from streams_py.events.emitter import Limits
from streams_py.events.model import Eviction
from streams_py.events.observers import InstanceObserver
from streams_py.events.tasks import RestoreEvents, TaskEvents
from tests.support.clocks import FakeClock
from tests.support.events.kit import Background, FakeAdmin, FakeProducer, Recorder
from tests.support.leader.kit import COUNT, assign, member


class Clients:
    """A supplier whose producers keep what they are sent."""

    def __init__(self) -> None:
        self.producers: dict[str, FakeProducer] = {}

    def event_producer(self, client_id: str) -> FakeProducer:
        return self.producers.setdefault(client_id, FakeProducer())


@dataclass
class Working:
    """A task without records."""

    id: TaskId
    input_partitions: frozenset[TopicPartition] = frozenset()

    def oldest_waiting_ms(self) -> int | None:
        return None

    def has_input(self) -> bool:
        return False


def config(**changes: Any) -> StreamsConfig:
    given = {key.replace("_", "."): value for key, value in changes.items()}
    return StreamsConfig.of({"application.id": "app", "bootstrap.servers": "h:1", **given})


def opened(admin: FakeAdmin, clients: object, **changes: Any) -> InstanceObserver:
    return open_assignment_events(
        config(**changes), clients, admin, FakeClock(1_700_000_000_000), process="p1", client_id="app-1"
    )


def test_nothing_is_there_when_events_are_off() -> None:
    before = set(threading.enumerate())
    clients, admin = Clients(), FakeAdmin()
    off = opened(admin, clients)
    assert not isinstance(off, AssignmentEvents)
    task = Working(TaskId(0, 0))
    observer = off.tasks(lambda: (1, "m"))
    observer.assigned(task.id, is_active=True)
    observer.processed(task, 5, observer.processing(task))
    off.close()
    assert set(threading.enumerate()) == before
    assert clients.producers == {}
    assert admin.asked == 0


@pytest.mark.parametrize(("level", "has_tasks"), [("rebalances", False), ("tasks", True)])
def test_level_says_what_is_written(level: str, has_tasks: bool) -> None:
    clients, admin = Clients(), FakeAdmin()
    events = opened(
        admin,
        clients,
        assignment_events_level=level,
        assignment_events_topic="mine",
        client_rack="r1",
        num_stream_threads=3,
    )
    assert isinstance(events, AssignmentEvents)
    assert events.has_tasks is has_tasks
    assert isinstance(events.tasks(lambda: (1, "m")), TaskEvents) is has_tasks
    assert isinstance(events.restores(lambda: (1, "m"), {}), RestoreEvents) is has_tasks
    events.close()
    (producer,) = clients.producers.values()
    assert list(clients.producers) == ["app-1-events-producer"]
    assert [(event.body.event, event.body.threads, event.body.rack) for event in producer.events] == [
        ("started", 3, "r1"),
        ("stopped", 3, "r1"),
    ]
    assert {topic for topic, _ in producer.sent} == {"mine"} == {spec.name for spec in admin.created}
    assert events.counters()["events-sent-total"] == 2


@pytest.mark.parametrize("level", ["rebalances", "tasks"])
def test_removal_of_dead_members_is_written(level: str) -> None:
    clients = Clients()
    events = opened(FakeAdmin(), clients, assignment_events_level=level)
    events.evicted(4711, {"m-2", "m-1"})
    events.evicted(None, {"m-3"})
    events.close()
    (producer,) = clients.producers.values()
    assert [event.body for event in producer.events if event.kind == "eviction"] == [
        Eviction(pid=4711, members=("m-1", "m-2")),
        Eviction(pid=None, members=("m-3",)),
    ]


def test_supplier_that_cannot_write_events_is_refused_only_when_they_are_wanted() -> None:
    check_event_clients(config(), object())
    check_event_clients(config(assignment_events_level="tasks"), Clients())
    with pytest.raises(
        ConfigError, match=r"event_producer\(client_id\).*Add it, or set assignment.events.level = none"
    ):
        check_event_clients(config(assignment_events_level="tasks"), object())


@pytest.mark.parametrize("limits", [Limits(), Limits(events=0), Limits(events=1, bytes=1)])
def test_leader_publishes_the_same_whatever_the_queue(limits: Limits) -> None:
    members = {"a": member(1, owned="in-0 in-1"), "b": member(2, sums={"0_1": 5}), "c": member(3)}
    background = Background(limits)
    recorder = Recorder(num_standby_replicas=1)
    recorder.watch._emit = background.emitter.emit  # the recorder keeps its events otherwise
    recorder.drafts = [None]  # nothing is kept for the test here
    for _ in range(3):
        assert recorder.assign(members, COUNT).result == assign(members, COUNT, num_standby_replicas=1).result
    counters = background.run()
    assert counters["events-offered-total"] == 3
