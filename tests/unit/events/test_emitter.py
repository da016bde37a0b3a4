"""The emitter: bounded, silent, and never in the way."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams_protocol.types import TaskId
from streams_py.errors import BrokerUnavailableError
from streams_py.events.codec import EventRecord
from streams_py.events.draft import BodyDraft, Draft, Importance
from streams_py.events.emitter import Limits
from streams_py.events.model import Envelope, Sample, TaskEvent
from streams_py.ports import AdminError, AdminErrorKind
from tests.support.events.kit import Background, FakeAdmin, FakeProducer, Recorder
from tests.support.leader.kit import member

AWAY = BrokerUnavailableError("no answer")


def sample(tasks: int = 1) -> BodyDraft:
    none = [None] * tasks
    return BodyDraft(
        Sample(
            tasks=[TaskId(0, n) for n in range(tasks)], input_lag=none, records=none, busy_us=none, commit_age_ms=none
        )
    )


def task_event(event: str = "running") -> BodyDraft:
    return BodyDraft(TaskEvent(task=TaskId(0, 0), role="active", member="m", generation=1, event=event))


@dataclass
class FakeDraft(Draft):
    """A draft of a given size; ``error`` is what writing it raises."""

    bytes_estimate: int = 100
    error: Exception | None = None
    parts: int = 1
    kind: str = "rebalance"
    importance: Importance = Importance.REBALANCE

    def records(self, envelope: Envelope) -> Sequence[EventRecord]:
        if self.error is not None:
            raise self.error
        return [EventRecord(b"r/x", b"%d" % envelope.seq, ()) for _ in range(self.parts)]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the emitter has logged; threads of other tests may still be logging, too."""
    return [r for r in caplog.records if r.levelno >= logging.WARNING and r.name == "streams_py.events"]


def test_events_are_numbered_stamped_and_sent_in_order() -> None:
    background = Background()
    for draft in (sample(), task_event(), Recorder().assign({"a": member(1)}).drafts[0], sample()):
        background.emitter.emit(draft)
    counters = background.run()
    events = background.producer.events
    assert [event.kind for event in events] == [
        "sample", "task", "rebalance", "rebalance.tasks", "rebalance.client", "sample",
    ]  # fmt: skip
    assert [event.envelope.seq for event in events] == [0, 1, 2, 2, 2, 3]
    assert {(e.envelope.group, e.envelope.process, e.envelope.run, e.envelope.dropped) for e in events} == {
        ("app", "p1", "r1", 0)
    }
    assert counters["events-sent-total"] == counters["events-offered-total"] == 4
    assert background.producer.is_closed


def test_topic_is_created_with_the_first_event_and_only_then() -> None:
    background = Background()
    assert background.admin.asked == 0
    background.emitter.emit(sample())
    background.run()
    (spec,) = background.admin.created
    assert (spec.name, spec.partitions, spec.replication_factor) == ("app-assignment-events", 1, -1)
    assert spec.config == {
        "cleanup.policy": "delete",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "2592000000",
    }


def test_topic_is_left_alone_when_it_exists() -> None:
    background = Background(admin=FakeAdmin({"app-assignment-events"}))
    background.emitter.emit(sample())
    assert background.run()["events-sent-total"] == 1
    assert background.admin.created == []


def test_samples_go_first_when_the_queue_is_full() -> None:
    background = Background(Limits(events=10))
    for _ in range(10):
        background.emitter.emit(sample())
    draft = Recorder().assign({"a": member(1)}).drafts[0]
    background.emitter.emit(draft)
    counters = background.run()
    events = background.producer.events
    rebalance = [event for event in events if event.kind.startswith("rebalance")]
    assert len(rebalance) == 3
    assert {event.envelope.dropped for event in rebalance} == {1}
    assert counters["events-dropped-total{kind=sample}"] == 1
    numbers = {event.envelope.seq for event in events}
    assert 11 - len(numbers) == counters["events-dropped-total"]  # I5: gaps are what was dropped


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["sample", "task", "restore_progress", "rebalance"]), max_size=40), st.integers(0, 6))
def test_gaps_in_the_numbers_are_what_was_dropped(kinds: list[str], room: int) -> None:
    background = Background(Limits(events=room))
    for kind in kinds:
        background.emitter.emit(
            sample() if kind == "sample" else FakeDraft() if kind == "rebalance" else task_event(kind)
        )
    counters = background.run()
    values = [record.value for _, record in background.producer.sent]
    numbers = {int(value) if value.isdigit() else json.loads(value)["seq"] for value in values}
    assert len(kinds) - len(numbers) == counters["events-dropped-total"]
    assert len(numbers) == counters["events-sent-total"] == min(room, len(kinds))
    assert numbers <= set(range(len(kinds)))


def test_importance_decides_who_goes() -> None:
    background = Background(Limits(events=4))
    for draft in (sample(), task_event("restore_progress"), task_event(), FakeDraft()):
        background.emitter.emit(draft)
    for _ in range(3):
        background.emitter.emit(FakeDraft())
    background.emitter.emit(task_event())  # nothing that waits is less important: it goes itself
    background.emitter.emit(FakeDraft())  # the oldest of its own kind
    counters = background.run()
    assert counters["events-dropped-total{kind=sample}"] == 1
    assert counters["events-dropped-total{kind=task}"] == 3
    assert counters["events-dropped-total{kind=rebalance}"] == 1
    assert [record.value for _, record in background.producer.sent] == [b"4", b"5", b"6", b"8"]


def test_bytes_are_bounded_too() -> None:
    background = Background(Limits(bytes=1_000))
    for _ in range(20):
        background.emitter.emit(FakeDraft(bytes_estimate=300))
    background.emitter.emit(FakeDraft(bytes_estimate=1_001))  # never fits, and costs the others nothing
    counters = background.run()
    assert counters["events-sent-total"] == 3
    assert counters["events-dropped-total"] == 18


@pytest.mark.parametrize("limits", [Limits(events=0), Limits(bytes=0)])
def test_everything_is_counted_when_the_queue_has_no_room_at_all(limits: Limits) -> None:
    background = Background(limits)
    for _ in range(5):
        background.emitter.emit(FakeDraft())
    counters = background.run()
    assert counters["events-dropped-total"] == counters["events-offered-total"] == 5
    assert background.producer.sent == []


def test_leader_goes_on_when_the_broker_is_away() -> None:
    background = Background(admin=FakeAdmin(describing=AWAY))
    background.emitter.start()
    watched, plain = Recorder(), Recorder()
    members = {f"m{n}": member(n) for n in range(1, 9)}
    for _ in range(20):
        recorded = watched.assign(members)
        background.emitter.emit(recorded.drafts[0])
        assert recorded.result == plain.assign(members).result
        assert background.emitter._queued_bytes <= 16 << 20  # memory has no counter
    background.emitter.close(0.0)
    counters = background.emitter.counters()
    assert counters["events-dropped-total"] + counters["events-failed-total"] == 20


def test_one_warning_when_the_topic_may_not_be_written(caplog: pytest.LogCaptureFixture) -> None:
    denied = AdminError(AdminErrorKind.OTHER, "TOPIC_AUTHORIZATION_FAILED")
    producer = FakeProducer(error="Broker: Topic authorization failed")
    background = Background(admin=FakeAdmin(describing=denied, creating=denied), producer=producer)
    for _ in range(50):
        background.emitter.emit(FakeDraft())
    with caplog.at_level(logging.WARNING, "streams_py.events"):
        background.emitter.start()
        give_up_s = time.monotonic() + 30
        while not background.emitter.counters()["events-failed-total"]:
            assert time.monotonic() < give_up_s
        background.emitter.close(0.0)
    counters = background.emitter.counters()
    assert counters["events-failed-total"] + counters["events-dropped-total"] == 50
    assert len(warnings_of(caplog)) == 1


def test_creation_is_tried_again_later_and_later() -> None:
    now = [0.0]
    admin = FakeAdmin(creating=AdminError(AdminErrorKind.OTHER, "not allowed"))
    topic = Background(admin=admin).topic
    topic._monotonic_s = lambda: now[0]  # its clock
    tried = []
    warnings: list[str] = []
    while now[0] < 4_000:
        if not topic.is_ready(warnings.append) and admin.asked > len(tried):
            tried.append(now[0])
        now[0] += 0.5
    gaps = [b - a for a, b in pairwise(tried)]
    assert gaps[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(gaps) == 600.0
    admin.creating = None
    now[0] += 600
    assert topic.is_ready(warnings.append)


def test_event_that_cannot_be_written_is_counted() -> None:
    background = Background()
    background.emitter.emit(FakeDraft(error=RuntimeError("no JSON")))
    background.emitter.emit(FakeDraft())
    counters = background.run()
    assert counters["events-failed-total"] == 1
    assert counters["events-sent-total"] == 1


def test_draft_that_cannot_say_its_size_is_counted() -> None:
    background = Background()
    background.emitter.emit(object())
    assert background.emitter.counters()["events-failed-total"] == 1


def test_thread_that_dies_is_logged_once_and_leaves_a_counter(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeProducer):
        def poll(self, timeout_ms: int) -> None:
            raise RuntimeError("the library is broken")

    background = Background(producer=Broken())
    for _ in range(3):
        background.emitter.emit(FakeDraft())
    background.emitter.start()
    background.emitter._thread.join(60)  # `close` would end it too
    assert not background.emitter._thread.is_alive()  # see above
    background.emitter.emit(FakeDraft())
    background.emitter.close()
    counters = background.emitter.counters()
    assert counters["events-dropped-total"] + counters["events-failed-total"] == 4
    assert [record.levelno for record in warnings_of(caplog)] == [logging.ERROR]


def test_close_gives_up_when_nothing_is_acknowledged() -> None:
    background = Background(producer=FakeProducer(is_silent=True))
    for _ in range(3):
        background.emitter.emit(FakeDraft(parts=2))
    counters = background.run(timeout_s=0.2)
    assert counters["events-failed-total"] == 3
    assert background.producer.is_closed


def test_event_after_close_is_counted() -> None:
    background = Background()
    background.run()
    background.emitter.emit(FakeDraft())
    background.emitter.close()
    assert background.emitter.counters()["events-dropped-total"] == 1


def test_event_of_a_forked_process_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    background = Background()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    background.emitter.emit(FakeDraft())
    assert background.emitter.counters()["events-dropped-total"] == 1


def test_rebalance_that_arrives_in_part_is_sent_and_leaves_no_gap() -> None:
    class EverySecond(FakeProducer):
        def poll(self, timeout_ms: int) -> None:
            reports, self.waiting = self.waiting, []
            for number, report in enumerate(reports):
                report("lost" if number % 2 else None)

    background = Background(producer=EverySecond())
    background.emitter.emit(FakeDraft(parts=4))
    counters = background.run()
    assert counters["events-sent-total"] == 1
    assert counters["events-failed-total"] == 0


def test_sending_pauses_when_too_much_is_unacknowledged() -> None:
    class Strict(FakeProducer):
        def send(self, *arguments: object) -> None:
            super().send(*arguments)
            assert len(self.waiting) <= 21

    @dataclass
    class Large(FakeDraft):
        def records(self, envelope: Envelope) -> Sequence[EventRecord]:
            return [EventRecord(b"k", b"x" * 100_000, ()) for _ in range(100)]

    background = Background(producer=Strict())
    background.emitter.emit(Large())
    assert background.run()["events-sent-total"] == 1
