"""A group of worker processes, started from configuration files and used over REST, like an operator."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import httpx
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streams_py.testing.broker import Broker
from tests.support.waiting import until

_ROOT = Path(__file__).resolve().parents[3]
_END_S = 60.0


@dataclass
class WorkerProcess:
    """``lists`` are its ``static.connectors`` and ``static.tasks``."""

    name: str
    port: int
    mode: str
    lists: dict[str, str]
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def id(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def is_static(self) -> bool:
        return bool(self.lists)


def _client() -> httpx.Client:
    """Create one client for all requests, because each new client reads all certificates of the host.

    Each request opens its own connection: a kept connection may end during a request.
    """
    return httpx.Client(timeout=60, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))


@dataclass
class Workers:
    """Workers by name. A restarted worker has its old address, and its old lists unless new ones are given."""

    broker: Broker
    folder: Path
    group: str
    delay_ms: int = 2_000
    session_ms: int = 15_000
    """A killed worker can be restarted within this time, even on a busy machine."""
    alive: dict[str, WorkerProcess] = field(default_factory=dict)
    _before: dict[str, WorkerProcess] = field(default_factory=dict)
    _rest: httpx.Client = field(default_factory=_client)

    def start(self, name: str, mode: str = "static", **lists: str) -> WorkerProcess:
        """``lists``: ``connectors`` and ``tasks``, as texts with commas."""
        before = self._before.get(name)
        port = before.port if before else _free_port()
        static = {f"static.{kind}": text for kind, text in lists.items()}
        settings = {
            "bootstrap.servers": self.broker.bootstrap,
            "group.id": self.group,
            "connect.protocol": mode,
            "listeners": f"http://127.0.0.1:{port}",
            "scheduled.rebalance.max.delay.ms": str(self.delay_ms),
            "session.timeout.ms": str(self.session_ms),
            "heartbeat.interval.ms": "500",
            "consumer.session.timeout.ms": "6000",  # of a sink that is killed; by default everybody waits for 45 s
            "offset.flush.interval.ms": "1000",
            "offset.storage.partitions": "3",
            "status.storage.partitions": "3",
            "key.converter": "string",
            "value.converter": "json",
            "plugin.modules": "tests",
            "file.connectors.allowed.paths": str(self.folder),
            **{f"{kind}.storage.topic": f"{self.group}-{kind}" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
            **static,
        }
        file, log = self.folder / f"{name}.properties", self.folder / f"{name}.log"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "streams_py", "connect", "worker", "--config", str(file)],
                cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip
        self.alive[name] = self._before[name] = worker = WorkerProcess(name, port, mode, static, process, log)
        return worker

    def restart(self, name: str, mode: str | None = None) -> WorkerProcess:
        """Start the worker again, with its old lists."""
        before = self._before[name]
        if name in self.alive:
            self.stop(name)
        lists = {key.removeprefix("static."): text for key, text in before.lists.items()}
        return self.start(name, mode or before.mode, **lists)

    def stop(self, name: str) -> None:
        """Stop the worker in order, with SIGTERM."""
        worker = self.alive.pop(name)
        worker.process.terminate()
        assert worker.process.wait(_END_S) == 0, worker.log.read_text()[-3000:]

    def kill(self, name: str) -> None:
        worker = self.alive.pop(name)
        worker.process.kill()
        worker.process.wait(_END_S)
        _append(self.folder / "jobs.log", f"killed {worker.process.pid} -\n")

    def close(self) -> None:
        self._rest.close()
        for worker in self.alive.values():
            worker.process.send_signal(signal.SIGKILL)
            worker.process.wait(_END_S)

    def id_of(self, name: str) -> str:
        return self._before[name].id

    def make_topic(self) -> str:
        topic = f"{self.group}-data"
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
        return topic

    def delays(self) -> int:
        """Return how many rounds ended with a delay."""
        return self.logs().count("next round in")

    def logs(self, name: str = "*") -> str:
        return "".join(path.read_text() for path in self.folder.glob(f"{name}.log"))

    def said(self) -> str:
        """The last lines of every log."""
        logs = [f"{path.name}:\n{path.read_text()[-1500:]}" for path in sorted(self.folder.glob("w*.log"))]
        return "\n".join(logs)

    # -- over REST -----------------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None, of: str | None = None) -> Any:
        """Return a worker's response. Waits during a rebalance and for a starting worker. Default: any worker."""
        answers: list[httpx.Response] = []

        def answered() -> bool:
            worker = self.alive[of] if of else next(iter(self.alive.values()))
            with contextlib.suppress(httpx.HTTPError):
                answer = self._rest.request(method, f"http://{worker.id}{path}", json=body)
                if answer.status_code not in (409, 503):
                    answers.append(answer)
                elif "already" in answer.text:
                    raise AssertionError(answer.text)
            return bool(answers)

        until(answered, f"{method} {path} is answered")
        assert answers[0].is_success, answers[0].text
        return answers[0].json() if answers[0].content else None

    def placement(self) -> dict[str, str]:
        """Return the worker of each job whose status is running."""
        found: dict[str, str] = {}
        for name, of in self.ask("GET", "/connectors?expand=status").items():
            status = of["status"]
            jobs = {name: status["connector"]} | {f"{name}-{task['id']}": task for task in status["tasks"]}
            found |= {job: said["worker_id"] for job, said in jobs.items() if said["state"] == "RUNNING"}
        return found

    # -- what jobs say -------------------------------------------------------------------------------------------------

    def events(self) -> list[tuple[str, int, str]]:
        """Return (start, stop or killed; process id; job), in the order of events."""
        try:
            lines = (self.folder / "jobs.log").read_text().splitlines()
        except FileNotFoundError:
            return []
        split = (line.split(" ") for line in lines)
        return [(event, int(pid), job) for event, pid, job in split]

    def check_nothing_ran_twice(self) -> None:
        """Check that between two starts a job has stopped, or its process was killed."""
        running: dict[str, int] = {}
        for event, pid, job in self.events():
            if event == "killed":
                running = {job: runs_in for job, runs_in in running.items() if runs_in != pid}
            elif event == "stop":
                if running.get(job) == pid:
                    del running[job]
            else:
                assert job not in running, f"{job} starts in {pid} and still runs in {running[job]}"
                running[job] = pid


class Flow:
    """What arrives: in the sources' topic, and at the sink. Numbers may repeat, none may be missing."""

    def __init__(self, workers: Workers, topic: str) -> None:
        self.topic = topic
        self._sink = workers.folder / "sink.jsonl"
        self._sink_at = 0
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": workers.broker.bootstrap,
                "group.id": f"{topic}-watch",
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe([topic])
        self.written: dict[tuple[str, int], set[int]] = defaultdict(set)
        self.arrived: dict[tuple[str, int], set[int]] = defaultdict(set)

    def read(self) -> None:
        for message in self._consumer.consume(5_000, 0.1):
            if message.error() is None:
                name, task, n = json.loads(message.value() or b"")
                self.written[name, task].add(n)
        if self._sink.exists():
            with self._sink.open("rb") as file:
                file.seek(self._sink_at)
                lines = file.read().rpartition(b"\n")[0]
            self._sink_at += len(lines) + 1 if lines else 0
            for line in lines.splitlines():
                name, task, n = json.loads(line)
                self.arrived[name, task].add(n)

    def check(self, sequences: dict[str, int], more: int = 10) -> None:
        """Wait until every sequence of these sources (tasks by connector) has grown by ``more`` without a gap."""
        self.read()
        wanted = [(name, task) for name, tasks in sequences.items() for task in range(tasks)]
        goals = {key: max(self.written[key], default=-1) + more for key in wanted}

        def flows() -> bool:
            self.read()
            return all(
                max(side[key], default=-1) >= goals[key] and len(side[key]) == max(side[key]) + 1
                for key in wanted
                for side in (self.written, self.arrived)
            )

        def said() -> str:
            return ", ".join(
                f"{key}: to {max(side[key], default=-1)}, wanted {goals[key]}, missing "
                f"{sorted(set(range(max(side[key], default=-1) + 1)) - side[key])[:5]}"
                for key in wanted
                for side in (self.written, self.arrived)
            )

        try:
            until(flows, "every sequence grows without a gap")
        except AssertionError:
            raise AssertionError(f"records do not flow: {said()}") from None

    def close(self) -> None:
        self._consumer.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)
