"""Transactions on librdkafka without a broker: the calls made, and the consequence of each error."""

from __future__ import annotations

import ctypes
from typing import Any
from unittest.mock import MagicMock

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import transaction_offsets
from streams_py.adapters.confluent.clients import ConfluentClients
from streams_py.adapters.confluent.settings import consumer_settings, transactional_settings
from streams_py.adapters.confluent.transaction_offsets import check_access
from streams_py.adapters.confluent.transactional_producer import ConfluentTransactionalProducer
from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError, ConfigError, StreamsError, TaskCorruptedError, TaskMigratedError
from streams_py.ports import GroupMetadata, OffsetAndMetadata

BASE = {"application.id": "app", "bootstrap.servers": "nowhere:9092", "processing.guarantee": "exactly_once_v2"}
MEMBER = GroupMetadata("app", 7, "member", None)


def config(**more: Any) -> StreamsConfig:
    return StreamsConfig.of({**BASE, **{key.replace("__", "."): value for key, value in more.items()}})


class FakeClient:
    """A librdkafka producer that answers as told."""

    def __init__(self, settings: dict[str, Any], **_: Any) -> None:
        self.settings = settings
        self.calls: list[Any] = []
        self.errors: dict[str, list[Exception]] = {}

    def _call(self, name: str, *arguments: Any) -> None:
        self.calls.append((name, *arguments))
        if self.errors.get(name):
            raise self.errors[name].pop(0)

    def init_transactions(self, timeout_s: float) -> None:
        self._call("init")

    def begin_transaction(self) -> None:
        self._call("begin")

    def send_offsets(self, offsets: Any, member: GroupMetadata, timeout_s: float) -> None:
        self._call("offsets", offsets, member)

    def commit_transaction(self, timeout_s: float) -> None:
        self._call("commit")

    def abort_transaction(self, timeout_s: float) -> None:
        self._call("abort")

    def produce(self, topic: str, value: bytes, *_: Any) -> None:
        self._call("produce", topic, value)

    def poll(self, timeout_s: float) -> int:
        self._call("poll")
        return 0

    def __len__(self) -> int:
        return 1  # read only if a test replaces flush with one that times out

    def flush(self, timeout_s: float) -> int:
        self._call("flush")
        return 0

    def purge(self) -> None: ...
    def close(self) -> None:
        self.calls.append(("close",))


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("streams_py.adapters.confluent.producer.Producer", FakeClient)
    monkeypatch.setattr("streams_py.adapters.confluent.transactional_producer.send_offsets", FakeClient.send_offsets)
    settings = transactional_settings(config(), "id", bootstrap="nowhere:1", client_id="c")
    return ConfluentTransactionalProducer(settings, epoch_sender=lambda: pytest.fail("no other client may write"))


def client_of(producer: Any) -> Any:
    return producer._client(None)  # the fake that answers in place of librdkafka


def error(code: int, *, fatal: bool = False, retriable: bool = False, abort: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, "reason", fatal, retriable, abort))


def test_librdkafkas_handle_is_where_it_is_looked_for() -> None:
    check_access()


@pytest.mark.parametrize(
    ("place", "odd", "words"),
    [
        ("_HANDLE_AT", object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p), "the producer is closed"),
        ("_SIGNATURES", {"rd_kafka_no_such_function": (None, [])}, "rd_kafka_no_such_function"),
    ],
)
def test_binding_that_gives_no_access_refuses_exactly_once(
    monkeypatch: pytest.MonkeyPatch, place: str, odd: Any, words: str
) -> None:
    def forget() -> None:
        check_access.cache_clear()
        transaction_offsets._library.cache_clear()  # it is loaded once in a process

    monkeypatch.setattr(transaction_offsets, place, odd)
    forget()
    with pytest.raises(ConfigError, match="at_least_once") as refused:
        ConfluentClients(config()).check_settings()
    assert words in str(refused.value)
    monkeypatch.undo()
    forget()


def test_transaction_begins_with_its_first_record_and_ends_with_the_offsets(producer: Any) -> None:
    client = client_of(producer)
    producer.produce("out", b"1", b"k")
    producer.produce("out", b"2", b"k")
    assert producer.in_transaction
    producer.commit_transaction({TopicPartition("in", 3): OffsetAndMetadata(9, "text")}, MEMBER, 1000)
    assert not producer.in_transaction
    assert client.calls == [
        ("init",),
        ("begin",),
        ("produce", "out", b"1"),
        ("produce", "out", b"2"),
        ("offsets", {TopicPartition("in", 3): OffsetAndMetadata(9, "text")}, MEMBER),
        ("commit",),
    ]
    producer.produce("out", b"3", b"k")
    assert client.calls[-2:] == [("begin",), ("produce", "out", b"3")]
    producer.close()
    assert ("abort",) in client.calls


def test_beginning_of_a_transaction_is_told_as_waiting(producer: Any) -> None:
    producer.blocked = waits = MagicMock()
    for text in (b"1", b"2"):
        producer.produce("out", text, b"k")
    assert waits.__enter__.call_count == waits.__exit__.call_count == 1


@pytest.mark.parametrize("step", ["poll", "flush"])
@pytest.mark.parametrize(
    "failure", [error(KafkaError._FATAL, fatal=True), SystemError("lost"), AttributeError("no attribute '_on_failure'")]
)
def test_client_that_cannot_go_on_is_replaced_however_the_binding_says_it(
    producer: Any, step: str, failure: Exception
) -> None:
    producer.produce("out", b"1", b"k")
    client_of(producer).errors[step] = [failure]
    with pytest.raises(TaskMigratedError) as raised:
        getattr(producer, step)(1_000)
    assert raised.value.__cause__ is failure


@pytest.mark.parametrize("step", ["offsets", "commit"])
@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (error(KafkaError._FENCED, fatal=True), TaskMigratedError),
        (error(KafkaError._FATAL), TaskMigratedError),
        (error(KafkaError.INVALID_PRODUCER_EPOCH), TaskMigratedError),
        (SystemError("lost"), TaskMigratedError),
        (error(KafkaError.ILLEGAL_GENERATION, abort=True), TaskCorruptedError),
        (error(KafkaError.UNKNOWN_MEMBER_ID, abort=True), TaskMigratedError),
        (error(KafkaError.FENCED_INSTANCE_ID, abort=True), StreamsError),
        (error(KafkaError._MSG_TIMED_OUT, abort=True), TaskCorruptedError),
        (error(KafkaError._TIMED_OUT, retriable=True), None),
    ],
)
def test_error_of_a_commit_says_what_has_to_be_done(
    producer: Any, step: str, failure: Exception, outcome: type[StreamsError] | None
) -> None:
    producer.produce("out", b"1", b"k")
    client = client_of(producer)
    client.errors[step] = [failure]
    offsets = {TopicPartition("in", 0): OffsetAndMetadata(1)}
    if outcome is None:  # once more is what librdkafka wants
        producer.commit_transaction(offsets, MEMBER, 5_000)
        assert [call[0] for call in client.calls].count(step) == 2
        return
    with pytest.raises(StreamsError) as raised:
        producer.commit_transaction(offsets, MEMBER, 5_000)
    assert type(raised.value) is outcome
    producer.reset()
    assert ("close",) in client.calls
    assert not producer.in_transaction
    assert not producer.is_ready


def test_offsets_that_failed_are_not_blamed_for_a_topic_that_may_not_be_written_later(producer: Any) -> None:
    producer.produce("out", b"1", b"k")
    client_of(producer).errors["offsets"] = [error(KafkaError._TIMED_OUT, abort=True)]
    with pytest.raises(TaskCorruptedError):
        producer.commit_transaction({TopicPartition("in", 0): OffsetAndMetadata(1)}, MEMBER, 5_000)
    producer.reset()
    producer.produce("out", b"1", b"k")
    client_of(producer).errors["commit"] = [error(KafkaError.TOPIC_AUTHORIZATION_FAILED, abort=True)]
    with pytest.raises(StreamsError) as raised:
        producer.commit_transaction({}, MEMBER, 5_000)
    assert "READ" not in str(raised.value)


def test_outcome_that_stays_unknown_takes_the_tasks_back(producer: Any) -> None:
    producer.produce("out", b"1", b"k")
    client_of(producer).errors["commit"] = [error(KafkaError._TIMED_OUT, retriable=True)] * 1000
    with pytest.raises(TaskCorruptedError) as raised:
        producer.commit_transaction({}, MEMBER, 50)
    assert raised.value.tasks == {}


@pytest.mark.parametrize(
    ("code", "outcome"), [(KafkaError._STATE, TaskCorruptedError), (KafkaError._FATAL, TaskMigratedError)]
)
def test_record_that_a_broken_transaction_does_not_take_is_no_matter_for_handlers(
    producer: Any, code: int, outcome: type[StreamsError]
) -> None:
    producer.produce("out", b"1", b"k")
    client_of(producer).errors["produce"] = [error(code)]
    with pytest.raises(outcome):
        producer.produce("out", b"2", b"k")


@pytest.mark.parametrize("call", ["poll", "flush"])
def test_fatal_error_that_a_call_of_the_library_raises_means_a_new_producer(producer: Any, call: str) -> None:
    producer.produce("out", b"1", b"k")
    client_of(producer).errors[call] = [error(KafkaError._FENCED, fatal=True)]
    with pytest.raises(TaskMigratedError):
        getattr(producer, call)(100)


def test_broker_that_is_away_is_asked_again_for_transactions(producer: Any) -> None:
    client_of(producer).errors["init"] = [error(KafkaError._TIMED_OUT, retriable=True)]
    with pytest.raises(BrokerUnavailableError, match="nowhere:1"):
        producer.initialize(10)
    assert not producer.is_ready
    producer.initialize(10)
    assert producer.is_ready


def test_transaction_timeout_above_the_brokers_is_said(producer: Any) -> None:
    client_of(producer).errors["init"] = [error(KafkaError.INVALID_TRANSACTION_TIMEOUT)]
    with pytest.raises(
        StreamsError, match=r"producer\.transaction\.timeout\.ms = 30000 .* transaction\.max\.timeout\.ms"
    ):
        producer.initialize(10)


def test_timestamp_0_is_refused_in_a_transaction(producer: Any) -> None:
    with pytest.raises(StreamsError, match=r"timestamp 0.*timestamp_extractor"):
        producer.produce("out", b"1", b"k", -1, None, 0, None)


def test_topic_with_a_small_limit_makes_all_batches_small(producer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # A broker would be asked for it.
    monkeypatch.setattr(producer, "_batch_bytes_max", lambda topic: 5_000 if topic == "small" else None)
    with pytest.raises(TaskCorruptedError, match="small accepts batches of at most 5000 bytes"):
        producer.direct("small")
    producer.reset()
    producer.produce("small", b"1", b"k")
    producer.produce("other", b"1", b"k")
    assert list(producer._clients) == [None]  # one client for all batch sizes
    assert client_of(producer).settings["batch.size"] == 5_000


def test_transactional_id_of_ones_own_has_no_effect() -> None:
    given = StreamsConfig.of({**BASE, "producer.transactional.id": "mine"})
    assert transactional_settings(given, "id", bootstrap="b:1", client_id="c")["transactional.id"] == "id"


def test_settings_of_exactly_once() -> None:
    settings = transactional_settings(config(), "id", bootstrap="b:1", client_id="c")
    assert settings["transactional.id"] == "id"
    assert settings["transaction.timeout.ms"] == settings["delivery.timeout.ms"] == 30_000
    given = {"consumer.isolation.level": "read_uncommitted"}
    reading = consumer_settings(
        StreamsConfig.of({**BASE, **given}), ClientRole.MAIN_CONSUMER, bootstrap="b:1", client_id="c"
    )
    assert reading["isolation.level"] == "read_committed"
    weak = StreamsConfig.of({**BASE, "producer.enable.idempotence": "false"})
    with pytest.raises(ConfigError, match=r"enable\.idempotence"):
        transactional_settings(weak, "id", bootstrap="b:1", client_id="c")


# -- a coordinator that is lost after a commit ----------------------------------------


def lose_coordinator(producer: Any) -> None:
    line = "[thrd:TxnCoordinator]: TxnCoordinator: b:1: Disconnected: receive 0 after POLLIN (after 99ms in state UP)"
    producer._broker_log.log(20, "%s [%s] %s", "FAIL", "id#producer-1", line)  # librdkafka writes it into this log


def commit(producer: Any) -> None:
    producer.commit_transaction({TopicPartition("in", 0): OffsetAndMetadata(3)}, MEMBER, 1000)


@pytest.mark.parametrize("doing", ["idle", "sending", "flushing"])
def test_client_is_dropped_at_once_when_the_coordinator_is_lost_after_a_commit(
    producer: Any, doing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer.produce("out", b"1", None)
    commit(producer)
    producer.poll()
    if doing != "idle":
        producer.produce("out", b"2", None)
    first = client_of(producer)
    if doing == "flushing":
        monkeypatch.setattr(first, "flush", lambda timeout_s: lose_coordinator(producer) or 1)
        producer.flush(60_000)
    else:
        lose_coordinator(producer)
        producer.poll()
    for call in (producer.check, lambda: producer.produce("out", b"3", None), lambda: commit(producer)):
        with pytest.raises(TaskCorruptedError, match="the transaction coordinator was lost"):
            call()
    assert ("produce", "out", b"3") not in first.calls
    producer.reset()
    producer.produce("out", b"2", None)
    commit(producer)
    assert client_of(producer).calls[:2] == [("init",), ("begin",)]
    producer.check()


@pytest.mark.parametrize("call", ["produce", "commit"])
def test_no_transaction_begins_after_the_coordinator_was_lost_while_nobody_polled(producer: Any, call: str) -> None:
    """User code was busy meanwhile: a record could be acknowledged before the next poll, and would count as written."""
    producer.produce("out", b"1", None)
    commit(producer)
    first = client_of(producer)
    calls = len(first.calls)
    lose_coordinator(producer)
    with pytest.raises(TaskCorruptedError, match="the transaction coordinator was lost"):
        _ = producer.produce("out", b"2", None) if call == "produce" else commit(producer)
    assert not {"begin", "produce", "commit"} & {made[0] for made in first.calls[calls:]}


def test_coordinator_that_is_lost_while_it_commits_is_asked_by_a_new_client(
    producer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer.produce("out", b"1", None)
    monkeypatch.setattr(client_of(producer), "commit_transaction", lambda timeout_s: lose_coordinator(producer))
    commit(producer)
    producer.poll()
    with pytest.raises(TaskCorruptedError):
        producer.produce("out", b"2", None)


def test_what_was_written_after_the_coordinator_was_lost_is_committed_and_then_looked_after(producer: Any) -> None:
    producer.track(["log"])
    producer.produce("log", b"1", None, 0)
    commit(producer)
    producer.produce("log", b"2", None, 0)
    producer._acked[TopicPartition("log", 0)] = object()  # a report
    lose_coordinator(producer)
    producer.poll()
    producer.produce("log", b"3", None, 0)
    commit(producer)
    producer.poll()
    with pytest.raises(TaskCorruptedError):
        producer.check()


def test_coordinator_that_is_lost_before_a_commit_costs_nothing(producer: Any) -> None:
    producer.produce("out", b"1", None)
    lose_coordinator(producer)
    producer.poll()
    commit(producer)
    producer.poll()
    producer.check()
    producer.produce("out", b"2", None)
