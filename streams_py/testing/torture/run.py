"""A torture run: load, random faults from a seed, a phase without faults, and the check of the output."""

from __future__ import annotations

import datetime as dt
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streams_py.adapters.security.client_settings import librdkafka_settings
from streams_py.adapters.security.settings import parse_security
from streams_py.errors import BrokerUnavailableError
from streams_py.testing.torture.disk import DiskError, SmallDisk
from streams_py.testing.torture.faults import CLOSE_S, Faults, Login
from streams_py.testing.torture.history import History, Violation
from streams_py.testing.torture.lost_commits import LostCommits, committed_offsets
from streams_py.testing.torture.processes import Instance
from streams_py.testing.torture.proxy import Proxy
from streams_py.testing.torture.records import Feeder, Reader, last_counts, write_aborted
from streams_py.testing.torture.usage import Growth, growth

_ABORTED: Final = 100
_CHECK_S: Final = 2
_ANSWER_S: Final = 10
_REQUEST_S: Final = 60
_MAX_POLL_MS: Final = 60_000
_AT_WORK: Final = 0.7
"""Share of faults that wait until the application has processed a record since the previous fault.

The other faults may occur while it recovers."""
_LAST_S: Final = 1
"""Time to wait for wrong records after the last record, in s.

All keys also get input for at least this time after the last fault. With at-least-once, records of a frozen process may
arrive in a changelog after the new owner's records, and must be overwritten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parameters of a run. ``faults``: number of each kind; if empty, random faults for ``seconds`` seconds."""

    exact: bool = True
    instances: int = 3
    partitions: Sequence[int] = (5, 12)
    """Partition count of each stage's repartition topic.

    The input topic has as many partitions as the first one, and the output topic as many as the last one."""
    keys: int = 300
    rate: float = 3_000
    """Records/s; fewer while the application is ``ahead_max`` records behind."""
    ahead_max: int = 50_000
    records_min: int = 0
    seconds: float = 60
    faults: Mapping[str, int] = field(default_factory=dict)
    pace_s: float = 4
    """Mean time between two faults, in s."""
    session_ms: int = 6_000
    config: Mapping[str, Any] = field(default_factory=dict)
    settle_s: float = 180
    seed: int = 0


@dataclass(slots=True)
class Result:
    """The result of a run. ``violations`` is empty if all checks passed."""

    violations: list[Violation]
    records: int
    repeated: int
    faults: Counter[str]
    deaths: list[str]
    """Ends of the logs of instances that stopped unexpectedly."""
    seconds: float
    growth: list[Growth]
    """Growth of memory and open files of an instance that ran from start to end."""
    left_out: list[str]
    """Faults and checks that were left out, with the reasons."""

    @property
    def ok(self) -> bool:
        return not self.violations and not self.deaths


class Torture:
    """One torture run.

    Args:
        plan: Parameters of the run.
        connection: librdkafka settings of the cluster.
        folder: Folder for the files of all instances.
        security: Kafka's security settings of the cluster, also used by the instances.
        broker: Kills the broker and starts it after a time in seconds; None if the broker may not be killed.
        login: Login of the instances; None if they connect as this process does.
        tell: Called with the text of a fault or an empty text, and the numbers of written and processed records.
    """

    def __init__(
        self,
        plan: Plan,
        connection: Mapping[str, Any],
        folder: Path,
        *,
        security: Mapping[str, str] = MappingProxyType({}),
        broker: Callable[[float], None] | None = None,
        login: Login | None = None,
        tell: Callable[[str, int, int], None] = lambda what, written, done: None,
    ) -> None:
        self._plan = plan
        self._security = security
        parsed = parse_security(security)
        self._is_encrypted = parsed.protocol.tls
        self._connection = {**connection, **librdkafka_settings(parsed), "log_level": 0}
        self._folder = folder
        self._broker = broker
        self._login = login
        self._tell = tell
        self._draw = random.Random(plan.seed)
        self.id = f"torture-{uuid.uuid4().hex[:8]}"
        self._source, self._sink = f"{self.id}-in", f"{self.id}-out"
        self._admin = AdminClient(self._connection)
        self._instances: list[Instance] = []
        self._deaths: list[str] = []
        self._faults: Counter[str] = Counter()
        self._history = History(exact=plan.exact)
        self._feeder = Feeder(
            self._connection,
            self._source,
            keys=plan.keys,
            rate=plan.rate,
            ahead_max=plan.ahead_max,
            done=lambda: self._history.seen,
        )
        self._output: Reader | None = None
        inputs = {f"{self.id}-stage-{stage}-repartition": count for stage, count in enumerate(plan.partitions)}
        inputs[self._source] = plan.partitions[0]
        self._commits = LostCommits(committed_offsets(self._connection, self.id, inputs))
        self._commits_lost: list[str] = []
        self._next_sample_s = 0.0
        self._left_out: list[str] = []

    def run(self) -> Result:
        """Run, and return the result.

        Raises:
            TimeoutError: The application made no progress for ``plan.settle_s`` seconds.
            BrokerUnavailableError: The run could not start.
            ValueError: A fault of the plan is not possible here. Raised before the run starts.
        """
        began = time.monotonic()
        try:
            if self._is_encrypted:
                self._left_out.append(
                    "no connection faults (cut, delay, stall): they need a proxy, which cannot read TLS"
                )
            self._instances += (self._new(number + 1) for number in range(self._plan.instances))
            faults = self._chosen_faults()
            self._create_topics()
            try:
                self._live_through(faults)
            finally:
                for instance in self._instances:
                    instance.kill()
                self._commits.close()
                self._delete_topics()
        finally:
            for instance in self._instances:
                instance.release()
        if self._commits_lost:
            self._left_out.append(self._describe_lost_commits())
        found, grown = growth(self._instances[0].uses)
        if grown is None:
            self._left_out.append("memory and open files were not checked: no measurements over a long enough time")
        return Result(
            violations=[*self._history.violations(self._feeder.written), *(grown or ())],
            records=self._history.seen,
            repeated=self._history.repeated,
            faults=self._faults,
            deaths=self._deaths,
            seconds=time.monotonic() - began,
            growth=found,
            left_out=self._left_out,
        )

    def _create_topics(self) -> None:
        # The output has the partitions of the last stage, so each output partition has one owner at a time.
        partitions = self._plan.partitions
        topics = [NewTopic(self._source, partitions[0]), NewTopic(self._sink, partitions[-1])]
        try:
            self._admin.list_topics(timeout=_ANSWER_S)
            for future in self._admin.create_topics(topics).values():
                future.result(_REQUEST_S)
        except KafkaException as error:
            raise BrokerUnavailableError(f"cannot create topics: {error}") from error

    def _live_through(self, faults: Faults) -> None:
        plan = self._plan
        if plan.exact:
            write_aborted(self._connection, self._source, _ABORTED)
        for instance in self._instances:
            instance.start()
        self._output = output = Reader(self._connection, self._sink, plan.partitions[-1], self._history)
        self._feeder.start()
        self._wait_until(lambda: self._history.seen > 0, "the first record")
        self._inject_all(faults)
        enough = max(plan.records_min, self._feeder.total + int(_LAST_S * plan.rate) + plan.keys)
        self._wait_until(lambda: self._feeder.total >= enough, "the input")
        self._feeder.stop()
        self._wait_until(lambda: self._history.seen >= self._feeder.total, "the last record")
        stores = self._stores()
        for instance in self._instances:
            status = instance.close(CLOSE_S)
            if status < 0 or (status > 0 and not instance.failed_as_expected):
                self._deaths.append(f"{instance.name} stopped with status {status} on close\n{instance.tail()}")
        time.sleep(_LAST_S)
        output.stop()
        self._compare(stores)

    def _new(self, number: int) -> Instance:
        plan = self._plan
        config = {
            "application.id": self.id,
            "processing.guarantee": "exactly_once_v2" if plan.exact else "at_least_once",
            "statestore.cache.max.bytes": 0,
            "session.timeout.ms": plan.session_ms,
            "heartbeat.interval.ms": plan.session_ms // 10,
            "num.standby.replicas": 1,
            "commit.interval.ms": 200,
            # After a failover, the coordinator of Kafka 4.3 may include stopped members that have no session. A
            # rebalance then waits for them for this time; the default of 5 minutes would exceed the run's timeout.
            "max.poll.interval.ms": _MAX_POLL_MS,
            **(self._security if self._login is None else self._login.settings),
            **plan.config,
        }
        order = {"source": self._source, "sink": self._sink, "partitions": plan.partitions, "config": config}
        folder = self._folder / f"instance-{number}"
        disk = self._disk(folder) if number == plan.instances else None
        brokers = self._connection["bootstrap.servers"] if self._login is None else self._login.address
        return Instance(folder, order, brokers if self._is_encrypted else Proxy(brokers), disk)

    def _disk(self, folder: Path) -> SmallDisk | None:
        if self._plan.faults and "full" not in self._plan.faults:
            return None
        try:
            return SmallDisk(folder / "disk")
        except DiskError as error:
            self._left_out.append(f"no full disk: cannot mount a small disk here ({error})")
            return None

    # -- faults ----------------------------------------

    def _chosen_faults(self) -> Faults:
        faults = Faults(
            self._draw,
            self._instances,
            session_ms=self._plan.session_ms,
            rest=self._rest,
            broker=self._broker,
            login=self._login,
        )
        if not self._plan.faults:  # any may be drawn
            if self._broker is None:
                self._left_out.append("no broker faults: this broker may not be killed")
            if self._login is None:
                self._left_out.append("no login faults: this run has no login that can be removed")
        if impossible := sorted(self._plan.faults.keys() - set(faults.possible)):
            raise ValueError("; ".join([f"faults not possible here: {', '.join(impossible)}", *self._left_out]))
        return faults

    def _inject_all(self, faults: Faults) -> None:
        plan = self._plan
        kinds = [kind for kind, times in plan.faults.items() for _ in range(times)]
        self._draw.shuffle(kinds)
        until = time.monotonic() + plan.seconds
        while kinds or (not plan.faults and time.monotonic() < until):
            self._rest(min(3 * plan.pace_s, self._draw.expovariate(1 / plan.pace_s)))
            if self._draw.random() < _AT_WORK:
                self._wait_until(self._is_at_work(), "a record after a fault")
            kind = kinds.pop() if plan.faults else faults.draw()
            self._faults[kind] += 1
            faults.inject(kind, self._say)

    def _is_at_work(self) -> Callable[[], bool]:
        before = self._history.seen
        return lambda: self._history.seen > before or self._history.seen >= self._feeder.total

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._restart_stopped_instances()
            self._take_samples()
            time.sleep(min(left, 0.2))

    def _take_samples(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_sample_s:
            self._next_sample_s = now_s + _CHECK_S
            self._instances[0].sample_use(now_s)
            if (lost := self._commits.check(now_s)) is not None:
                self._commits_lost.append(lost)
                self._say(lost)
                if self._broker is not None:
                    self._broker(0)

    def _restart_stopped_instances(self) -> None:
        """Restart instances that stopped, as an orchestrator does. A stop is an error unless a fault explains it."""
        for instance in self._instances:
            if instance.has_died and not instance.stays_down:
                status = instance.reap()
                if not instance.failed_as_expected:
                    self._deaths.append(f"{instance.name} stopped with status {status}\n{instance.tail()}")
                instance.start()

    def _describe_lost_commits(self) -> str:
        done = "restart its broker" if self._broker is None else "its broker was restarted"
        return (
            f"the group coordinator lost committed offsets ({len(self._commits_lost)} times), as Kafka 4.3 does if it "
            f"stops reading its log too early; {done}: {self._commits_lost[0]}"
        )

    # -- the end ----------------------------------------

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition. The time limit restarts with each progress, so a busy machine causes no error."""
        best, until = -1, time.monotonic() + self._plan.settle_s
        while not condition():
            self._feeder.check()
            if self._output is not None:
                self._output.check()
            if self._history.seen > best:
                best, until = self._history.seen, time.monotonic() + self._plan.settle_s
            if time.monotonic() > until:
                logs = "\n".join(instance.tail() for instance in self._instances)
                if self._commits_lost:
                    logs = f"{self._describe_lost_commits()}\n{logs}"
                raise TimeoutError(
                    f"timed out waiting for {what}: {best} of {self._feeder.total} records were processed, and none in "
                    f"the last {self._plan.settle_s:.0f} s\n{logs}"
                )
            self._say("")
            self._rest(0.2)

    def _stores(self) -> list[dict[str, int]]:
        """Request dumps of all stores until every stage has all keys; return the counts by stage."""
        found: list[dict[str, int]] = []

        def is_whole() -> bool:
            nonlocal found
            for instance in self._instances:
                instance.ask(signal.SIGUSR1)
            self._rest(0.5)
            found = [{} for _ in self._plan.partitions]
            for instance in self._instances:
                for stage, counts in enumerate(instance.counts()):
                    found[stage] |= counts
            return all(len(stage) == self._plan.keys for stage in found)

        self._wait_until(is_whole, "the content of all stores")
        return found

    def _compare(self, stores: Sequence[Mapping[str, int]]) -> None:
        until = time.monotonic() + self._plan.settle_s

        def wait() -> None:
            if time.monotonic() > until:
                raise TimeoutError("timed out reading a changelog: a transaction in it is still open")

        for stage, stored in enumerate(stores):
            topic = f"{self.id}-counts-{stage}-changelog"
            changelog = last_counts(self._connection, topic, self._plan.partitions[stage], wait)
            self._history.compare_state(stage, "changelog", changelog)
            self._history.compare_state(stage, "store", stored)

    def _delete_topics(self) -> None:
        names = [name for name in self._admin.list_topics(timeout=_REQUEST_S).topics if name.startswith(self.id)]
        for future in self._admin.delete_topics(names).values():
            future.exception(_REQUEST_S)

    def _say(self, what: str) -> None:
        written, done = self._feeder.total, self._history.seen
        if what:
            with (self._folder / "run.txt").open("a") as story:
                story.write(f"{dt.datetime.now():%H:%M:%S.%f} {what}: {done} of {written} records\n")
        self._tell(what, written, done)
