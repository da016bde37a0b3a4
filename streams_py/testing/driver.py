"""TopologyTestDriver: run a topology in a unit test, record by record.

    with TopologyTestDriver(topology) as driver:
        words = driver.input_topic("words", key=serdes.STRING, value=serdes.STRING)
        counts = driver.output_topic("counts", key=serdes.STRING, value=serdes.INT64)
        words.send("k", "hello world", timestamp_ms=5)
        assert counts.read_to_dict() == {"hello": 1, "world": 1}

The driver runs the tasks of the runtime, one for each sub-topology and partition number, without Kafka, threads and
files. When ``send`` returns, the record has been processed down to the last output, and committed, so record caches
never delay output. The clock moves only when a test advances it. Equivalent of Kafka Streams' class of the same name
(KIP-247, KIP-470).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Generic, TypeVar

from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import IllegalStateError, TopologyError
from streams_py.ports import Headers
from streams_py.ports.record_headers import headers_of, written_headers
from streams_py.runtime.client.metrics import At, Metrics, task_metrics
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.serdes import Serde, SerdeDefaults
from streams_py.state.opening.stores import Store
from streams_py.testing.in_process import InProcessTasks
from streams_py.testing.memory_clients import ManualClock, MemoryRecord
from streams_py.topology.declare.durations import Duration, duration_ms
from streams_py.topology.declare.processor import Record
from streams_py.topology.missing_serdes import check_serdes
from streams_py.topology.partitioning import partition_for
from streams_py.topology.topology import Topology

K = TypeVar("K")
V = TypeVar("V")

_DEFAULTS = {"application.id": "test", "bootstrap.servers": "embedded"}


class InputTopic(Generic[K, V]):
    """Writes records to a topic that the topology reads. Created by :meth:`TopologyTestDriver.input_topic`.

    ``advance`` (a ``timedelta`` or milliseconds) is the difference between the timestamps of consecutive records.
    """

    def __init__(
        self,
        driver: TopologyTestDriver,
        name: str,
        key: Serde[K],
        value: Serde[V],
        start_ms: int | None = None,
        advance: Duration = 0,
    ) -> None:
        self.name = name
        """Name of the topic."""
        self._driver = driver
        self._encode_key = key.serializer(name, is_key=True)
        self._encode_value = value.serializer(name, is_key=False)
        self._advance_ms = duration_ms(advance, f"advance of the input topic {name}")
        self._next_ms = driver.wall_clock_ms if start_ms is None and self._advance_ms else start_ms

    def advance_time(self, duration: Duration) -> None:
        """Advance the timestamp of the next record without a timestamp, by a ``timedelta`` or milliseconds."""
        now_ms = self._driver.wall_clock_ms if self._next_ms is None else self._next_ms
        self._next_ms = now_ms + duration_ms(duration, f"advance_time of the input topic {self.name}")

    def _timestamp_ms(self, given: int | None) -> int | None:
        if given is not None or self._next_ms is None:
            return given
        now_ms = self._next_ms
        self._next_ms += self._advance_ms
        return now_ms

    def send(
        self,
        key: K | None,
        value: V | None,
        *,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Process one record. Raises the errors that would stop a stream thread.

        Args:
            timestamp_ms: Default: the time of this topic, if it was set (``start_ms``, ``advance`` or
                :meth:`advance_time`), otherwise the driver's clock.
            partition: Default: chosen by the key, as Kafka does; partition 0 for a null key.
        """
        self._driver.write(
            self.name,
            None if key is None else self._encode_key(key),
            None if value is None else self._encode_value(value),
            timestamp_ms=self._timestamp_ms(timestamp_ms),
            headers=headers,
            partition=partition,
        )

    def send_all(
        self, records: Iterable[tuple[K | None, V | None]], *, timestamp_ms: int | None = None, advance: Duration = 0
    ) -> None:
        """Process (key, value) pairs in order.

        All have the timestamp ``timestamp_ms``, or each is ``advance`` (a ``timedelta`` or milliseconds) after the
        previous one.
        """
        step_ms = duration_ms(advance, f"advance of records for {self.name}")
        if timestamp_ms is None and step_ms:
            timestamp_ms = self._driver.wall_clock_ms if self._next_ms is None else self._next_ms
        for number, (key, value) in enumerate(records):
            self.send(key, value, timestamp_ms=None if timestamp_ms is None else timestamp_ms + number * step_ms)

    def send_values(
        self, values: Iterable[V | None], *, timestamp_ms: int | None = None, advance: Duration = 0
    ) -> None:
        """Process records without a key, like :meth:`send_all`. ``advance`` is a ``timedelta`` or milliseconds."""
        self.send_all(((None, value) for value in values), timestamp_ms=timestamp_ms, advance=advance)

    def send_records(self, records: Iterable[Record[K | None, V | None]]) -> None:
        """Process records with their timestamps and headers, for example records read from an output topic."""
        for record in records:
            self.send(record.key, record.value, timestamp_ms=record.timestamp, headers=record.headers)


class OutputTopic(Generic[K, V]):
    """Reads the records that the topology wrote to a topic, from the first one. Each object has its own position."""

    def __init__(self, name: str, records: list[MemoryRecord], key: Serde[K], value: Serde[V]) -> None:
        self.name = name
        """Name of the topic."""
        self._records = records
        self._next = 0
        self._decode_key = key.deserializer(name, is_key=True)
        self._decode_value = value.deserializer(name, is_key=False)

    def __len__(self) -> int:
        """Return the number of records that were not read yet."""
        return len(self._records) - self._next

    def read(self) -> Record[K | None, V | None]:
        """Read the next record. Raises LookupError if all records were read."""
        if not len(self):
            raise LookupError(f"no more records in {self.name}: {self._next} were written, and all are read")
        raw = self._records[self._next]
        self._next += 1
        key, value = raw.key(), raw.value()
        return Record(
            None if key is None else self._decode_key(key),
            None if value is None else self._decode_value(value),
            raw.timestamp()[1],
            tuple(headers_of(raw) or ()),
        )

    @property
    def is_empty(self) -> bool:
        """Whether all records were read."""
        return not len(self)

    def read_value(self) -> V | None:
        """Read the next record and return its value. Raises LookupError if all records were read."""
        return self.read().value

    def read_pair(self) -> tuple[K | None, V | None]:
        """Read the next record and return (key, value). Raises LookupError if all records were read."""
        record = self.read()
        return record.key, record.value

    def read_all(self) -> list[Record[K | None, V | None]]:
        """Read all remaining records."""
        return [self.read() for _ in range(len(self))]

    def read_values(self) -> list[V | None]:
        """Read all remaining records and return their values."""
        return [record.value for record in self.read_all()]

    def read_pairs(self) -> list[tuple[K | None, V | None]]:
        """Read all remaining records and return their (key, value) pairs."""
        return [(record.key, record.value) for record in self.read_all()]

    def read_to_dict(self) -> dict[K | None, V | None]:
        """Read all remaining records and return the last value of each key; None stands for a tombstone."""
        return dict(self.read_pairs())


class TopologyTestDriver:
    """Runs a topology in a test, without a broker.

    Sources with a pattern read all matching topics that are written to.

    Args:
        topology: The topology to run.
        config: Any configuration that StreamsConfig accepts. ``application.id`` defaults to "test". Configured serdes
            and handlers are used.
        wall_clock_ms: Start time of the clock.
        partitions: Number of partitions of every topic. There is one task for each sub-topology and partition number.
        in_place_checks: Raise ChangedInPlaceError if a function changes a value that other operators also receive, or
            changes its aggregate and returns None. The check copies each such value.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any] | None = None,
        *,
        wall_clock_ms: int = 0,
        partitions: int = 1,
        in_place_checks: bool = True,
    ) -> None:
        checked = config if isinstance(config, StreamsConfig) else StreamsConfig.of({**_DEFAULTS, **(config or {})})
        if partitions < 1:
            raise ValueError(f"a topic has at least one partition, not {partitions}")
        settings = TaskSettings.from_config(checked)
        check_serdes(topology, SerdeDefaults(settings.default_key_serde, settings.default_value_serde))
        self._written: dict[str, list[MemoryRecord]] = {}
        self._tasks = InProcessTasks(
            topology.subtopologies(),
            # With a task timeout of 0, an unavailable service (a schema registry) is an error immediately, not retried.
            replace(
                settings, emit_interval_ms=0, task_timeout_ms=0, in_place_checks=topology if in_place_checks else None
            ),
            clock=ManualClock(wall_clock_ms),
            partitions=partitions,
            cache_max_bytes=checked.statestore_cache_max_bytes,
            on_sent=lambda record: self._topic(record.topic()).append(record),
        )
        self._closed = False
        self._processed = self._tasks.drain(commit=True)
        self._started_ms = wall_clock_ms

    def _topic(self, name: str) -> list[MemoryRecord]:
        return self._written.setdefault(name, [])

    def input_topic(
        self, name: str, *, key: Serde[K], value: Serde[V], start_ms: int | None = None, advance: Duration = 0
    ) -> InputTopic[K, V]:
        """Return a writer for a topic that a source reads.

        Args:
            name: Name of the topic.
            key: Serde of the keys.
            value: Serde of the values.
            start_ms: Timestamp of the first record that is sent without one. Default: the driver's clock.
            advance: A ``timedelta`` or milliseconds. Each further record without a timestamp is later by this time.

        Raises:
            TopologyError: No source reads the topic.
        """
        if not self._tasks.readers_of(name):
            sources = ", ".join(self._tasks.source_names()) or "nothing"
            raise TopologyError(f"no source reads topic {name!r}; this topology reads {sources}")
        return InputTopic(self, name, key, value, start_ms, advance)

    def output_topic(self, name: str, *, key: Serde[K], value: Serde[V]) -> OutputTopic[K, V]:
        """Return a reader of the records written to a topic. Internal topics are named ``<application.id>-<name>``."""
        return OutputTopic(name, self._topic(name), key, value)

    @property
    def produced_topics(self) -> frozenset[str]:
        """Topics that records were written to, including internal topics."""
        return frozenset(name for name, records in self._written.items() if records)

    def store(self, name: str, *, partition: int = 0) -> Store:
        """Return a state store of one task, as its processors see it.

        Raises UnknownStateStoreError, which lists the stores that exist, for an unknown name.
        """
        return self._tasks.store(name, partition)

    def stores(self, *, partition: int = 0) -> dict[str, Store]:
        """Return all state stores of one partition number by name, including global stores."""
        return {name: self._tasks.store(name, partition) for name in self._tasks.store_names()}

    def metrics(self) -> Metrics:
        """Return metrics by group (with tags) and name, like ``KafkaStreams.metrics``. The thread is the test's."""
        thread = threading.current_thread().name
        now_ms = self.wall_clock_ms
        seconds = max(1, now_ms - self._started_ms) / 1000
        return {
            f"stream-thread-metrics{{thread-id={thread}}}": {
                "process-total": self._processed,
                "process-rate": self._processed / seconds,
                "thread-start-time": self._started_ms,
            },
            **task_metrics(thread, self._tasks.tasks.values(), At(now_ms, seconds, self._tasks.settings.is_measured)),
        }

    @property
    def wall_clock_ms(self) -> int:
        """Current time of the tasks' clock, in ms."""
        return self._tasks.clock.now_ms()

    def advance_wall_clock(self, duration: Duration) -> None:
        """Advance the clock by milliseconds or a timedelta. Each wall-clock punctuator that becomes due runs once."""
        self._check_open()
        self._tasks.advance(duration_ms(duration, "advance_wall_clock"))
        self._tasks.commit()
        self._processed += self._tasks.drain(commit=True)

    def write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Process one record of bytes. Use :meth:`InputTopic.send` for objects."""
        self._check_open()
        count = self._tasks.partitions
        if partition is None:
            partition = 0 if key is None else partition_for(key, count)
        if not 0 <= partition < count:
            raise ValueError(f"topic {topic} has partitions 0 to {count - 1}, not {partition}")
        time_ms = self.wall_clock_ms if timestamp_ms is None else timestamp_ms
        self._tasks.write(topic, key, value, time_ms, written_headers(topic, tuple(headers)), partition)
        self._processed += self._tasks.drain(commit=True)

    def close(self) -> None:
        """Close processors and stores. Raises the error of a processor's ``close``."""
        if not self._closed:
            self._closed = True
            self._tasks.close()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("this driver is closed; create a new one")

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
