"""Calls of librdkafka that do not return in time: the thread abandons the client and continues with a new one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import transactional_producer
from streams_py.adapters.confluent.bounded_calls import BoundedCalls
from streams_py.adapters.confluent.settings import transactional_settings
from streams_py.adapters.confluent.transactional_producer import ConfluentTransactionalProducer
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import TaskCorruptedError
from streams_py.ports import GroupMetadata, OffsetAndMetadata

MEMBER = GroupMetadata("app", 7, "member", None)
OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(1)}
PATIENCE_S = 60
BASE = {"application.id": "app", "bootstrap.servers": "nowhere:9092", "processing.guarantee": "exactly_once_v2"}


class Calls(BoundedCalls):
    """Waits long for every call but the one that does not return: a machine may be slow."""

    silent: int | None = None
    limits_s: list[float]

    def run(self, call: Callable[[], object], within_s: float, *, when_late: Callable[[], object]) -> bool:
        self.limits_s.append(within_s)
        is_silent = len(self.limits_s) - 1 == self.silent
        return super().run(call, 0.1 if is_silent else PATIENCE_S, when_late=when_late)


class SilentClient:
    """A librdkafka producer one of whose calls returns when it is released."""

    silent = ""
    made: list[SilentClient]
    callers: dict[str, int]

    def __init__(self, settings: dict[str, Any], **_: Any) -> None:
        self.released, self.closed = threading.Event(), threading.Event()
        self.reports: list[Any] = []
        self.calls: list[str] = []
        self.made.append(self)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        self.callers[name] = threading.get_ident()
        if name == self.silent and len(self.made) == 1:
            assert self.released.wait(PATIENCE_S)

    def init_transactions(self, timeout_s: float) -> None:
        self._call("init")

    def begin_transaction(self) -> None:
        self._call("begin")

    def send_offsets(self, offsets: Any, member: GroupMetadata, timeout_s: float) -> None:
        self._call("offsets")

    def commit_transaction(self, timeout_s: float) -> None:
        self._call("commit")

    def abort_transaction(self, timeout_s: float) -> None:
        self._call("abort")

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, report: Any, *_: Any) -> None:
        self._call("produce")
        self.reports.append(report)

    def poll(self, timeout_s: float) -> int:
        return 0

    def flush(self, timeout_s: float) -> int:
        return 0

    def purge(self) -> None: ...

    def close(self) -> None:
        self._call("close")
        self.closed.set()


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfluentTransactionalProducer]:
    SilentClient.made, SilentClient.callers = [], {}
    monkeypatch.setattr("streams_py.adapters.confluent.producer.Producer", SilentClient)
    monkeypatch.setattr(transactional_producer, "send_offsets", SilentClient.send_offsets)
    Calls.limits_s, Calls.silent = [], None
    monkeypatch.setattr(transactional_producer, "BoundedCalls", Calls)
    settings = transactional_settings(StreamsConfig.of(BASE), "id", bootstrap="nowhere:1", client_id="c")
    producer = ConfluentTransactionalProducer(settings, epoch_sender=lambda: pytest.fail("no other client may write"))
    yield producer
    for client in SilentClient.made:
        client.released.set()
    producer.close()


def fall_silent(monkeypatch: pytest.MonkeyPatch, number: int, call: str) -> None:
    """Let the blocking call with this number of the first client never return."""
    monkeypatch.setattr(SilentClient, "silent", call)
    monkeypatch.setattr(Calls, "silent", number)


@pytest.mark.parametrize(("number", "step"), [(1, "offsets"), (2, "commit")])
def test_commit_that_does_not_return_is_left_behind_for_a_new_producer(
    producer: ConfluentTransactionalProducer, monkeypatch: pytest.MonkeyPatch, number: int, step: str
) -> None:
    fall_silent(monkeypatch, number, step)
    producer.produce("out", b"1", b"k")
    direct = producer.direct("out")
    assert direct is not None
    with pytest.raises(TaskCorruptedError, match="outcome is unknown") as raised:
        producer.commit_transaction(OFFSETS, MEMBER, 10_000)
    assert raised.value.tasks == {}
    assert 5 < Calls.limits_s[number] < 10
    # Until the reset nothing is sent, by whatever way, and nothing counts as committed.
    assert direct.failures
    assert producer.poll() == 0
    assert direct.failures
    with pytest.raises(TaskCorruptedError):
        producer.produce("out", b"2", b"k")
    with pytest.raises(TaskCorruptedError):
        producer.commit_transaction(OFFSETS, MEMBER, 10_000)
    producer.reset()
    assert not producer.is_ready
    assert not producer.in_transaction
    old, new = SilentClient.made
    assert "close" not in old.calls  # while a call is under way
    producer.produce("out", b"2", b"k")
    producer.commit_transaction(OFFSETS, MEMBER, 10_000)
    assert new.calls == ["init", "begin", "produce", "offsets", "commit"]
    assert old.calls[-1] == step
    old.released.set()
    assert old.closed.wait(PATIENCE_S)
    assert SilentClient.callers["close"] != threading.get_ident()


def test_producer_whose_preparation_does_not_return_is_left_behind(
    producer: ConfluentTransactionalProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fall_silent(monkeypatch, 0, "init")
    with pytest.raises(TaskCorruptedError, match="preparing for transactions"):
        producer.initialize(10)
    with pytest.raises(TaskCorruptedError):
        producer.initialize(10)
    producer.reset()
    producer.initialize(10)
    assert producer.is_ready


@pytest.mark.parametrize(("number", "step"), [(1, "abort"), (2, "close")])
def test_end_of_a_producer_does_not_wait_for_a_call_that_does_not_return(
    producer: ConfluentTransactionalProducer, monkeypatch: pytest.MonkeyPatch, number: int, step: str
) -> None:
    fall_silent(monkeypatch, number, step)
    producer.produce("out", b"1", b"k")
    producer.close()
    (client,) = SilentClient.made
    assert client.calls[-1] == step
    assert not client.released.is_set()


def test_new_producer_does_not_wait_for_the_end_of_the_old_one(
    producer: ConfluentTransactionalProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fall_silent(monkeypatch, 1, "close")
    producer.produce("out", b"1", b"k")
    producer.reset()
    producer.produce("out", b"2", b"k")
    assert SilentClient.made[1].calls == ["init", "begin", "produce"]


def test_reports_of_a_producer_that_was_left_behind_count_for_nothing(producer: ConfluentTransactionalProducer) -> None:
    producer.track({"changelog"})
    producer.produce("changelog", b"1", b"k", 0)
    producer.produce("out", b"1", b"k")
    tracked, untracked = SilentClient.made[-1].reports
    producer.reset()

    class Written:
        def error(self) -> None: ...
        def topic(self) -> str:
            return "out"

        def partition(self) -> int:
            return 0

        def offset(self) -> int:
            return 7

        def value(self) -> bytes:
            return b""

        key = value

    tracked(None, Written())
    for report in (tracked, untracked):
        report(KafkaError(KafkaError._PURGE_QUEUE), Written())
    assert producer.acked_offsets() == {}
    producer.check()
    producer.produce("changelog", b"2", b"k", 0)
    SilentClient.made[-1].reports[-1](None, Written())
    assert producer.acked_offsets() == {TopicPartition("changelog", 0): 7}


def test_call_raises_what_it_raises_and_the_next_one_is_made() -> None:
    calls = BoundedCalls("calls")

    def fail() -> None:
        raise KeyError("reason")

    with pytest.raises(KeyError, match="reason"):
        calls.run(fail, PATIENCE_S, when_late=fail)
    done = threading.Event()
    calls.run(done.set, PATIENCE_S, when_late=fail)
    assert done.is_set()
    calls.close()


def test_late_call_is_cleaned_up_after_and_holds_up_no_other() -> None:
    calls = BoundedCalls("calls")
    go, cleaned, done = threading.Event(), threading.Event(), threading.Event()
    assert not calls.run(lambda: go.wait(PATIENCE_S), 0.1, when_late=cleaned.set)
    assert calls.run(done.set, PATIENCE_S, when_late=cleaned.set)
    assert done.is_set()
    assert not cleaned.is_set()
    go.set()
    assert cleaned.wait(PATIENCE_S)
    calls.close()
