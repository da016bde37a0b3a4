"""The embedded cluster: shared by processes, alive while anybody uses it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import ConfluentClients, EmbeddedCluster

# Whether the process of a cluster runs is of no use to users.
from streams_py.adapters.confluent.embedded.cluster import _folder, _is_running, embedded_name, refuse_unsupported
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError, ConfigError, StreamsError
from streams_py.ports import AdminError, AdminErrorKind, TopicSpec
from tests.support.confluent.consuming import from_beginning, take

NAME = f"test-{os.getpid()}"


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster.join(NAME) as cluster:
        yield cluster


@pytest.fixture
def embedded(shared: EmbeddedCluster) -> Iterator[ConfluentClients]:
    clients = ConfluentClients(StreamsConfig.of({"application.id": "app", "bootstrap.servers": f"embedded://{NAME}"}))
    yield clients
    clients.close()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < limit, f"never: {what}"
        time.sleep(0.05)


def has_ended(name: str) -> bool:
    return not _is_running(_folder(name))


def in_another_process(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from streams_py.adapters.confluent import EmbeddedCluster\n" + code],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )


def test_all_processes_with_one_name_share_one_cluster(shared: EmbeddedCluster) -> None:
    other = in_another_process(
        f"c = EmbeddedCluster.join({NAME!r}); c.create_topic('by-another', 5); print(c.bootstrap)"
    )
    assert other.communicate(timeout=120)[0].strip() == shared.bootstrap
    clients = ConfluentClients(StreamsConfig.of({"application.id": "app", "bootstrap.servers": f"embedded://{NAME}"}))
    described = clients.admin().describe_topics(["by-another"])["by-another"]
    assert isinstance(described, tuple)
    assert [info.partition for info in described] == [0, 1, 2, 3, 4]
    clients.close()


def test_cluster_outlives_the_process_that_started_it_and_ends_after_the_last() -> None:
    name = f"{NAME}-kill"
    first = in_another_process(
        f"c = EmbeddedCluster.join({name!r}); c.create_topic('kept', 2); print('up', flush=True); input()"
    )
    assert first.stdout is not None
    assert first.stdout.readline() == "up\n"
    second = EmbeddedCluster.join(name)
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=120)
    time.sleep(2.5)  # longer than the server waits for somebody
    assert not has_ended(name)
    with pytest.raises(StreamsError, match="kept could not be created: error 36"):
        second.create_topic("kept", 2)  # its data is still there
    second.close()
    wait_until(lambda: has_ended(name), "the server ends")
    with EmbeddedCluster.join(name) as anew:
        anew.create_topic("kept", 2)


def test_two_clusters_with_different_names_are_strangers(shared: EmbeddedCluster) -> None:
    with EmbeddedCluster.join(f"{NAME}-b", brokers=3) as other:
        assert other.bootstrap != shared.bootstrap
        assert (other.brokers, len(other.bootstrap.split(","))) == (3, 3)


def test_many_processes_that_arrive_together_start_one_server() -> None:
    name = f"{NAME}-rush"
    arriving = [
        in_another_process(f"c = EmbeddedCluster.join({name!r}); print(c.bootstrap, flush=True); input()")
        for _ in range(4)
    ]
    addresses = {process.stdout.readline() for process in arriving if process.stdout}
    for process in arriving:
        process.communicate("\n", timeout=120)
    assert len(addresses) == 1


def test_cluster_starts_in_a_process_with_many_open_files() -> None:
    """Descriptors above 1023 are common in an application with RocksDB stores; ``select()`` refuses them."""
    with contextlib.ExitStack() as files:
        while files.enter_context(open(os.devnull, "rb")).fileno() < 1100:
            pass
        files.enter_context(EmbeddedCluster.join(f"{NAME}-files"))


def test_answer_is_an_error_when_the_server_is_gone() -> None:
    cluster = EmbeddedCluster.join(f"{NAME}-gone")
    pid = cluster._do("info")["pid"]  # users have no use for it
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: has_ended(f"{NAME}-gone"), "the server is killed")
    with pytest.raises(BrokerUnavailableError, match="does not answer"):
        cluster.create_topic("t", 1)
    cluster.close()
    with EmbeddedCluster.join(f"{NAME}-gone") as anew:  # what the dead one left does not disturb
        anew.create_topic("t", 1)


# -- the ports ---------------------------------------------------------------------------------------------------------


def test_admin_creates_describes_and_lists(embedded: ConfluentClients) -> None:
    admin = embedded.admin()
    assert admin.create_topics([TopicSpec("a", 2, config={"cleanup.policy": "compact"}), TopicSpec("b", 1, 3)]) == {
        "a": None,
        "b": None,
    }
    again = admin.create_topics([TopicSpec("a", 2)])["a"]
    assert isinstance(again, AdminError)
    assert again.kind is AdminErrorKind.ALREADY_EXISTS
    described = admin.describe_topics(["a", "missing"])
    infos, missing = described["a"], described["missing"]
    assert isinstance(infos, tuple)
    assert [(info.partition, info.leader, info.replicas) for info in infos] == [(0, 1, (1,)), (1, 1, (1,))]
    assert isinstance(missing, AdminError)
    assert missing.kind is AdminErrorKind.UNKNOWN_TOPIC
    assert "missing" not in admin.describe_topics()  # asking did not create it
    assert admin.list_offsets([TopicPartition("a", 0)]) == {TopicPartition("a", 0): 0}
    assert admin.committed_offsets("group", [TopicPartition("a", 0)]) == {TopicPartition("a", 0): None}
    admin.close()


def test_deleted_records_are_gone_and_count_as_no_loss(embedded: ConfluentClients) -> None:
    admin, producer = embedded.admin(), embedded.producer("t")
    admin.create_topics([TopicSpec("purged", 1)])
    for number in range(10):
        producer.produce("purged", b"v", b"k", 0, None, number + 1, None)
        producer.flush(5_000)  # a batch each: whole batches are deleted
    partition = TopicPartition("purged", 0)
    admin.delete_records({partition: 4})
    assert admin.list_offsets([partition], earliest=True) == {partition: 4}
    assert embedded.embedded is not None
    assert embedded.embedded.lost() == ()
    producer.close()


def test_record_with_timestamp_zero_is_written(embedded: ConfluentClients) -> None:
    embedded.admin().create_topics([TopicSpec("epoch", 1)])
    producer, consumer = embedded.producer("t"), embedded.main_consumer("t")
    producer.produce("epoch", b"v", b"k", -1, None, 0, None)
    producer.close()
    consumer.assign(from_beginning("epoch", 0))
    assert take(consumer, 1)[0].timestamp() == (1, 0)
    consumer.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits can be raised on Linux only")
def test_partition_keeps_more_than_the_mocks_five_megabytes(embedded: ConfluentClients) -> None:
    embedded.admin().create_topics([TopicSpec("large", 1)])
    producer = embedded.producer("t")
    for number in range(8_000):
        producer.produce("large", b"x" * 1_000, b"k", 0, None, number + 1, None)
    producer.close()
    partition = TopicPartition("large", 0)
    admin = embedded.admin()
    assert (admin.list_offsets([partition], earliest=True), admin.list_offsets([partition])) == (
        {partition: 0},
        {partition: 8_000},
    )


def test_round_trip_and_errors_can_be_injected(shared: EmbeddedCluster, embedded: ConfluentClients) -> None:
    admin = embedded.admin()
    admin.describe_topics()
    shared.set_round_trip(300)
    try:
        began_s = time.monotonic()
        admin.describe_topics()
        assert time.monotonic() - began_s > 0.25
    finally:
        shared.set_round_trip(0)
    shared.push_errors(3, [])
    with pytest.raises(StreamsError):
        shared.start_broker(99)


# -- names and refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bootstrap", "name"),
    [("embedded", "default"), ("embedded://", "default"), ("embedded://my-app_2", "my-app_2"), ("host:9092", None)],
)
def test_name_is_read_from_the_address(bootstrap: str, name: str | None) -> None:
    assert embedded_name(bootstrap) == name


@pytest.mark.parametrize(
    "bootstrap", ["embedded://../etc", "embedded://a/b", "embedded:9092x", "embedded://" + "x" * 33]
)
def test_name_refused_when_it_is_no_plain_word(bootstrap: str) -> None:
    with pytest.raises(ConfigError, match="use embedded, or embedded://name"):
        embedded_name(bootstrap)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("group.instance.id", "a", "does not support static members"),
        ("consumer.group.instance.id", "a", "does not support static members"),
        ("security.protocol", "SSL", "no security"),
        ("producer.sasl.password", "geheim", "no security"),
    ],
)
def test_setting_refused_with_what_to_use_instead_when_the_mock_cannot_keep_its_promise(
    key: str, value: str, why: str
) -> None:
    config = StreamsConfig.of({"application.id": "app", "bootstrap.servers": "embedded", key: value})
    with pytest.raises(ConfigError, match=f"{why}.*docker compose up -d") as refused:
        refuse_unsupported(config)
    assert "geheim" not in str(refused.value)


def test_plaintext_is_no_reason_to_refuse() -> None:
    refuse_unsupported(
        StreamsConfig.of({"application.id": "app", "bootstrap.servers": "embedded", "security.protocol": "PLAINTEXT"})
    )
