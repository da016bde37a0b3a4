"""Applications on a real broker, each instance in a separate process."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from streams_protocol.types import TopicPartition
from streams_py.clients.factory import KafkaClients
from streams_py.config.streams_config import StreamsConfig
from streams_py.ports import BEGINNING, RawRecord
from streams_py.testing.broker import Broker, EmbeddedBroker
from tests.support.background import in_background
from tests.support.waiting import PATIENCE_S
from tests.support.waiting import until as wait_until

PYTHON = (sys.executable, "-m", "tests.support.broker.worker")
_numbers = itertools.count()


class Instance:
    """One application process, its last report and its log."""

    def __init__(self, name: str, order: Mapping[str, Any], log: Path, command: Sequence[str] = PYTHON) -> None:
        self.name = name
        self.log = log
        self.status: dict[str, Any] = {}
        self.history: list[tuple[float, dict[str, Any]]] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self._answered = threading.Condition()
        self._log_file = log.open("a")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log_file, text=True
        )
        self._send(order)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if "to" in message:
                with self._answered:
                    self._answers[message["to"]] = message
                    self._answered.notify_all()
            else:
                self.status = message
                self.history.append((time.time(), message))

    def ask(self, do: str, *, timeout_s: float = PATIENCE_S, **more: Any) -> Any:
        """Have the worker do something; its result. RuntimeError with the worker's error."""
        number = next(_numbers)
        self._send({"do": do, "number": number, **more})
        with self._answered:
            if not self._answered.wait_for(lambda: number in self._answers, timeout_s):
                raise AssertionError(f"{self.name} did not answer to {do} within {timeout_s} s\n{self.tail()}")
            answer = self._answers.pop(number)
        if "problem" in answer:
            raise RuntimeError(answer["problem"])
        return answer["answer"]

    @property
    def state(self) -> str:
        return str(self.status.get("state", "starting"))

    @property
    def running(self) -> set[str]:
        """Active tasks that process."""
        return set(self.status.get("running", ()))

    @property
    def standby(self) -> set[str]:
        return set(self.status.get("standby", ()))

    @property
    def error(self) -> str:
        return self.status.get("error") or ""

    @property
    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def tail(self) -> str:
        return f"--- {self.name} (last status {self.status})\n{self.log_text[-4000:]}"

    def kill(self) -> None:
        """SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def signal(self, number: int, *, timeout_s: float = PATIENCE_S) -> int:
        """Send a signal; the exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout_s)

    def wait_end(self, *, timeout_s: float = PATIENCE_S) -> int:
        """Wait until the process stops without a request; return the exit status."""
        status = self.process.wait(timeout_s)
        self._listener.join(30)  # the last report may still be on its way
        return status

    def close(self, *, timeout_s: float = PATIENCE_S) -> int:
        """End it in order."""
        with contextlib.suppress(OSError, ValueError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} did not end within {timeout_s} s\n{self.tail()}") from None
        finally:
            self._log_file.close()


class Application:
    """Topics and configuration of one application, and its instances."""

    def __init__(self, broker: Broker, folder: Path, *, partitions: int = 4, app: str = "count", **config: Any) -> None:
        number = f"{os.getpid()}-{next(_numbers)}"
        self.broker = broker
        self.folder = folder
        self.app = app
        self.partitions = partitions
        self.id = f"{app}-{number}"
        self.input, self.output = f"in-{number}", f"out-{number}"
        self.config: dict[str, Any] = {
            "application.id": self.id,
            "bootstrap.servers": broker.url if isinstance(broker, EmbeddedBroker) else broker.bootstrap,
            "commit.interval.ms": 200,
            "session.timeout.ms": 4000,
            "heartbeat.interval.ms": 300,
            "producer.linger.ms": 5,
        } | {key.replace("__", "-").replace("_", "."): value for key, value in config.items()}
        self.may_fail = False
        """Set by tests in which an instance stops in ERROR."""
        self.instances: list[Instance] = []
        # The short timeout that the library derives from the session is for tasks, which send expired records again.
        patient = {"num.stream.threads": 1, "producer.delivery.timeout.ms": 120_000}
        self.clients = KafkaClients(StreamsConfig.of({**self.config, **patient}))
        self.admin = self.clients.admin()
        for topic in (self.input, self.output):
            broker.create_topic(topic, partitions)

    # -- instances -------------------------------------------------------------------------------------------

    def start(
        self, name: str, *, config: Mapping[str, Any] | None = None, command: Sequence[str] = PYTHON, **order: Any
    ) -> Instance:
        """A new process; the state directory belongs to the name."""
        full = {
            "app": self.app,
            "input": self.input,
            "output": self.output,
            "trace": str(self.folder / "trace"),
            "config": {**self.config, "state.dir": str(self.folder / name), **(config or {})},
            **order,
        }
        instance = Instance(name, full, self.folder / f"{name}.log", command)
        self.instances.append(instance)
        return instance

    def close(self) -> None:
        """End whatever still runs."""
        for instance in self.instances:
            if instance.process.poll() is None:
                with contextlib.suppress(AssertionError):
                    instance.close()
            instance.process.stdout.close()  # type: ignore[union-attr]  # it is a pipe
        self.admin.close()
        self.clients.close()

    def tails(self) -> str:
        return "\n".join(instance.tail() for instance in self.instances)

    def until(self, condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Like wait_until, with the logs in the message. Fails immediately if an instance fails unexpectedly."""

        def met_or_failed() -> bool:
            return bool(condition()) or (not self.may_fail and self._has_failed())

        try:
            wait_until(met_or_failed, what, timeout_s=timeout_s)
            assert self.may_fail or not self._has_failed(), f"an instance failed while waiting for {what}"
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tails()}") from None

    def _has_failed(self) -> bool:
        return any(instance.state == "ERROR" for instance in self.instances)

    def all_tasks(self) -> set[str]:
        """Ids of all tasks."""
        return {f"{sub}_{p}" for sub in ((0, 1) if self.app == "count" else (0,)) for p in range(self.partitions)}

    def shared(self, *instances: Instance) -> bool:
        """Every task runs on exactly one of these, and each has some."""
        held = [instance.running for instance in instances]
        whole = set().union(*held) == self.all_tasks() and sum(map(len, held)) == len(self.all_tasks())
        return whole and all(held) and all(instance.state == "RUNNING" for instance in instances)

    def await_shared(self, *instances: Instance) -> None:
        self.until(lambda: self.shared(*instances), f"tasks shared by {[instance.name for instance in instances]}")

    # -- records ---------------------------------------------------------------------------------------------

    def feed(self, lines: Sequence[str], *, topic: str | None = None) -> None:
        """Write lines, spread over the partitions."""
        producer = self.clients.producer("feeder")
        for number, line in enumerate(lines):
            producer.produce(topic or self.input, line.encode(), None, number % self.partitions, None, -1, None)
            if number % 1000 == 0:
                producer.poll(0)
        assert producer.flush(60_000) == 0
        producer.check()
        producer.close()

    def feed_raw(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Write values with the key ``k``."""
        producer = self.clients.producer("feeder")
        for value in values:
            producer.produce(topic, value, b"k", partition, None, -1, None)
        assert producer.flush(60_000) == 0
        producer.close()

    def caught_up(self) -> bool:
        """Everything in the input, and in the topic between, is processed and committed."""
        topics = [self.input, f"{self.id}-counts-repartition"] if self.app == "count" else [self.input]
        if any(topic not in self.admin.describe_topics(None) for topic in topics):
            return False
        partitions = [TopicPartition(topic, number) for topic in topics for number in range(self.partitions)]
        committed = {at: offset or 0 for at, offset in self.admin.committed_offsets(self.id, partitions).items()}
        behind = [at for at, end in self.admin.list_offsets(partitions).items() if committed[at] != end]
        if "processing.guarantee" not in self.config or any(at.topic == self.input for at in behind):
            return not behind
        return not behind or not self._records_of(behind, committed)  # the remaining offsets are transaction markers

    def await_caught_up(self, *, timeout_s: float = PATIENCE_S) -> None:
        self.until(self.caught_up, "the input to be processed", timeout_s=timeout_s)

    def read(self, topic: str | None = None, *, partitions: int | None = None) -> list[RawRecord]:
        """All records of a topic."""
        every = [TopicPartition(topic or self.output, number) for number in range(partitions or self.partitions)]
        return self._records_of(every, dict.fromkeys(every, BEGINNING))

    def _records_of(self, every: Sequence[TopicPartition], starts: Mapping[TopicPartition, int]) -> list[RawRecord]:
        """Read up to the current ends; under exactly-once only committed records."""
        ends = self.admin.list_offsets(every)
        consumer = self.clients.restore_consumer("reader")
        consumer.assign({partition: starts[partition] for partition in every})
        records: list[RawRecord] = []

        def at_end() -> bool:
            records.extend(consumer.poll(10_000, 200))
            return all((consumer.position(partition) or 0) >= end for partition, end in ends.items())

        try:
            wait_until(at_end, f"the end of {sorted(every)}")
        finally:
            consumer.close()
        return records

    def counts(self, topic: str | None = None) -> Counter[str]:
        """The last count of every word in the output topic, or in the changelog."""
        records = self.read(topic)
        return Counter(
            {(r.key() or b"").decode(): int.from_bytes(r.value() or b"", "big", signed=True) for r in records}
        )

    def traces(self) -> list[tuple[float, int, str, int, int, int]]:
        """Return the lines of the tracers: (time s, pid, thread, generation, partition, offset), by time."""
        lines = [line for file in self.folder.glob("trace-*.jsonl") for line in file.read_text().splitlines()]
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):  # the last line of a killed process may be torn
                found.append(tuple(json.loads(line)))
        return sorted(found)


def text(words: int, *, per_line: int = 20, vocabulary: int = 300, seed: int = 1) -> list[str]:
    """Lines of words that are not equally frequent."""
    choose = random.Random(seed)
    names = [f"w{number}" for number in range(vocabulary)]
    weights = [1 / (number + 1) ** 0.5 for number in range(vocabulary)]
    drawn = choose.choices(names, weights, k=words)
    return [" ".join(drawn[at : at + per_line]) for at in range(0, words, per_line)]


def true_counts(lines: Sequence[str]) -> Counter[str]:
    """Return the expected result of a word count."""
    return Counter(itertools.chain.from_iterable(line.split() for line in lines))


def steady_producer(application: Application, *, spacing_s: float) -> AbstractContextManager[None]:
    """Write a record to every partition each ``spacing_s``, on a separate thread."""

    def run(ended: threading.Event) -> None:
        producer = application.clients.producer("steady")
        for number in itertools.count():
            if ended.is_set():
                break
            for partition in range(application.partitions):
                producer.produce(application.input, b"%d" % number, b"k", partition, None, -1, None)
            producer.flush(10_000)
            ended.wait(spacing_s)
        producer.close()

    return in_background(run)
