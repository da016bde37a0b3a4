"""What became of records that could not be written, on librdkafka's mock cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import ConfluentClients, refusals
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.adapters.confluent.embedded.mock_library import MockCluster
from streams_py.adapters.confluent.producer import ConfluentProducer
from streams_py.errors import BatchRefusedError, ProductionError, StreamsError
from tests.support.confluent.consuming import from_beginning, take

PRODUCE_REQUEST = 0
NOT_ENOUGH_REPLICAS = 19
TOPIC_AUTHORIZATION_FAILED = 29
INVALID_RECORD = 87
INVALID_TIMESTAMP = 32
POLICY_VIOLATION = 44
MSG_SIZE_TOO_LARGE = 10


@pytest.mark.parametrize("tracked", [True, False])
def test_first_failure_is_raised_by_the_next_call_and_then_forgotten(
    cluster: MockCluster, topic: str, producer: ConfluentProducer, tracked: bool
) -> None:
    producer.track([topic] if tracked else [])
    cluster.push_errors(PRODUCE_REQUEST, [INVALID_RECORD])
    producer.produce(topic, b"v", b"k", 1, None, 1, None)
    assert producer.flush(5_000) == 0
    with pytest.raises(ProductionError) as raised:
        producer.produce(topic, b"next", b"k", 1, None, 1, None)
    assert (raised.value.topic, raised.value.partition, raised.value.retriable) == (topic, 1, False)
    producer.check()
    producer.produce(topic, b"next", b"k", 1, None, 1, None)
    assert producer.flush(5_000) == 0
    producer.check()


def failures_of(producer: ConfluentProducer) -> list[tuple[str, int | None]]:
    """Topic and partition of everything that failed, asked for one by one."""
    found = []
    while True:
        try:
            producer.check()
        except ProductionError as error:
            found.append((error.topic, error.partition))
        else:
            return found


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("code", [INVALID_RECORD, POLICY_VIOLATION, INVALID_TIMESTAMP])
def test_every_refused_record_is_raised_once_when_the_broker_has_not_said_which_of_its_batch_it_means(
    cluster: MockCluster, topic: str, producer_with: Callable[..., ConfluentProducer], tracked: bool, code: int
) -> None:
    """The batches are refused as such first. Then their records go one by one, and each answer is for one of them."""
    producer, other = producer_with(linger_ms=200), f"{topic}-other"
    assert cluster.create_topic(other, 1) == 0
    producer.track([topic] if tracked else [])
    producer.partitions_for(topic)
    producer.partitions_for(other)

    def send_all() -> None:
        for number in range(5):
            producer.produce(topic, b"%d" % number, b"k", 1, None, 7, [("h", b"1")])
            producer.produce(other, b"%d" % number, b"k", 0, None, 7, None)
        assert producer.flush(10_000) == 0

    cluster.push_errors(PRODUCE_REQUEST, [code] * 2)
    send_all()
    refused = set()
    for _ in range(2):
        with pytest.raises(BatchRefusedError) as batch:
            producer.check()
        refused.add((batch.value.topic, batch.value.partition))
    assert refused == {(topic, 1), (other, 0)}
    producer.reset()
    cluster.push_errors(PRODUCE_REQUEST, [code])
    send_all()
    with pytest.raises(ProductionError) as raised:
        producer.check()
    record = raised.value.record
    assert not isinstance(raised.value, BatchRefusedError)
    assert record is not None
    assert (record.key, record.timestamp_ms) == (b"k", 7)
    assert record.headers == ((("h", b"1"),) if record.topic == topic else ())
    assert failures_of(producer) == []
    producer.produce(topic, b"next", b"k", 1, None, 1, None)
    assert producer.flush(5_000) == 0
    assert failures_of(producer) == []


def test_topic_is_written_in_batches_again_when_nothing_was_refused_for_a_while(
    cluster: MockCluster, topic: str, producer_with: Callable[..., ConfluentProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = producer_with(linger_ms=100)
    producer.partitions_for(topic)
    send, report, obstacles = producer.direct(topic)
    cluster.push_errors(PRODUCE_REQUEST, [INVALID_RECORD])
    for _ in range(2):
        send(topic, b"v", b"k", 1, report, None, 1, None)
    producer.flush(10_000)
    with pytest.raises(BatchRefusedError):
        producer.check()
    assert obstacles
    monkeypatch.setattr(refusals, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 3_600))
    assert producer.flush(1_000) == 0
    producer.poll()
    assert not obstacles


@pytest.mark.parametrize("headers", [None, [("h", b"x" * 6_000)]])
def test_record_that_is_too_large_by_its_headers_or_alone_in_its_batch_is_a_failure(
    cluster: MockCluster, topic: str, producer: ConfluentProducer, headers: list[tuple[str, bytes | None]] | None
) -> None:
    producer.partitions_for(topic)
    cluster.push_errors(PRODUCE_REQUEST, [MSG_SIZE_TOO_LARGE])
    producer.produce(topic, b"v", b"k", 1, None, 1, headers)
    assert producer.flush(10_000) == 0
    with pytest.raises(ProductionError) as raised:
        producer.check()
    assert not isinstance(raised.value, BatchRefusedError)
    assert raised.value.record is not None
    assert list(raised.value.record.headers) == (headers or [])


@pytest.mark.parametrize("tracked", [True, False])
def test_batch_that_is_too_large_is_told_once_and_its_topic_written_record_by_record_from_then_on(
    cluster: MockCluster,
    topic: str,
    producer_with: Callable[..., ConfluentProducer],
    consumer: ConfluentConsumer,
    tracked: bool,
) -> None:
    producer = producer_with(linger_ms=100)
    producer.track([topic] if tracked else [])
    producer.partitions_for(topic)
    cluster.push_errors(PRODUCE_REQUEST, [MSG_SIZE_TOO_LARGE])
    send, report, obstacles = producer.direct(topic, 1)

    def send_all() -> None:
        for number in range(10):
            send(topic, b"%d" % number, b"k", 1, report, None, number + 1, None)

    send_all()
    assert producer.flush(10_000) == 0
    with pytest.raises(BatchRefusedError, match=f"{topic}-1"):
        producer.check()
    assert failures_of(producer) == []
    assert obstacles, "what is sent directly goes in batches"
    send, report, _ = producer.direct(topic, 1)
    send_all()
    producer.produce(topic, b"10", b"k", 1, None, 11, None)
    assert producer.flush(5_000) == 0
    assert failures_of(producer) == []
    assert producer.acked_offsets() == ({TopicPartition(topic, 1): 10} if tracked else {})
    consumer.assign(from_beginning(topic, 1))
    assert [record.value() for record in take(consumer, 11)] == [b"%d" % number for number in range(11)]


def test_record_that_is_too_large_by_itself_is_a_failure(
    cluster: MockCluster, topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    producer.partitions_for(topic)
    cluster.push_errors(PRODUCE_REQUEST, [MSG_SIZE_TOO_LARGE] * 2)  # with its batch, then alone
    for _ in range(2):
        producer.produce(topic, b"large", b"k", 1, None, 1, None)
        assert producer.flush(10_000) == 0
        with pytest.raises(ProductionError) as raised:
            producer.check()
    assert not isinstance(raised.value, BatchRefusedError)
    producer.produce(topic, b"small", b"k", 1, None, 1, None)
    assert producer.flush(10_000) == 0
    assert failures_of(producer) == []
    consumer.assign(from_beginning(topic, 1))
    assert [record.value() for record in take(consumer, 1)] == [b"small"]


def test_batches_fit_the_limit_of_their_topic(topic: str, clients: ConfluentClients) -> None:
    asked: list[str] = []
    limits = {topic: 5_000, f"{topic}-large": 5_000_000, f"{topic}-unknown": None}

    def limit_of(name: str) -> int | None:
        asked.append(name)
        return limits[name]

    clients._batch_bytes_max = limit_of  # type: ignore[method-assign]  # the mock cluster has no limits
    producer = clients.producer("thread-1")
    try:
        small, large, unknown = (producer.direct(name).send for name in limits)
        assert small.__self__ is not large.__self__
        assert large.__self__ is unknown.__self__
        for _ in range(3):
            producer.produce(topic, b"x" * 4_000, b"k", 0, None, 1, None)
        assert asked == list(limits)
        assert len(small.__self__) == 3, "written by the client whose batches fit"
        assert producer.flush(10_000) == 0
        assert failures_of(producer) == []
    finally:
        producer.close()


@pytest.mark.parametrize("gone", ["nothing listed", "no partitions", "half of them"])
def test_partition_count_is_asked_for_again_when_the_answer_cannot_be(
    topic: str, producer: ConfluentProducer, gone: str
) -> None:
    parts = {"nothing listed": None, "no partitions": {}, "half of them": {0: 0, 2: 2}}[gone]
    lies = [None if parts is None else SimpleNamespace(error=None, partitions=parts)]
    ask = producer._list_topics  # the mock cluster does not lie
    # See above.
    producer._list_topics = lambda name, timeout_s: lies.pop() if lies else ask(name, timeout_s)  # type: ignore[method-assign]
    assert producer.partitions_for(topic) == 3
    assert lies == []


def test_topic_is_missing_when_the_broker_says_so_twice(producer: ConfluentProducer) -> None:
    missing = SimpleNamespace(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), partitions={})
    answers = [missing, missing]
    # The mock cluster creates a topic that is asked for.
    producer._list_topics = lambda name, timeout_s: answers.pop()  # type: ignore[method-assign]
    with pytest.raises(StreamsError, match="topic gone does not exist"):
        producer.partitions_for("gone")
    assert answers == []


def test_failure_is_retriable_when_the_broker_stayed_away(
    cluster: MockCluster, topic: str, producer_with: Callable[..., ConfluentProducer]
) -> None:
    producer = producer_with(delivery_timeout_ms=300, linger_ms=0)
    producer.partitions_for(topic)
    cluster.stop_broker(1)
    try:
        producer.produce(topic, b"v", b"k", 0, None, 1, None)
        assert producer.flush(10_000) == 0
    finally:
        cluster.start_broker(1)
    with pytest.raises(ProductionError, match=f"a record for {topic}-0 was not written") as raised:
        producer.check()
    assert raised.value.retriable


def test_no_handler_is_asked_when_the_failure_is_final(
    cluster: MockCluster, topic: str, producer: ConfluentProducer
) -> None:
    cluster.push_errors(PRODUCE_REQUEST, [TOPIC_AUTHORIZATION_FAILED])
    producer.produce(topic, b"v", b"k", 0, None, 1, None)
    producer.flush(5_000)
    with pytest.raises(StreamsError, match="no right WRITE on topic") as raised:
        producer.check()
    assert not isinstance(raised.value, ProductionError)


def test_record_too_large_is_a_failure_of_that_record_alone(
    topic: str, producer_with: Callable[..., ConfluentProducer]
) -> None:
    producer = producer_with(max_request_size=2_000)
    producer.produce(topic, b"x" * 5_000, b"k", 0, None, 1, None)
    with pytest.raises(ProductionError, match=r"too large|Message size"):
        producer.check()
    producer.produce(topic, b"small", b"k", 0, None, 1, None)
    assert producer.flush(5_000) == 0
    producer.check()


def test_transient_refusal_is_repeated_without_anybody_noticing(
    cluster: MockCluster, topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    cluster.push_errors(PRODUCE_REQUEST, [NOT_ENOUGH_REPLICAS] * 3)
    for number in range(20):
        producer.produce(topic, b"%d" % number, b"k", 0, None, 1, None)
    assert producer.flush(10_000) == 0
    producer.check()
    consumer.assign(from_beginning(topic, 0))
    assert [record.value() for record in take(consumer, 20)] == [b"%d" % number for number in range(20)]


def test_partition_that_does_not_exist_is_a_failure(topic: str, producer: ConfluentProducer) -> None:
    producer.partitions_for(topic)
    producer.produce(topic, b"v", b"k", 99, None, 1, None)
    producer.flush(5_000)
    with pytest.raises(ProductionError, match=f"{topic}-99"):
        producer.check()
