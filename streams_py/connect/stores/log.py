"""A compacted topic as a table: read from its beginning, then followed by a thread.

Source: Kafka's ``KafkaBasedLog``.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection

from streams_protocol.types import TopicPartition
from streams_py.connect.ports import ConnectClients, Delivered
from streams_py.errors import BrokerUnavailableError, ConfigError, StreamsError, TimeoutExceededError
from streams_py.ports import BEGINNING, Admin, AdminError, AdminErrorKind, RawRecord, TopicSpec
from streams_py.system.printable import text_of

_log = logging.getLogger("streams_py.connect")

_POLL_MS = 100
_BATCH = 500
_RETRY_S = 0.5
_LEADER_RETRY_S = 0.1


def create_topic(
    clients: ConnectClients, admin: Admin, topic: str, *, partitions: int, replication: int, setting: str
) -> int:
    """Create a compacted topic, or check an existing one. Returns its number of partitions.

    Raises:
        ConfigError: The topic is not compacted, so the broker would delete old records and lose settings.
        BrokerUnavailableError: The topic cannot be created or described.
    """
    spec = TopicSpec(topic, partitions, replication, {"cleanup.policy": "compact"})
    failure = admin.create_topics([spec])[topic]
    if failure is not None and failure.kind is not AdminErrorKind.ALREADY_EXISTS and not _is_there(admin, topic):
        raise BrokerUnavailableError(f"topic {topic} ({setting}) cannot be created: {failure.message}")
    deadline = time.monotonic() + 30
    while True:
        found = admin.describe_topics([topic])[topic]
        if not isinstance(found, AdminError) and found:
            break
        if time.monotonic() > deadline:
            raise BrokerUnavailableError(f"topic {topic} ({setting}) cannot be described: {found}")
        time.sleep(0.1)
    if failure is not None and (policy := clients.topic_cleanup_policy(topic)) != "compact":
        raise ConfigError(
            f"topic {topic} ({setting}) has cleanup.policy={policy}, which loses records; set it to compact",
            key=setting,
        )
    return len(found)


def _is_there(admin: Admin, topic: str) -> bool:
    """Whether the topic exists.

    A user without CREATE gets an authorization error even for existing topics.
    """
    found = admin.describe_topics([topic])[topic]
    return not isinstance(found, AdminError) and bool(found)


class TopicLog:
    """Reads a topic and writes to it.

    ``on_record`` gets every record, in the order of its partition. :meth:`start` calls it on the caller's thread until
    the end of the topic. Afterwards a separate thread calls it.
    """

    def __init__(
        self, clients: ConnectClients, admin: Admin, topic: str, client_id: str, on_record: Callable[[RawRecord], None]
    ) -> None:
        self._clients = clients
        self._admin = admin
        self._topic = topic
        self._client_id = f"{client_id}-{topic}"
        self._on_record = on_record
        self._changed = threading.Condition()
        self._positions: dict[TopicPartition, int] = {}
        self._stopping = threading.Event()
        self._sending = threading.Lock()
        self._partitions: Collection[TopicPartition] = ()
        self._thread: threading.Thread | None = None

    def start(self, partitions: int, timeout_s: float = 60.0) -> None:
        """Read the topic to its end. Raises BrokerUnavailableError after the timeout."""
        self._consumer = self._clients.log_consumer(self._client_id)
        self._producer = self._clients.producer(self._client_id, {"linger.ms": "0"})
        self._partitions = [TopicPartition(self._topic, n) for n in range(partitions)]
        self._consumer.assign(dict.fromkeys(self._partitions, BEGINNING))
        deadline = time.monotonic() + timeout_s
        ends = self._ends(deadline)
        while not self._has_read(ends):
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(f"{self._topic} could not be read to its end within {timeout_s:.0f} s")
            self._read()
        self._thread = threading.Thread(target=self._follow, name=f"connect-log-{self._topic}", daemon=True)
        self._thread.start()

    def read_to_end(self, timeout_s: float) -> bool:
        """Wait until all present records of the topic are processed.

        Returns False after the timeout.
        """
        deadline = time.monotonic() + timeout_s
        try:
            ends = self._ends(deadline)
        except StreamsError as error:
            _log.warning("cannot fetch the end offsets of %s: %s", self._topic, error)
            return False
        with self._changed:
            return self._changed.wait_for(
                lambda: self._stopping.is_set() or self._has_read(ends), max(0.0, deadline - time.monotonic())
            )

    def send(self, key: bytes, value: bytes | None, on_delivery: Delivered) -> None:
        """Queue a record. ``on_delivery`` may be called on any thread."""
        with self._sending:
            self._producer.send(self._topic, key, value, on_delivery)

    def write(self, key: bytes, value: bytes | None, timeout_s: float) -> None:
        """Send a record and wait. Raises the error of the send, or TimeoutExceededError."""
        self.write_all([(key, value)], timeout_s)

    def write_all(self, records: Collection[tuple[bytes, bytes | None]], timeout_s: float) -> None:
        """Send records and wait until all are acknowledged.

        Raises the first error, or TimeoutExceededError.
        """
        failures: list[Exception] = []
        left = len(records)
        done = threading.Event()

        def delivered(error: Exception | None, _partition: TopicPartition) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                failures.append(error)
            if not left:
                done.set()

        for key, value in records:
            self.send(key, value, delivered)
        deadline = time.monotonic() + timeout_s
        while records and not done.wait(0.002):
            with self._sending:
                self._producer.poll(0)
            if time.monotonic() > deadline:
                raise TimeoutExceededError(
                    f"{self._topic}: some records were not acknowledged within {timeout_s:.0f} s"
                )
        if failures:
            raise failures[0]

    def flush(self, timeout_s: float) -> bool:
        """Wait for sent records. Returns False if some are still queued."""
        with self._sending:
            return self._producer.flush(int(timeout_s * 1000)) == 0

    def stop(self) -> None:
        """Stop the thread and close the clients. Also call it after a failed start."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        if self._partitions:
            self._consumer.close()
            with self._sending:
                self._producer.flush(2_000)
                self._producer.close()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read()
                with self._sending:
                    self._producer.poll(0)
            except Exception as error:  # without this thread, the worker's view would never change again
                _log.warning("reading %s failed; retrying: %s", self._topic, text_of(error))
                self._stopping.wait(_RETRY_S)

    def _read(self) -> None:
        records = self._consumer.poll(_BATCH, _POLL_MS)
        for record in records:
            try:
                self._on_record(record)
            except Exception:
                _log.exception("%s: the record at offset %d failed; skipping it", self._topic, record.offset())
        with self._changed:
            for partition in self._partitions:
                position = self._consumer.position(partition)
                if position is not None and position >= 0:
                    self._positions[partition] = position
            self._changed.notify_all()

    def _has_read(self, ends: dict[TopicPartition, int]) -> bool:
        return all(end == 0 or self._positions.get(partition, -1) >= end for partition, end in ends.items())

    def _ends(self, deadline: float) -> dict[TopicPartition, int]:
        """Fetch end offsets.

        Retries, because new topics and topics of a failed broker have no leader for a moment.
        """
        while True:
            found = self._admin.list_offsets(self._partitions)
            unknown = {partition: end for partition, end in found.items() if isinstance(end, AdminError)}
            if not unknown:
                return {partition: end for partition, end in found.items() if not isinstance(end, AdminError)}
            if time.monotonic() > deadline or self._stopping.is_set():
                partition, error = next(iter(unknown.items()))
                raise BrokerUnavailableError(f"cannot fetch the end offset of {partition}: {error.message}")
            time.sleep(_LEADER_RETRY_S)


class LoggedStore(ABC):
    """The content of a topic whose keys belong to many connectors. Thread-safe."""

    def __init__(self, make_log: Callable[[Callable[[RawRecord], None]], TopicLog], partitions: int) -> None:
        self._lock = threading.Lock()
        self._partitions = partitions
        self._log = make_log(self._read)

    def start(self) -> None:
        """Read the topic to its end. Raises BrokerUnavailableError after the timeout."""
        self._log.start(self._partitions)

    def stop(self) -> None:
        """Stop reading. Also call it after a failed start."""
        self._log.stop()

    @abstractmethod
    def _read(self, record: RawRecord) -> None:
        """Process a record of the topic, in the order of its partition."""
