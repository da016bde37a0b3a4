"""A run: load, faults drawn from a seed, a quiet end, and the judgement."""

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

__all__ = ["Plan", "Result", "Torture"]

_ABORTED: Final = 100
_LOOK_S: Final = 2
_ANSWER_S: Final = 10
_REQUEST_S: Final = 60
_MAX_POLL_MS: Final = 60_000
_AT_WORK: Final = 0.7
"""Of so many faults that they hit an application that has processed something since the last one; others hit it while
it recovers."""
_LAST_S: Final = 1
"""For what may still come out after the last record, and must not. As long at least all keys are fed after the last
fault: at-least-once, what a frozen process had under way may arrive in a changelog behind its successor's records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run. ``faults``: how often each; without one, any until ``seconds`` are over."""

    exact: bool = True
    instances: int = 3
    partitions: Sequence[int] = (5, 12)
    """Of the input and the first repartition topic; of each further stage's; the last of them of the output, too."""
    keys: int = 300
    rate: float = 3_000
    """Records/s, fewer while the application is ``ahead_max`` records behind."""
    ahead_max: int = 50_000
    records_min: int = 0
    seconds: float = 60
    faults: Mapping[str, int] = field(default_factory=dict)
    pace_s: float = 4
    """Mean time between two faults."""
    session_ms: int = 6_000
    config: Mapping[str, Any] = field(default_factory=dict)
    settle_s: float = 180
    seed: int = 0


@dataclass(slots=True)
class Result:
    """``violations`` is empty when everything held."""

    violations: list[Violation]
    records: int
    repeated: int
    faults: Counter[str]
    deaths: list[str]
    """Ends of the logs of instances that ended by themselves."""
    seconds: float
    growth: list[Growth]
    """Memory and open files of an instance that lived through the run."""
    left_out: list[str]
    """What was not done or not judged, and why."""

    @property
    def ok(self) -> bool:
        return not self.violations and not self.deaths


class Torture:
    """One run. ``connection``: librdkafka settings that reach the cluster, beside Kafka's keys for its ``security``,
    with which instances get in, too; ``broker`` kills it, waits, starts it; instances go through the door of ``login``
    if there is one. ``tell`` hears of faults and phases, and how many records are written and done."""

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
        self._next_look_s = 0.0
        self._left_out: list[str] = []

    def run(self) -> Result:
        """TimeoutError when the application does not come to an end after the last fault; BrokerUnavailableError when
        it cannot begin; ValueError for a fault that cannot be done here, before anything is done."""
        began = time.monotonic()
        try:
            if self._is_encrypted:
                self._left_out.append(
                    "no connection is cut, slow or silent: a proxy does that, and cannot look into TLS"
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
            self._left_out.append(self._what_was_lost())
        found, grown = growth(self._instances[0].uses)
        if grown is None:
            self._left_out.append("memory and open files are not judged: nobody knows them for long enough")
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
        # A partition of the output has one owner at a time when it is that of the last stage.
        partitions = self._plan.partitions
        topics = [NewTopic(self._source, partitions[0]), NewTopic(self._sink, partitions[-1])]
        try:
            self._admin.list_topics(timeout=_ANSWER_S)
            for future in self._admin.create_topics(topics).values():
                future.result(_REQUEST_S)
        except KafkaException as error:
            raise BrokerUnavailableError(f"topics cannot be created: {error}") from error

    def _live_through(self, faults: Faults) -> None:
        plan = self._plan
        if plan.exact:
            write_aborted(self._connection, self._source, _ABORTED)
        for instance in self._instances:
            instance.start()
        self._output = output = Reader(self._connection, self._sink, plan.partitions[-1], self._history)
        self._feeder.start()
        self._wait_until(lambda: self._history.seen > 0, "the first record")
        self._strike_all(faults)
        enough = max(plan.records_min, self._feeder.total + int(_LAST_S * plan.rate) + plan.keys)
        self._wait_until(lambda: self._feeder.total >= enough, "the input")
        self._feeder.stop()
        self._wait_until(lambda: self._history.seen >= self._feeder.total, "the last record")
        stores = self._stores()
        for instance in self._instances:
            status = instance.close(CLOSE_S)
            if status < 0 or (status > 0 and not instance.says_why_it_ends):
                self._deaths.append(f"{instance.name} was to close, and ended with {status}\n{instance.tail()}")
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
            # A coordinator of Kafka 4.3 that comes back may count members that are gone, without sessions: at worst the
            # group waits for them for so long. The default of 5 minutes is more than what a run waits for a record.
            "max.poll.interval.ms": _MAX_POLL_MS,
            **(self._security if self._login is None else self._login.keys),
            **plan.config,
        }
        order = {"source": self._source, "sink": self._sink, "partitions": plan.partitions, "config": config}
        folder = self._folder / f"instance-{number}"
        disk = self._disk(folder) if number == plan.instances else None
        door = self._connection["bootstrap.servers"] if self._login is None else self._login.door
        return Instance(folder, order, door if self._is_encrypted else Proxy(door), disk)

    def _disk(self, folder: Path) -> SmallDisk | None:
        if self._plan.faults and "full" not in self._plan.faults:
            return None
        try:
            return SmallDisk(folder / "disk")
        except DiskError as error:
            self._left_out.append(f"no disk is filled: a small one cannot be mounted here ({error})")
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
                self._left_out.append("no broker is killed or away: this one may not be")
            if self._login is None:
                self._left_out.append("no login is lost: there is none that may be")
        if impossible := sorted(self._plan.faults.keys() - set(faults.possible)):
            raise ValueError("; ".join([f"cannot be done here: {', '.join(impossible)}", *self._left_out]))
        return faults

    def _strike_all(self, faults: Faults) -> None:
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
            faults.strike(kind, self._say)

    def _is_at_work(self) -> Callable[[], bool]:
        before = self._history.seen
        return lambda: self._history.seen > before or self._history.seen >= self._feeder.total

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._look_after_instances()
            self._look_around()
            time.sleep(min(left, 0.2))

    def _look_around(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + _LOOK_S
            self._instances[0].look_at_use(now_s)
            if (lost := self._commits.look(now_s)) is not None:
                self._commits_lost.append(lost)
                self._say(lost)
                if self._broker is not None:
                    self._broker(0)

    def _look_after_instances(self) -> None:
        """Start again what ended by itself, as an orchestrator would. It is a death unless a fault explains it."""
        for instance in self._instances:
            if instance.has_died and not instance.is_suffering:
                status = instance.reap()
                if not instance.says_why_it_ends:
                    self._deaths.append(f"{instance.name} ended with {status}\n{instance.tail()}")
                instance.start()

    def _what_was_lost(self) -> str:
        done = "start its broker again" if self._broker is None else "its broker was started again"
        return (
            f"the group's coordinator lost what was committed ({len(self._commits_lost)} x), as one of Kafka 4.3 does "
            f"when it breaks off reading its log; {done}: {self._commits_lost[0]}"
        )

    # -- the end ----------------------------------------

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Patience is renewed by progress: a busy machine is no failure."""
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
                    logs = f"{self._what_was_lost()}\n{logs}"
                raise TimeoutError(
                    f"{what} did not come: {best} of {self._feeder.total} records came out, and no more for "
                    f"{self._plan.settle_s:.0f} s\n{logs}"
                )
            self._say("")
            self._rest(0.2)

    def _stores(self) -> list[dict[str, int]]:
        """What the stores of all instances say, by stage, asked until every stage has all keys."""
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

        self._wait_until(is_whole, "a look at all stores")
        return found

    def _compare(self, stores: Sequence[Mapping[str, int]]) -> None:
        until = time.monotonic() + self._plan.settle_s

        def wait() -> None:
            if time.monotonic() > until:
                raise TimeoutError("a changelog does not end: a transaction is open in it")

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
