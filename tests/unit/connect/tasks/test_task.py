"""Source and sink tasks on their threads, with clients in memory (specification 5.4)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest

from streams_protocol.connect import TaskId
from streams_protocol.types import TopicPartition
from streams_py.connect.api import RetriableError
from streams_py.connect.policy.classes import converter_of
from streams_py.connect.ports import Delivered, SinkListener
from streams_py.connect.stores.configs import TargetState
from streams_py.connect.stores.offsets import OffsetStore
from streams_py.connect.stores.statuses import Job, JobState
from streams_py.connect.tasks.job import JobThread
from streams_py.connect.tasks.sink import SinkTaskThread
from streams_py.connect.tasks.source import Acknowledgements, SourceTaskThread
from streams_py.connect.tasks.task import TaskSettings, TaskStart
from streams_py.errors import BrokerUnavailableError, ProductionError
from streams_py.testing.memory_clients import MemoryRecord
from tests.support.connect.bench import T0, T1, Sent
from tests.support.connect.memory_log import MemoryLog
from tests.support.connect.plugins import BLOCKED, COLLECTED, CollectingTask, CountingTask, HangingTask
from tests.support.waiting import until

TASK = TaskId("a", 0)


class Reading:
    """A sink's consumer of two partitions. ``arrive`` adds records."""

    def __init__(self, listener: SinkListener) -> None:
        self._listener = listener
        self._events: deque[Callable[[], list[MemoryRecord]]] = deque()
        self.commits: list[dict[TopicPartition, int]] = []
        self.refuse_commits = False
        self.paused: set[TopicPartition] = set()
        self.sought: list[tuple[TopicPartition, int]] = []
        self.is_closed = False
        self._then(lambda: listener.on_assigned([T0, T1]))

    def _then(self, action: Callable[[], None]) -> None:
        def event() -> list[MemoryRecord]:
            action()
            return []

        self._events.append(event)

    def arrive(self, *values: bytes, partition: int = 0, offset: int = 0) -> None:
        records = [MemoryRecord("t", partition, offset + n, b"k", value) for n, value in enumerate(values)]
        self._events.append(lambda: records)

    def revoke(self, *partitions: TopicPartition) -> None:
        self._then(lambda: self._listener.on_revoked(partitions))

    def lose(self, *partitions: TopicPartition) -> None:
        self._then(lambda: self._listener.on_lost(partitions))

    def poll(self, max_records: int, timeout_ms: int) -> list[MemoryRecord]:
        if self._events and (not self.paused or T0 not in self.paused):
            return self._events.popleft()()
        threading.Event().wait(0.005)
        return []

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset({T0, T1})

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self.paused |= set(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self.paused -= set(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.sought.append((partition, offset))

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.refuse_commits:
            raise BrokerUnavailableError("not now")
        if offsets:
            self.commits.append(dict(offsets))

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._listener.on_revoked([T0, T1])


class Bench:
    """Starts tasks and keeps their reports."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.offsets = OffsetStore(self.log, 1)  # type: ignore[arg-type]  # a log without a topic
        self.offsets.start()
        self.states: list[JobState] = []
        self.traces: list[str] = []
        self._threads: list[JobThread] = []

    def report(self, job: Job, state: JobState, trace: str | None) -> None:
        self.states.append(state)
        if trace is not None:
            self.traces.append(trace)

    def _start(self, props: dict[str, str], tolerates: bool) -> TaskStart:
        settings = TaskSettings(
            key_converter=converter_of("key.converter", "string"),
            value_converter=converter_of("value.converter", "json"),
            tolerates_errors=tolerates,
            flush_interval_s=0.05,
        )
        return TaskStart(TASK, props, TargetState.STARTED, self.report, settings, str)

    def source(
        self, producer: Sent, *, task: type[CountingTask] = CountingTask, tolerates: bool = False, **props: str
    ) -> SourceTaskThread:
        given = {"name": "a", "part": "0", "topic": "t", **{key.replace("_", "."): v for key, v in props.items()}}
        start = self._start(given, tolerates)
        thread = SourceTaskThread(start, task=task(), producer=producer, offsets=self.offsets)
        return self._started(thread)

    def sink(self, name: str, *, tolerates: bool = False, **props: str) -> tuple[SinkTaskThread, Reading]:
        made: list[Reading] = []

        def subscribe(listener: SinkListener) -> Reading:
            made.append(Reading(listener))
            return made[0]

        start = self._start({"name": name, **props}, tolerates)
        thread = SinkTaskThread(start, task=CollectingTask(), subscribe=subscribe)
        self._started(thread)
        until(lambda: made, "the task subscribes")
        return thread, made[0]

    def _started(self, thread: Any) -> Any:
        self._threads.append(thread)
        thread.start()
        return thread

    def end(self, thread: JobThread) -> None:
        thread.signal_stop()
        assert thread.wait_stopped(60)

    def close(self) -> None:
        BLOCKED.set()
        for thread in self._threads:
            self.end(thread)
        BLOCKED.clear()

    @property
    def committed(self) -> dict[str, Any] | None:
        return self.offsets.reader("a").offset({"part": "0"})


@pytest.fixture
def bench() -> Iterator[Bench]:
    COLLECTED.clear()
    bench = Bench()
    yield bench
    bench.close()


def test_only_offsets_before_which_everything_has_arrived_may_be_written() -> None:
    known = Acknowledgements()
    first, second, third = (known.add(b"p", {"at": number}) for number in (1, 2, 3))
    other = known.add(b"q", {"at": 9})
    known.done(b"p", second)
    known.done(b"q", other)
    assert known.take() == {b"q": {"at": 9}}
    known.done(b"p", first)
    ready = known.take()
    assert ready == {b"p": {"at": 2}}
    known.done(b"p", third)
    known.put_back(ready)
    assert known.take() == {b"p": {"at": 3}}
    assert known.take() == {}


def test_a_source_task_goes_on_where_its_offsets_say(bench: Bench) -> None:
    first = Sent()
    thread = bench.source(first, end="5")
    until(lambda: bench.committed == {"count": 5}, "its offset is committed")
    bench.end(thread)
    second = Sent()
    thread = bench.source(second, end="8")
    until(lambda: bench.committed == {"count": 8}, "its offset is committed")
    bench.end(thread)
    assert first.values + second.values == [str(number).encode() for number in range(8)]
    assert first.is_closed
    assert bench.states == [JobState.RUNNING, JobState.UNASSIGNED] * 2


def test_what_is_not_acknowledged_is_not_committed_before_the_task_ends(bench: Bench) -> None:
    producer = Sent()
    producer.holding = True
    thread = bench.source(producer, end="5")
    until(lambda: len(producer.values) == 5, "all is sent")
    assert bench.committed is None
    bench.end(thread)
    assert bench.committed == {"count": 5}


def test_a_source_task_that_fails_commits_what_has_arrived_and_waits(bench: Bench) -> None:
    thread = bench.source(Sent(), fail_at="3")
    until(lambda: JobState.FAILED in bench.states, "it fails")
    assert "the source is broken" in bench.traces[0]
    assert thread.is_alive
    assert bench.committed == {"count": 3}
    bench.end(thread)
    assert bench.states == [JobState.RUNNING, JobState.FAILED, JobState.UNASSIGNED]


@pytest.mark.parametrize("how", ["convert", "send"])
@pytest.mark.parametrize("tolerates", [False, True])
def test_a_record_that_cannot_be_written_fails_the_task_or_is_skipped(bench: Bench, how: str, tolerates: bool) -> None:
    def refuse(value: bytes | None) -> Exception | None:
        refused = how == "send" and value == b"3"
        return ProductionError("too large", topic="t", partition=None) if refused else None

    producer = Sent(refuse)
    more = {"bad_at": "3"} if how == "convert" else {}
    bench.source(producer, tolerates=tolerates, end="6", **more)
    if tolerates:
        until(lambda: bench.committed == {"count": 6}, "the rest is written")
        assert producer.values == [b"0", b"1", b"2", b"4", b"5"]
    else:
        until(lambda: JobState.FAILED in bench.states, "it fails")
        assert bench.committed == {"count": 3}


def test_a_paused_source_task_polls_nothing_until_it_is_resumed(bench: Bench) -> None:
    producer = Sent()
    thread = bench.source(producer)
    until(lambda: producer.values, "it runs")
    thread.set_target(TargetState.PAUSED)
    until(lambda: bench.states[-1] is JobState.PAUSED, "it is paused")
    so_far = len(producer.values)
    until(lambda: bench.committed == {"count": so_far}, "what was sent is committed while it is paused")
    assert len(producer.values) == so_far
    thread.set_target(TargetState.STARTED)
    until(lambda: len(producer.values) > so_far, "it continues")


def test_a_task_that_is_stop_called_while_it_starts_is_stopped_once_it_has_started(bench: Bench) -> None:
    starting, go_on = threading.Event(), threading.Event()
    calls: list[str] = []

    class SlowToStart(CountingTask):
        def start(self, props: Mapping[str, str]) -> None:
            starting.set()
            go_on.wait()
            super().start(props)
            calls.append("started")

        def stop(self) -> None:
            super().stop()  # uses what start makes
            calls.append("stopped")

    thread = bench.source(Sent(), task=SlowToStart)
    assert starting.wait(60)
    thread.signal_stop()
    go_on.set()
    assert thread.wait_stopped(60)
    assert calls == ["started", "stopped"]
    assert JobState.FAILED not in bench.states


def test_a_task_whose_start_fails_is_stopped_and_its_own_error_is_told(bench: Bench) -> None:
    stopped = threading.Event()

    class Broken(CountingTask):
        def start(self, props: Mapping[str, str]) -> None:
            raise RuntimeError("no such file")

        def stop(self) -> None:
            stopped.set()
            raise RuntimeError("stop does not know what start did not make")

    bench.source(Sent(), task=Broken)
    until(lambda: JobState.FAILED in bench.states, "it has failed")
    assert stopped.is_set()
    assert "no such file" in bench.traces[0]


def test_an_abandoned_task_writes_nothing_more(bench: Bench) -> None:
    producer = Sent()
    thread = bench.source(producer, task=HangingTask)
    until(lambda: bench.states == [JobState.RUNNING], "it runs")
    thread.signal_stop()
    thread.abandon()
    until(lambda: producer.is_closed, "its producer is closed")
    BLOCKED.set()
    assert thread.wait_stopped(60)
    assert bench.states == [JobState.RUNNING]


def test_offsets_that_cannot_be_written_are_written_later(bench: Bench) -> None:
    bench.log.failures += [BrokerUnavailableError("gone for a moment")] * 2
    bench.source(Sent(), end="3")
    until(lambda: bench.committed == {"count": 3}, "its offset is committed")


def test_a_sink_task_commits_what_it_has_put(bench: Bench) -> None:
    thread, consumer = bench.sink("s")
    consumer.arrive(b"1", b"2")
    until(lambda: consumer.commits == [{T0: 2}], "what was put is committed")
    consumer.arrive(b"3", partition=1, offset=7)
    until(lambda: len(COLLECTED["s"]) == 3, "it is put")
    bench.end(thread)
    assert consumer.commits[-1] == {T1: 8}
    assert [(r.value, r.key, r.offset) for r in COLLECTED["s"]] == [(1, "k", 0), (2, "k", 1), (3, "k", 7)]
    assert bench.states == [JobState.RUNNING, JobState.UNASSIGNED]


def test_records_are_put_again_when_a_sink_cannot_flush_them_for_now(bench: Bench) -> None:
    thread, consumer = bench.sink("flushing", **{"refuse.commits": "1"})
    consumer.arrive(b"1", b"2", offset=7)
    until(lambda: consumer.sought == [(T0, 7)], "the partition is read again from the first record")
    consumer.arrive(b"1", b"2", offset=7)
    until(lambda: {T0: 9} in consumer.commits, "what was put again is committed")
    consumer.arrive(b"3", offset=9)
    until(lambda: {T0: 10} in consumer.commits, "the task continues")
    bench.end(thread)
    assert [record.value for record in COLLECTED["flushing"]] == [1, 2, 1, 2, 3]
    # A flush that is due between the seek and the records commits the position that the seek has set.
    assert [offsets for offsets in consumer.commits if offsets != {T0: 7}] == [{T0: 9}, {T0: 10}]
    assert JobState.FAILED not in bench.states


class Batches(Sent):
    """A producer whose broker rejects a whole batch if it contains a bad record."""

    def __init__(self, bad: bytes) -> None:
        super().__init__()
        self._bad = bad
        self._batch: list[tuple[bytes | None, Delivered]] = []

    def send(self, topic: str, key: bytes | None, value: bytes | None, on_delivery: Delivered, **more: Any) -> None:
        self._batch.append((value, on_delivery))

    def flush(self, timeout_ms: int) -> int:
        batch, self._batch = self._batch, []
        refused = any(value == self._bad for value, _ in batch)
        for value, on_delivery in batch:
            if refused:
                on_delivery(ProductionError("refused", topic="t", partition=0), T0)
            else:
                self.values.append(value)
                on_delivery(None, T0)
        return 0


def test_neighbours_of_a_refused_record_are_not_skipped_with_it(bench: Bench) -> None:
    producer = Batches(b"7")
    producer.holding = True  # until the end all are in one batch
    thread = bench.source(producer, tolerates=True, end="20")
    until(lambda: len(producer._batch) == 20, "all records are in one batch")
    bench.end(thread)
    assert sorted(producer.values, key=lambda value: int(value or b"-1")) == [
        str(number).encode() for number in range(20) if number != 7
    ]
    assert bench.committed == {"count": 20}


def test_source_task_that_cannot_note_what_is_committed_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise RetriableError("the source is away")

    monkeypatch.setattr(CountingTask, "commit", away)
    monkeypatch.setattr(CountingTask, "commit_record", away)
    thread = bench.source(Sent(), end="3")
    until(lambda: bench.committed == {"count": 3}, "its offset is committed")
    bench.end(thread)
    assert JobState.FAILED not in bench.states


def test_a_batch_that_a_sink_refuses_for_now_is_put_again(bench: Bench) -> None:
    _, consumer = bench.sink("s", refuse="2")
    consumer.arrive(b"1", b"2")
    consumer.arrive(b"3", offset=2)
    until(lambda: consumer.commits and consumer.commits[-1] == {T0: 3}, "all is committed")
    assert [record.value for record in COLLECTED["s"]] == [1, 2, 3]
    assert not consumer.paused


def test_partitions_that_go_are_committed_and_lost_ones_are_not(bench: Bench) -> None:
    thread, consumer = bench.sink("s")
    consumer.arrive(b"1")
    consumer.revoke(T0)
    until(lambda: consumer.commits == [{T0: 1}], "the revoked partition is committed")
    consumer.refuse_commits = True
    consumer.arrive(b"2", partition=1)
    consumer.lose(T1)
    until(lambda: thread.assignment() == frozenset(), "both are gone")
    consumer.refuse_commits = False
    bench.end(thread)
    assert consumer.commits == [{T0: 1}]


@pytest.mark.parametrize("tolerates", [False, True])
def test_a_record_that_cannot_be_read_fails_a_sink_or_is_skipped(bench: Bench, tolerates: bool) -> None:
    thread, consumer = bench.sink("s", tolerates=tolerates)
    consumer.arrive(b"1", b"{", b"3")
    if tolerates:
        until(lambda: consumer.commits == [{T0: 3}], "the others are put")
        assert [record.value for record in COLLECTED["s"]] == [1, 3]
    else:
        until(lambda: JobState.FAILED in bench.states, "it fails")
        assert "t-0 at offset 1 cannot be converted" in bench.traces[0]
        assert consumer.is_closed
        assert consumer.commits == []
    bench.end(thread)
