"""The input and output records of the application."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from streams_py.testing.torture.history import Entry, History, entry_bytes, read_entry

_DELIVERY_S: Final = 600
_STEP_S: Final = 0.05
_BATCH: Final = 2_000


def write_aborted(connection: Mapping[str, Any], topic: str, records: int) -> None:
    """Write records in a transaction and abort it. The application must never process them."""
    producer = Producer({**connection, "transactional.id": f"{topic}-aborted"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, entry_bytes(Entry(-1 - number, (), "")), b"aborted-%d" % number)
    producer.flush(60)
    producer.abort_transaction(60)


class Feeder:
    """Writes the numbers 0, 1, 2, ... of each key, all keys in turn, until :meth:`stop`.

    It writes ``rate`` records/s. It waits while more than ``ahead_max`` records are not ``done`` yet, so a slow machine
    gets less input instead of a backlog.
    """

    def __init__(
        self,
        connection: Mapping[str, Any],
        topic: str,
        *,
        keys: int,
        rate: float,
        ahead_max: int,
        done: Callable[[], int],
    ) -> None:
        self.written = {f"key-{number}": 0 for number in range(keys)}
        self._problem: BaseException | None = None
        self._topic = topic
        self._rate = rate
        self._ahead_max = ahead_max
        self._done = done
        self._ends = threading.Event()
        self._producer = Producer(
            {
                **connection,
                "enable.idempotence": True,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "delivery.timeout.ms": _DELIVERY_S * 1000,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def total(self) -> int:
        return sum(self.written.values())

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until all records are acknowledged. Raises RuntimeError if a record was not."""
        self._ends.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raise RuntimeError if a record could not be written."""
        if self._problem is not None:
            raise RuntimeError(f"the input could not be written: {self._problem}") from self._problem

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as problem:
            self._problem = problem

    def _write(self) -> None:
        began, written, keys = time.monotonic(), 0, list(self.written)
        while not self._ends.is_set():
            due = min(int((time.monotonic() - began) * self._rate), written + _BATCH)
            allowed = self._done() + self._ahead_max
            if due > allowed:  # the rate is not increased later to make up for this wait
                due = max(written, allowed)
                began = time.monotonic() - due / self._rate
            for number in range(written, due):
                key = keys[number % len(keys)]
                self._produce(key, self.written[key])
                self.written[key] += 1
            written = max(written, due)
            self._producer.poll(0)
            self._ends.wait(_STEP_S)
        if self._producer.flush(_DELIVERY_S):
            raise TimeoutError(f"not acknowledged within {_DELIVERY_S} s")

    def _produce(self, key: str, number: int) -> None:
        value = entry_bytes(Entry(number, (), ""))
        while True:
            try:
                self._producer.produce(self._topic, value, key.encode(), on_delivery=self._on_delivery)
            except BufferError:  # the cluster is not available
                self._producer.poll(0.2)
            else:
                return

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._problem = KafkaException(error)


def reader(connection: Mapping[str, Any], topic: str, partitions: int) -> Consumer:
    """Return a consumer of the committed records of a topic, from the beginning. It also reports ends of partitions.

    The caller gives the number of partitions, because the brokers may not know a topic yet that was just created.
    """
    consumer = Consumer(
        {
            **connection,
            "group.id": "torture",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    return consumer


class Reader:
    """Reads the output and passes it to a history, on a separate thread."""

    def __init__(self, connection: Mapping[str, Any], topic: str, partitions: int, history: History) -> None:
        self._consumer = reader(connection, topic, partitions)
        self._history = history
        self._ends = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()
        self._consumer.close()
        self.check()

    def check(self) -> None:
        """Raise RuntimeError if reading has failed."""
        if self._problem is not None:
            raise RuntimeError(f"the output could not be read: {self._problem}") from self._problem

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                for message in self._consumer.consume(_BATCH, 0.2):
                    if message.error() is None:
                        key, value = message.key() or b"", message.value() or b""
                        at = (message.partition() or 0, message.offset() or 0)
                        self._history.add_record(*at, key.decode(), read_entry(value), message.timestamp()[1])
        except BaseException as problem:
            self._problem = problem


def last_counts(
    connection: Mapping[str, Any], changelog: str, partitions: int, wait: Callable[[], None]
) -> dict[str, int]:
    """Read a changelog and return the last count of each key. ``wait`` is called between polls, and may raise."""
    consumer = reader(connection, changelog, partitions)
    left = set(range(partitions))
    found: dict[str, int] = {}
    while left:
        wait()
        for message in consumer.consume(_BATCH, 0.2):
            error = message.error()
            if error is None:
                value = message.value()
                key = (message.key() or b"").decode()
                if value is None:
                    found.pop(key, None)
                else:
                    found[key] = int.from_bytes(value[-8:], "big")
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    consumer.close()
    return found
