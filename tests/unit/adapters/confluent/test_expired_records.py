"""Records expire when other members may have their task by now, and are never sent.

No broker listens where these records go. A mock cluster that stops may still answer that it has no brokers. librdkafka
then ends the thread of the broker that has the records, and never gives these records up.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from streams_py.adapters.confluent import ConfluentClients
from streams_py.adapters.confluent.embedded.mock_library import MockCluster
from streams_py.adapters.confluent.producer import ConfluentProducer
from streams_py.adapters.confluent.send_queue import waiting_records
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ProductionError, RecordsExpiredError
from tests.support.waiting import until

AWAY = "127.0.0.1:1"
_SESSION_MS = 1_500
_FREEZES = 2
_FREEZES_MAX = 20


def test_what_a_frozen_process_had_on_its_way_is_not_sent_when_it_goes_on(cluster: MockCluster, topic: str) -> None:
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    place = TopicPartition(topic, 0)

    def end() -> int:
        return int(reader.get_watermark_offsets(place, 10)[1])

    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.support.confluent.frozen_producer", cluster.bootstrap, topic, str(_SESSION_MS)],
        stdout=subprocess.PIPE,
        text=True,
    )
    said: list[str] = []
    try:
        cluster.set_round_trip(1, 20)  # some records always wait for the answers to earlier ones
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writes\n"
        threading.Thread(target=lambda: said.extend(writer.stdout or ()), daemon=True).start()
        for _ in range(_FREEZES_MAX):
            before = end()
            until(lambda: end() > before + 200, "records come in")  # noqa: B023  # called immediately
            frozen_at_ns = time.time_ns()
            writer.send_signal(signal.SIGSTOP)
            time.sleep(1.2 * _SESSION_MS / 1000)
            goes_on_at = end()
            writer.send_signal(signal.SIGCONT)
            until(lambda: end() > goes_on_at + 200, "records come in again")  # noqa: B023  # called immediately
            reader.assign([TopicPartition(topic, 0, goes_on_at)])
            values: list[int] = []

            def have_come() -> bool:
                found = reader.consume(200, 0.1)
                values.extend(int(record.value() or b"") for record in found if record.error() is None)  # noqa: B023
                return len(values) >= 200  # noqa: B023

            until(have_come, "the records to be read")
            assert min(values) > frozen_at_ns
            if len(said) >= _FREEZES:  # on a busy machine some freezes meet nothing that was on its way
                break
        assert said[:_FREEZES] == ["expired\n"] * _FREEZES
    finally:
        writer.kill()
        writer.wait()
        cluster.set_round_trip(1, 0)
        reader.close()


def clients_of(**keys: object) -> ConfluentClients:
    given = {"application.id": "app", "bootstrap.servers": AWAY, "session.timeout.ms": 300, **keys}
    return ConfluentClients(StreamsConfig.of(given))


def failure_of(producer: ConfluentProducer, topic: str) -> ProductionError:
    producer.produce(topic, b"v", b"k", 0, None, -1, None)
    until(lambda: producer.flush(1_000) == 0, "the record to be given up")
    with pytest.raises(ProductionError, match=f"{topic}-0") as raised:
        producer.check()
    return raised.value


def queue_of(producer: ConfluentProducer) -> tuple[int, int]:
    """Records and kB."""
    queue = producer._queue  # librdkafka does not show the settings of a client
    assert queue is not None
    now: Any = {**producer._settings, **queue.settings}  # see above
    return now["queue.buffering.max.messages"], now["queue.buffering.max.kbytes"]


class TalkativeClient:
    """A client of librdkafka. A flush that has time writes its records, and meets events that it does not serve."""

    def __init__(self, records: int) -> None:
        self.records, self.events = records, 1

    def __len__(self) -> int:
        return self.records + self.events

    def poll(self, _timeout_s: float) -> int:
        served, self.events = self.events, 0
        return served

    def flush(self, timeout_s: float) -> int:
        if timeout_s > 0:
            self.records = 0
        self.events = 3
        return len(self)

    def close(self) -> None: ...

    def purge(self) -> None: ...


@contextlib.contextmanager
def talking(producer: ConfluentProducer, records: int) -> Iterator[None]:
    """Let a producer use a talkative client. A real one meets events when the network decides."""
    client: Any = TalkativeClient(records)
    used, producer._clients = producer._clients, {None: client}  # see above
    yield
    producer._clients = used  # see above


def test_queue_is_made_shorter_when_records_expire_again_before_anything_went_well() -> None:
    producer = clients_of().producer("thread-1")
    try:
        queues = []
        for _ in range(3):
            assert isinstance(failure_of(producer, "out"), RecordsExpiredError)
            producer.reset()
            queues.append(queue_of(producer))
        assert queues == [(100_000, 65_536), (50_000, 32_768), (25_000, 16_384)]
        for _ in range(3):
            with talking(producer, records=1):
                assert producer.flush(60_000) == 0
        producer.reset()
        assert queue_of(producer) == (100_000, 65_536)
    finally:
        producer.close()


@pytest.mark.parametrize("of_global_stores", [True, False])
def test_handler_is_asked_when_nobody_else_has_the_task_or_the_time_is_the_users(of_global_stores: bool) -> None:
    clients = clients_of(**{"producer.delivery.timeout.ms": 1_000})
    producer = clients.global_producer("global") if of_global_stores else clients.producer("thread-1")
    try:
        error = failure_of(producer, "out")
        assert error.retriable
        assert not isinstance(error, RecordsExpiredError)
        assert producer.overdue(0) == 0
    finally:
        producer.close()
    assert clients_of().global_producer("global")._queue is None  # its queue is never made shorter


def wait_for_events(producer: ConfluentProducer) -> None:
    """Wait until librdkafka's queue holds events. No record is queued."""
    until(lambda: len(producer._client(None)) > 0, "librdkafka to report the lost connection")  # its own queue


def test_records_are_overdue_that_wait_while_others_may_have_their_task() -> None:
    producer = clients_of(**{"session.timeout.ms": 600_000}).producer("thread-1")
    try:
        producer.produce("out", b"v", b"k", 0, None, -1, None)
        assert producer.overdue(1) == 1
        producer.reset()
        assert producer.overdue(1) == 0
    finally:
        producer.close()


@pytest.mark.parametrize("records", [0, 1, 2])
def test_errors_and_log_lines_of_the_library_are_not_counted_as_records(
    producer: ConfluentProducer, records: int
) -> None:
    with talking(producer, records):
        assert producer.flush(0) == records
        assert producer.overdue(0) == records


def test_client_that_always_has_events_is_not_counted_forever() -> None:
    client: Any = TalkativeClient(records=2)
    client.poll = lambda _timeout_s: 1
    assert waiting_records(client) == 3


def test_flush_that_finds_only_events_does_not_show_that_writing_goes_well() -> None:
    producer = clients_of().producer("thread-1")
    try:
        for _ in range(2):
            assert isinstance(failure_of(producer, "out"), RecordsExpiredError)
            producer.reset()
        assert queue_of(producer) == (50_000, 32_768)
        for _ in range(3):
            wait_for_events(producer)
            assert producer.flush(0) == 0
        producer.reset()
        assert queue_of(producer) == (50_000, 32_768)
    finally:
        producer.close()
