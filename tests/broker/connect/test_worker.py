"""Two workers on a real broker: a counting source writes a topic, a collecting sink reads it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.jobs import Jobs
from streams_py.connect.errors import BadRequestError, ConnectError, NotLeaderError, RebalanceExpectedError
from streams_py.connect.settings import WorkerSettings
from streams_py.connect.stores.configs import SessionKey
from streams_py.connect.stores.statuses import JobState
from streams_py.connect.worker.clients import connect_clients
from streams_py.connect.worker.worker import Worker
from streams_py.errors import ProductionError
from streams_py.ports import TopicSpec
from streams_py.testing.broker import Broker
from tests.support.connect.plugins import COLLECTED
from tests.support.waiting import until

pytestmark = pytest.mark.broker

_SOURCE = "tests.support.connect.plugins:CountingSource"
_SINK = "tests.support.connect.plugins:CollectingSink"


class Cluster:
    """Workers of one group in this process. Requests go to the leader, as from the REST interface."""

    def __init__(self, broker: Broker) -> None:
        self._bootstrap = broker.bootstrap
        self.name = f"connect-{uuid.uuid4().hex[:8]}"
        self.workers: list[Worker] = []
        self._ports = iter(range(8001, 9000))

    def start(self, **more: str) -> Worker:
        port = next(self._ports)
        settings = WorkerSettings.of(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self.name,
                "config.storage.topic": f"{self.name}-configs",
                "offset.storage.topic": f"{self.name}-offsets",
                "status.storage.topic": f"{self.name}-statuses",
                "config.storage.replication.factor": "1",
                "offset.storage.replication.factor": "1",
                "status.storage.replication.factor": "1",
                "offset.storage.partitions": "3",
                "key.converter": "string",
                "value.converter": "json",
                "plugin.modules": "tests",
                "listeners": f"http://127.0.0.1:{port}",
                "scheduled.rebalance.max.delay.ms": "500",
                "heartbeat.interval.ms": "300",
                "offset.flush.interval.ms": "200",
                **{key.replace("_", "."): value for key, value in more.items()},
            }
        )
        worker = Worker(settings, connect_clients(settings), self.forward)
        worker.start()
        self.workers.append(worker)
        return worker

    def stop(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.stop()

    def forward(self, url: str, name: str, configs: list[dict[str, str]], key: SessionKey | None) -> None:
        assert key is not None
        found = [worker for worker in self.workers if worker.settings.url == url]
        if not found:
            raise ConnectError("the leader is gone")
        found[0].put_tasks(name, configs)

    def ask(self, request: Callable[[Worker], None]) -> None:
        """Send a request to the leader, once there is a leader."""

        def asked() -> bool:
            for worker in self.workers:
                with contextlib.suppress(NotLeaderError, RebalanceExpectedError):
                    request(worker)
                    return True
            return False

        until(asked, "a leader answers")

    def running(self, connector: str, tasks: int) -> Callable[[], bool]:
        """Whether the status of every job of a connector is running."""

        def check() -> bool:
            status = self.workers[0].status(connector)
            states = [status.connector, *status.tasks.values()]
            return len(status.tasks) == tasks and all(s and s.state is JobState.RUNNING for s in states)

        return check


@pytest.fixture
def cluster(kafka_broker: Broker) -> Iterator[Cluster]:
    cluster = Cluster(kafka_broker)
    yield cluster
    for worker in cluster.workers:
        with contextlib.suppress(Exception):
            worker.stop()


def _topic(worker: Worker, cluster: Cluster) -> str:
    topic = f"{cluster.name}-data"
    admin = connect_clients(worker.settings).admin()
    assert admin.create_topics([TopicSpec(topic, 2, 1)])[topic] is None
    admin.close()
    return topic


def _numbers(connector: str, part: str) -> list[int]:
    return [record.value for record in list(COLLECTED[connector]) if record.key == part]


def _has_no_gap(numbers: list[int], at_least: int) -> bool:
    """Check that every number up to the largest has arrived. Numbers may be repeated."""
    return len(numbers) > 0 and max(numbers) >= at_least and set(numbers) == set(range(max(numbers) + 1))


@pytest.mark.smoke
def test_records_flow_through_a_source_and_a_sink_while_workers_come_and_go(cluster: Cluster) -> None:
    one = cluster.start()
    topic = _topic(one, cluster)
    source, sink = f"{cluster.name}-source", f"{cluster.name}-sink"
    source_config = {"connector.class": _SOURCE, "tasks.max": "2", "topic": topic}
    cluster.ask(lambda worker: worker.create_connector(source, source_config))
    cluster.ask(lambda worker: worker.create_connector(sink, {"connector.class": _SINK, "topics": topic}))
    until(cluster.running(source, 2), "the source runs")
    until(cluster.running(sink, 1), "the sink runs")
    until(lambda: _has_no_gap(_numbers(sink, f"{source}-0"), 20), "records of task 0 arrive")

    two = cluster.start()
    until(lambda: one.jobs.tasks and two.jobs.tasks and len(one.jobs.tasks | two.jobs.tasks) == 3, "both have tasks")
    so_far = max(_numbers(sink, f"{source}-1"))
    until(lambda: _has_no_gap(_numbers(sink, f"{source}-1"), so_far + 20), "no number is missing after a move")

    cluster.stop(one)
    until(lambda: two.jobs.tasks == {TaskId(source, 0), TaskId(source, 1), TaskId(sink, 0)}, "the other one takes over")
    for part in (f"{source}-0", f"{source}-1"):
        so_far = max(_numbers(sink, part))
        until(lambda part=part, so_far=so_far: _has_no_gap(_numbers(sink, part), so_far + 20), "no number is missing")


def test_static_lists_say_where_jobs_run_and_others_configure_their_tasks(cluster: Cluster) -> None:
    one = cluster.start()
    source = f"{cluster.name}-source"
    listing = cluster.start(static_connectors=source, static_tasks=f"{source}-1")
    topic = _topic(one, cluster)
    config = {"connector.class": _SOURCE, "tasks.max": "2", "topic": topic}
    cluster.ask(lambda worker: worker.create_connector(source, config))
    until(lambda: listing.jobs == Jobs.of([source], [TaskId(source, 1)]), "listed jobs run where they are listed")
    until(lambda: one.jobs == Jobs.of((), [TaskId(source, 0)]), "the others run elsewhere")
    until(cluster.running(source, 2), "the source runs")


def test_a_connector_is_paused_stopped_resumed_changed_and_deleted(cluster: Cluster) -> None:
    worker = cluster.start()
    topic, name = _topic(worker, cluster), f"{cluster.name}-source"
    config = {"connector.class": _SOURCE, "tasks.max": "2", "topic": topic}
    cluster.ask(lambda worker: worker.create_connector(name, config))
    until(cluster.running(name, 2), "the source runs")

    worker.pause_connector(name)
    until(lambda: {s.state for s in worker.status(name).tasks.values()} == {JobState.PAUSED}, "tasks are paused")
    worker.resume_connector(name)
    until(cluster.running(name, 2), "the source runs again")

    cluster.ask(lambda worker: worker.stop_connector(name))
    until(lambda: worker.status(name).connector.state is JobState.STOPPED, "the connector is stopped")
    until(lambda: not worker.jobs.tasks and not worker.status(name).tasks, "it has no tasks")
    worker.resume_connector(name)
    until(cluster.running(name, 2), "the source runs again")

    cluster.ask(lambda worker: worker.put_connector(name, {**config, "tasks.max": "1"}) and None)
    until(cluster.running(name, 1), "one task is left")
    cluster.ask(lambda worker: worker.delete_connector(name))
    until(lambda: not worker.jobs and not worker.connectors(), "nothing is left")


def test_a_class_that_cannot_be_imported_fails_its_connector_and_nothing_else(cluster: Cluster) -> None:
    worker = cluster.start()
    topic, broken, good = _topic(worker, cluster), f"{cluster.name}-broken", f"{cluster.name}-good"
    cluster.ask(lambda worker: worker.create_connector(broken, {"connector.class": "tests.no.such.module:Thing"}))
    until(lambda: (s := worker.status(broken).connector) and s.state is JobState.FAILED, "it has failed")
    assert "tests.no.such.module:Thing" in worker.status(broken).connector.trace
    cluster.ask(lambda worker: worker.create_connector(good, {"connector.class": _SOURCE, "topic": topic}))
    until(cluster.running(good, 1), "another connector runs")
    assert worker.kind(broken) == "unknown"
    assert worker.kind(good) == "source"


def test_a_failed_task_stays_failed_until_it_is_restarted(cluster: Cluster) -> None:
    worker = cluster.start()
    topic, name = _topic(worker, cluster), f"{cluster.name}-source"
    config = {"connector.class": _SOURCE, "topic": topic, "fail.at": "5"}
    cluster.ask(lambda worker: worker.create_connector(name, config))
    task = TaskId(name, 0)

    def failed() -> bool:
        status = worker.status(name).tasks.get(task)
        return status is not None and status.state is JobState.FAILED

    until(failed, "the task fails")
    assert "the source is broken" in worker.status(name).tasks[task].trace
    assert worker.jobs.tasks == {task}
    cluster.ask(lambda worker: worker.put_connector(name, {**config, "fail.at": "-1"}) and None)
    until(cluster.running(name, 1), "with another configuration it runs")
    worker.restart_task(task)
    until(cluster.running(name, 1), "a restarted task runs")


def test_offsets_of_stopped_connectors_are_changed_and_an_equal_configuration_is_not_written_again(
    cluster: Cluster,
) -> None:
    worker = cluster.start()
    topic, source, sink = _topic(worker, cluster), f"{cluster.name}-source", f"{cluster.name}-sink"
    config = {"connector.class": _SOURCE, "topic": topic, "end": "10"}
    cluster.ask(lambda worker: worker.create_connector(source, config))
    cluster.ask(lambda worker: worker.create_connector(sink, {"connector.class": _SINK, "topics": topic}))
    until(lambda: _numbers(sink, f"{source}-0") == list(range(10)), "everything has arrived once")
    until(lambda: worker.offsets(source) == [({"part": "0"}, {"count": 10})], "the source's offset is shown")
    until(lambda: sum(offset["kafka_offset"] for _, offset in worker.offsets(sink)) == 10, "the sink's are shown")

    before = worker.configs.offset
    cluster.ask(lambda worker: worker.put_connector(source, config) and None)
    assert worker.configs.offset == before
    with pytest.raises(BadRequestError, match="must be STOPPED"):
        worker.alter_offsets(source, [({"part": "0"}, {"count": 8})])

    for name in (source, sink):
        cluster.ask(lambda worker, name=name: worker.stop_connector(name))
    until(lambda: not worker.jobs.tasks, "no task runs")
    cluster.ask(lambda worker: worker.alter_offsets(source, [({"part": "0"}, {"count": 8})]) and None)
    cluster.ask(lambda worker: worker.reset_offsets(sink) and None)
    assert worker.offsets(sink) == []
    partition, _ = next(iter(sorted({(r.partition, r.topic) for r in COLLECTED[sink]})))
    start = [({"kafka_topic": topic, "kafka_partition": partition}, {"kafka_offset": 0})]
    cluster.ask(lambda worker: worker.alter_offsets(sink, start) and None)
    assert worker.offsets(sink) == start
    cluster.ask(lambda worker: worker.alter_offsets(sink, [(start[0][0], None)]) and None)
    assert worker.offsets(sink) == []

    COLLECTED[sink].clear()
    for name in (source, sink):
        worker.resume_connector(name)
    until(lambda: sorted(_numbers(sink, f"{source}-0")) == [*range(8), 8, 8, 9, 9], "all again, and two once more")


def test_record_with_timestamp_0_keeps_it(cluster: Cluster) -> None:
    worker = cluster.start()
    topic = _topic(worker, cluster)
    producer = connect_clients(worker.settings).producer(f"{cluster.name}-epoch", {})
    ends: list[Exception | None] = []
    for timestamp_ms in (0, 5, 0):
        producer.send(topic, b"k", b"v", lambda error, _: ends.append(error), timestamp_ms=timestamp_ms)
    assert producer.flush(30_000) == 0
    with pytest.raises(ProductionError, match="timestamp -5"):
        producer.send(topic, b"k", b"v", lambda error, _: ends.append(error), timestamp_ms=-5)
    producer.close()
    assert ends == [None] * 3
    reader = Consumer(
        {
            "bootstrap.servers": worker.settings.bootstrap_servers,
            "group.id": cluster.name + "-check",
            "auto.offset.reset": "earliest",
        }
    )
    reader.subscribe([topic])
    found: list[int] = []

    def all_read() -> bool:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.timestamp()[1])
        return len(found) == 3

    until(all_read, "the records are read")
    reader.close()
    assert found == [0, 5, 0]
