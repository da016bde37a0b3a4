"""The admin client: requests that work on the mock cluster, and errors when no broker answers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import ConfluentClients
from streams_py.adapters.confluent.admin import _on_deletion  # the mock cluster gives no such errors
from streams_py.adapters.confluent.broker_log import BrokerLog
from streams_py.adapters.confluent.embedded.mock_library import MockCluster
from streams_py.adapters.confluent.producer import ConfluentProducer
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError, ConfigError
from streams_py.ports import Admin, AdminError, AdminErrorKind, TopicSpec
from tests.support.waiting import until

AWAY = "127.0.0.1:1"


@pytest.fixture
def admin_of_nobody() -> Admin:
    config = StreamsConfig.of({"application.id": "app", "bootstrap.servers": AWAY, "admin.default.api.timeout.ms": 300})
    return ConfluentClients(config).admin()


def test_offsets_are_listed_with_an_error_for_each_unknown_partition(
    topic: str, clients: ConfluentClients, producer: ConfluentProducer
) -> None:
    for _ in range(3):
        producer.produce(topic, b"v", b"k", 1, None, 1, None)
    producer.flush(5_000)
    admin = clients.admin()
    written, empty, unknown = TopicPartition(topic, 1), TopicPartition(topic, 0), TopicPartition(topic, 9)
    latest = admin.list_offsets([written, empty, unknown])
    assert (latest[written], latest[empty]) == (3, 0)
    error = latest[unknown]
    assert isinstance(error, AdminError)
    assert error.kind is AdminErrorKind.UNKNOWN_TOPIC
    assert admin.list_offsets([written], earliest=True) == {written: 0}
    admin.close()


def test_nothing_asked_is_nothing_answered(admin_of_nobody: Admin) -> None:
    assert admin_of_nobody.list_offsets([]) == {}
    assert admin_of_nobody.create_topics([]) == {}
    assert admin_of_nobody.describe_topics([]) == {}
    assert admin_of_nobody.committed_offsets("group", []) == {}
    admin_of_nobody.delete_records({})


@pytest.mark.parametrize(
    ("doing", "ask"),
    [
        ("creating topics", lambda admin: admin.create_topics([TopicSpec("t", 1)])),
        ("describing topics", lambda admin: admin.describe_topics(["t"])),
        ("listing topics", lambda admin: admin.describe_topics()),
        ("reading topics' configurations", lambda admin: admin.delete_retention_ms(["t"])),
        ("listing offsets", lambda admin: admin.list_offsets([TopicPartition("t", 0)])),
        ("reading committed", lambda admin: admin.committed_offsets("g", [TopicPartition("t", 0)])),
    ],
)
def test_broker_unavailable_names_address_and_time_when_nobody_answers(doing: str, ask, admin_of_nobody: Admin) -> None:  # type: ignore[no-untyped-def]  # a lambda per request
    with pytest.raises(BrokerUnavailableError, match=rf"at {AWAY} within 300 ms while {doing}"):
        ask(admin_of_nobody)


@pytest.mark.parametrize("spec", [TopicSpec("new", 100_000_000), TopicSpec("new", 4, replication_factor=2**31 - 1)])
def test_number_that_the_library_takes_for_no_topic_is_an_answer(spec: TopicSpec, admin_of_nobody: Admin) -> None:
    answer = admin_of_nobody.create_topics([spec])["new"]
    assert isinstance(answer, AdminError)
    assert "out of expected range" in answer.message


def test_request_works_again_when_the_broker_is_back(cluster: MockCluster, topic: str) -> None:
    config = StreamsConfig.of(
        {
            "application.id": "app",
            "bootstrap.servers": cluster.bootstrap,
            "admin.default.api.timeout.ms": 500,
            "reconnect.backoff.max.ms": 100,
        }
    )
    admin, partition = ConfluentClients(config).admin(), TopicPartition(topic, 0)

    def answered(ask: Callable[[], object]) -> bool:
        with contextlib.suppress(BrokerUnavailableError):  # on a busy machine 500 ms may be short
            return bool(ask())
        return False

    def works() -> bool:
        ends = answered(lambda: admin.list_offsets([partition]) == {partition: 0})
        return ends and answered(lambda: admin.committed_offsets("group", [partition]) == {partition: None})

    until(works, "the first answers")
    cluster.stop_broker(1)
    try:
        with pytest.raises(BrokerUnavailableError):
            admin.list_offsets([partition])
    finally:
        cluster.start_broker(1)
    until(works, "the answers of the broker that is back")


def test_failed_deletion_is_only_logged(
    topic: str, clients: ConfluentClients, caplog: pytest.LogCaptureFixture
) -> None:
    admin = clients.admin()
    admin.delete_records({TopicPartition(topic, 0): 1})  # the mock has no such request
    until(lambda: caplog.records, "the warning")
    assert "cannot be deleted" in caplog.text


def test_config_error_at_once_when_an_admin_setting_is_unknown(cluster: MockCluster) -> None:
    config = StreamsConfig.of(
        {"application.id": "app", "bootstrap.servers": cluster.bootstrap, "admin.no.such.key": "1"}
    )
    with pytest.raises(ConfigError, match=r"admin client: no\.such\.key is not a setting"):
        ConfluentClients(config).admin()


def test_deletion_without_known_leaders_is_a_warning_only_when_it_fails_again(caplog: pytest.LogCaptureFixture) -> None:
    partition, doubted, undeleted = TopicPartition("app-step-repartition", 0), threading.Event(), set[TopicPartition]()
    log = BrokerLog("client", "broker:9092")

    def fail() -> None:
        failed: Future[None] = Future()
        failed.add_done_callback(_on_deletion(partition, log, doubted, undeleted))
        failed.set_exception(KafkaException(KafkaError(KafkaError._NOENT, "No leaders found")))

    fail()
    assert doubted.is_set()
    assert not caplog.records
    fail()
    assert "records of app-step-repartition-0 cannot be deleted" in caplog.text
    deleted: Future[None] = Future()
    deleted.add_done_callback(_on_deletion(partition, log, doubted, undeleted))
    deleted.set_result(None)
    caplog.clear()
    fail()
    assert not caplog.records
