"""Connect workers: a round of a large group, jobs that move when workers join and leave, and records per second.

The assignor's rows need no broker. Records go from a file of JSON lines through a topic into PostgreSQL, with one
worker process that runs a source task and a sink task. It is compared with two threads of one process: a
confluent-kafka producer, and a consumer that uses psycopg's COPY into a staging table and one INSERT ... ON CONFLICT
from it. That is the minimum work for the same table. PostgreSQL stamps the rows. The rate is the number of rows divided
by the time between the first and the last. The topic contains one row before the start. Only when that row has arrived
in the table, and so the sink is running, is the file read.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.cluster import BenchmarkError
from benchmarks.table import Goal, Row
from streams_protocol.connect import Assignment, TaskId, WorkerState, decode_assignment, encode_worker_state
from streams_py.connect.assignment.jobs import Jobs, union
from streams_py.connect.assignment.leader import ConfigSnapshot, GroupLeader
from streams_py.connect.assignment.modes import Mode
from streams_py.testing.broker import JvmBroker, NoBrokerError
from tests.support.postgresql import NoPostgresqlError, postgresql_server

Tick = Callable[[str], None]

_WORKERS: Final = 1_000
_CONNECTORS: Final = 100
_TASKS: Final = 99
"""Tasks of each connector; with the connectors 10,000 jobs."""
_DELAY_MS: Final = 300_000
_ROWS: Final = 200_000
_ROWS_VARIABLE: Final = "STREAMS_PY_BENCH_CONNECT_ROWS"
_TIMEOUT_S: Final = 600.0
_TABLE: Final = (
    "CREATE TABLE {} (id bigint PRIMARY KEY, name text, city text, note text, at timestamptz DEFAULT clock_timestamp())"
)
_BATCH: Final = 3_000


def connect_rows(runs: int, tick: Tick) -> Iterator[Row]:
    """Yield the rows of rounds, moves and records."""
    yield from _rounds(runs, tick)
    yield from _moves(tick)
    yield from _records(runs, tick)


# -- the assignor ------------------------------------------------------------------------------------------------------


@dataclass
class _Worker:
    listed: Jobs | None = None
    held: Jobs = field(default_factory=Jobs)
    has_joined: bool = False

    def metadata(self, name: str) -> bytes:
        allocation = None
        if self.has_joined:
            allocation = Assignment(
                "w0", "http://w0:8083/", 1, error=0, version=3,
                connectors=tuple(sorted(self.held.connectors)), tasks=tuple(sorted(self.held.tasks)),
            )  # fmt: skip
        lists = (None, None) if self.listed is None else (self.listed.connectors, self.listed.tasks)
        return encode_worker_state(WorkerState(f"http://{name}:8083/", 1, allocation, *lists), 3)


class _Group:
    """Workers with a leader, without a broker."""

    def __init__(self, workers: Mapping[str, _Worker], connectors: int, tasks: int) -> None:
        self.workers = dict(workers)
        self.snapshot = ConfigSnapshot(1, {f"c{n:03}": tasks for n in range(connectors)})
        self.now_ms = 1
        self.generation = 0
        self._leader = GroupLeader(_DELAY_MS, lambda: self.now_ms)

    def round(self) -> tuple[float, int, dict[str, Jobs]]:
        """Run one round; return (seconds, delay in ms, jobs that each worker stops)."""
        metadata = {name: worker.metadata(name) for name, worker in self.workers.items()}
        began = time.perf_counter()
        answers, _ = self._leader.lead(
            min(self.workers), Mode.STATIC, metadata, self.snapshot, lambda: self.snapshot,
            last_completed_generation=self.generation, generation=self.generation + 1,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        self.generation += 1
        stopped, delay_ms = {}, 0
        for name, answer in answers.items():
            found, worker = decode_assignment(answer), self.workers[name]
            stopped[name] = Jobs.of(found.revoked_connectors, found.revoked_tasks)
            worker.held = worker.held - stopped[name] | Jobs.of(found.connectors, found.tasks)
            worker.has_joined = True
            delay_ms = found.delay_ms
        return seconds, delay_ms, stopped

    def settle(self) -> int:
        """Run rounds until nothing changes; return the number of jobs that were stopped."""
        stopped = 0
        while True:
            before = {name: worker.held for name, worker in self.workers.items()}
            _, delay_ms, gone = self.round()
            stopped += sum(len(jobs.connectors) + len(jobs.tasks) for jobs in gone.values())
            self.now_ms += delay_ms
            if not delay_ms and not any(gone.values()) and before == {n: w.held for n, w in self.workers.items()}:
                return stopped


def _jobs(connectors: int, tasks: int) -> list[Jobs]:
    names = [f"c{n:03}" for n in range(connectors)]
    return [Jobs.of([name]) for name in names] + [Jobs.of((), [TaskId(n, t)]) for n in names for t in range(tasks)]


def _group(*, static: float) -> _Group:
    """Create a group. ``static``: share of the workers that list their jobs."""
    jobs = _jobs(_CONNECTORS, _TASKS)
    workers = {}
    for number in range(_WORKERS):
        share = jobs[number::_WORKERS]
        listed = union(share)
        workers[f"w{number:04}"] = _Worker(listed if number >= _WORKERS * (1 - static) else None)
    return _Group(workers, _CONNECTORS, _TASKS)


def _rounds(runs: int, tick: Tick) -> Iterator[Row]:
    first, settled, joined = [], [], []
    for run in range(max(runs, 3)):
        tick(f"rounds of {_WORKERS:,} workers, run {run + 1}")
        group = _group(static=0.5)
        first.append(group.round()[0])
        group.settle()
        settled.append(group.round()[0])
        group.workers["x"] = _Worker()
        joined.append(group.round()[0])
    size = f"{_WORKERS:,} workers, {_CONNECTORS * (_TASKS + 1):,} jobs, half static"
    goal = Goal("< 1 s", ours_max=1)
    yield Row(f"Connect round, {size}: all placed", "", "s", tuple(first), goal=goal)
    yield Row(f"Connect round, {size}: at rest", "", "s", tuple(settled), goal=goal)
    yield Row(f"Connect round, {size}: a worker joins", "", "s", tuple(joined), goal=goal)


def _moves(tick: Tick) -> Iterator[Row]:
    tick("what moves when workers come and go")
    group = _group(static=0.5)
    group.settle()
    last = max(group.workers)
    group.workers[last] = _Worker(group.workers[last].listed)
    yield _none("Connect, a static worker restarts: other jobs that stop", group.settle())
    group = _group(static=1.0)
    group.settle()
    leaving = sorted(group.workers)[1::10]
    for name in leaving:  # a second worker that lists the same jobs
        group.workers[f"{name}-b"] = _Worker(group.workers[name].listed)
    group.settle()
    for name in leaving:
        del group.workers[name]
    _, delay_ms, _ = group.round()
    if delay_ms:
        raise BenchmarkError(f"a round after static workers left has a delay of {delay_ms} ms")
    yield _none("Connect, all listed, 100 of 1,100 workers leave: others' jobs that stop", group.settle())


def _none(work: str, stopped: int) -> Row:
    return Row(work, "", "jobs", (float(stopped),), goal=Goal("0", ours_max=1))


_Pipe = Callable[[str, str, Path, str, str], contextlib.AbstractContextManager[None]]
"""Context manager that copies records: (bootstrap, database, file, topic, table)."""

# -- records -----------------------------------------------------------------------------------------------------------


def _records(runs: int, tick: Tick) -> Iterator[Row]:
    import psycopg

    rows = int(os.environ.get(_ROWS_VARIABLE, _ROWS))
    ours: list[float] = []
    peer: list[float] = []
    with contextlib.ExitStack() as until_end:
        try:
            broker = JvmBroker()
            until_end.callback(broker.close)
            url = until_end.enter_context(postgresql_server("benchmark"))
        except (NoBrokerError, NoPostgresqlError) as error:
            raise BenchmarkError(str(error)) from None
        folder = Path(until_end.enter_context(tempfile.TemporaryDirectory(prefix="streams-py-bench-")))
        source = folder / "rows.json"
        _write(source, rows)
        database = until_end.enter_context(psycopg.connect(url, autocommit=True))
        for run in range(runs):
            pipes: tuple[tuple[str, _Pipe, list[float]], ...] = (
                ("a bare loop", _bare, peer),
                ("a worker", _worker, ours),
            )
            for name, pipe, rates in pipes:
                tick(f"file to PostgreSQL by {name}, run {run + 1}")
                topic = f"rows-{len(ours)}-{len(peer)}"
                table = topic.replace("-", "_")
                _make(broker.bootstrap, topic)
                database.execute(_TABLE.format(table))
                with pipe(broker.bootstrap, url, source, topic, table):
                    rates.append(_rate(database, table, rows))
                database.execute(f"DROP TABLE {table}")
    work = f"file -> topic -> PostgreSQL, {rows:,} x 200 B, one worker"
    yield Row(work, "confluent-kafka + COPY loop", "rows/s", tuple(ours), tuple(peer), Goal(">= 0.5", ratio_min=0.5))


def _write(path: Path, rows: int) -> None:
    with path.open("w") as file:
        for n in range(rows):
            row = {"id": n, "name": f"customer {n:09}", "city": "Springfield", "note": ""}
            row["note"] = "x" * (199 - len(json.dumps(row)))
            file.write(json.dumps(row) + "\n")


def _make(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "-1"})])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b'{"id": -1, "name": "first", "city": "", "note": ""}', b"-1")
    producer.flush()


def _rate(database: Any, table: str, rows: int) -> float:
    """Wait for all rows; return the rows per second between the first and the last."""
    limit = time.monotonic() + _TIMEOUT_S
    while True:
        count, seconds = database.execute(
            f"SELECT count(*), extract(epoch FROM max(at) - min(at))::float FROM {table} WHERE id >= 0"
        ).fetchone()
        if count == rows:
            return rows / float(seconds)
        if time.monotonic() > limit:
            raise BenchmarkError(f"only {count:,} of {rows:,} rows arrived in {_TIMEOUT_S:.0f} s")
        time.sleep(0.5)


@contextlib.contextmanager
def _running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([sys.executable, "-m", *command], stdout=out, stderr=out)
        try:
            yield process
        finally:
            if process.poll():
                out.seek(0)
                raise BenchmarkError(f"{command[0]} stopped:\n{out.read()[-2000:].decode()}")
            process.terminate()
            process.wait(60)


@contextlib.contextmanager
def _bare(bootstrap: str, url: str, source: Path, topic: str, table: str) -> Iterator[None]:
    with _running("benchmarks.connect", bootstrap, url, str(source), topic, table):
        yield


def _loop(bootstrap: str, url: str, source: str, topic: str, table: str) -> None:
    """Run producer and consumer until SIGTERM."""
    reads = threading.Event()
    threading.Thread(target=_produce, args=(bootstrap, source, topic, reads), daemon=True).start()
    threading.Thread(target=_copy, args=(bootstrap, url, topic, table, reads), daemon=True).start()
    signal.sigwait({signal.SIGTERM})


def _produce(bootstrap: str, source: str, topic: str, reads: threading.Event) -> None:
    reads.wait()
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    with open(source, "rb") as file:
        for line in file:
            row = json.loads(line)
            while True:
                try:
                    producer.produce(topic, json.dumps(row).encode(), str(row["id"]).encode())
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
    producer.flush()


def _copy(bootstrap: str, url: str, topic: str, table: str, reads: threading.Event) -> None:
    import psycopg

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    columns = "id, name, city, note"
    with psycopg.connect(url, autocommit=True) as database, database.cursor() as cursor:
        cursor.execute(f"CREATE TEMP TABLE staging ON COMMIT DELETE ROWS AS TABLE {table} WITH NO DATA")
        while True:
            rows = [json.loads(message.value() or b"") for message in consumer.consume(_BATCH, 0.1)]
            if not rows:
                continue
            with database.transaction():
                with cursor.copy(f"COPY staging ({columns}) FROM STDIN") as copy:
                    for row in rows:
                        copy.write_row([row["id"], row["name"], row["city"], row["note"]])
                cursor.execute(
                    f"INSERT INTO {table} ({columns}) SELECT {columns} FROM staging ON CONFLICT (id) DO UPDATE SET "
                    "name = EXCLUDED.name, city = EXCLUDED.city, note = EXCLUDED.note"
                )
            consumer.commit(asynchronous=True)
            reads.set()


@contextlib.contextmanager
def _worker(bootstrap: str, url: str, source: Path, topic: str, table: str) -> Iterator[None]:
    import httpx
    import psycopg

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "listeners": address,
        "key.converter": "string",
        "value.converter": "json",
        "file.connectors.allowed.paths": str(source.parent),
        **{f"{kind}.storage.topic": f"{topic}-{kind}" for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
    }
    file = source.parent / f"{topic}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    connectors = "streams_py.connect.connectors"
    to_database = {
        "connector.class": f"{connectors}.postgresql_sink:PostgresqlSinkConnector",
        "topics": topic,
        "connection.url": url,
        "table": table,
        "key.columns": "id",
    }
    from_file = {
        "connector.class": f"{connectors}.file_source:FileSourceConnector",
        "file": str(source),
        "format": "json",
        "topic": topic,
        "key.field": "id",
    }
    with _running("streams_py", "connect", "worker", "--config", str(file)) as process:
        limit = time.monotonic() + 60
        with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if client.get("/health").is_success:
                        break
                if process.poll() is not None or time.monotonic() > limit:
                    raise BenchmarkError("the worker did not start within 60 s")
                time.sleep(0.1)
            client.put("/connectors/to-database/config", json=to_database).raise_for_status()
            with psycopg.connect(url, autocommit=True) as database:
                while database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,):
                    if process.poll() is not None or time.monotonic() > limit:
                        raise BenchmarkError("the sink did not write its first row within 60 s")
                    time.sleep(0.1)
            client.put("/connectors/from-file/config", json=from_file).raise_for_status()
        yield


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    _loop(*sys.argv[1:])
