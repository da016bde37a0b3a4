"""Processes killed with SIGKILL while they count: time without output, and number of restored records.

    python -m benchmarks.recovery member BOOTSTRAP GUARANTEE STANDBYS FOLDER    (a process of the application)

There are two scenes on a real broker, each with a store of many keys and input at a constant rate. In the first, the
only process is killed and immediately restarted on the same disk, with exactly-once. In the second, two processes keep
standby copies for each other; one is killed, and the other takes over its tasks.

The broker's clock is used: it stamps the records of the output topic (LogAppendTime). The measured time is from the
kill to the first output (committed output, with exactly-once) of the slowest partition. It includes the session
timeout of the group, because the dead process counts as a member until then.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.cluster import BenchmarkError, end_filling, end_of, make_topic, numbered_key, put
from benchmarks.table import Goal, Row
from streams_py.testing.broker import JvmBroker, NoBrokerError

_KEYS_VARIABLE = "STREAMS_PY_BENCH_RECOVERY_KEYS"
_KEYS = 1_000_000
_PARTITIONS = 4
_RATE = 1_000
_COMMIT_MS = 100
_SESSION_MS = 6_000
_HEARTBEAT_MS = 400
"""The same share of the session timeout as in Kafka's defaults (3 of 45 s)."""
_WORKING_S = 5.0
"""Time with input at a constant rate before the kill, in s."""
_REPORT_INTERVAL_S = 0.5
"""Interval at which a process reports the state of its stores, in s."""
_LIMIT_S = 900.0
_IN, _OUT = "recovery-in", "recovery-out"


def recovery_rows(runs: int, tick: Callable[[str], None]) -> Iterator[Row]:
    """Measure the seconds without output. ``$STREAMS_PY_BENCH_RECOVERY_KEYS`` changes the size of the stores."""
    keys = int(os.environ.get(_KEYS_VARIABLE, _KEYS))
    session_s = _SESSION_MS / 1000
    again = f"killed under exactly-once, started again on its disk, {keys:,} keys: until it counts"
    replayed = "records replayed then, per record that came in during a commit interval"
    taken = f"killed, with a standby on the other process, {keys:,} keys: until the other counts"
    silences: list[float] = []
    replays: list[float] = []
    moves: list[float] = []
    for run in range(runs):
        try:
            tick(f"SIGKILL under exactly-once, {keys:,} keys, run {run + 1}")
            silence_s, records = _killed_and_started_again(keys)
            silences.append(silence_s)
            replays.append(records / (_RATE * _COMMIT_MS / 1000))
            tick(f"take-over by a standby, {keys:,} keys, run {run + 1}")
            moves.append(_taken_over(keys))
        except NoBrokerError as error:
            yield Row("recovery", "", "s", (), note=f"no broker: {str(error).splitlines()[0]}", failed=True)
            return
    session = f"session {session_s:g} s"
    yield Row(again, "", "s", tuple(silences), goal=Goal(f"< {session} + 2 s", ours_max=session_s + 2))
    yield Row(replayed, "", "", tuple(replays), goal=Goal("<= 2", ours_max=2.01))
    yield Row(taken, "", "s", tuple(moves), goal=Goal(f"< {session} + 1 s", ours_max=session_s + 1))


def _killed_and_started_again(keys: int) -> tuple[float, int]:
    """Return (seconds without output of the slowest partition, number of records that the second process restored)."""
    with _Scene("exactly_once_v2", standbys=0) as scene:
        first = scene.start("only")
        scene.fill(keys)
        with scene.records_coming_in(keys):
            time.sleep(_WORKING_S)
            killed_ms = first.kill()
            second = scene.start("only")
            silence_s = scene.silence_after(killed_ms)
        time.sleep(2 * _REPORT_INTERVAL_S)  # the last report may be older than the restore
        return silence_s, second.told()["restored"]


def _taken_over(keys: int) -> float:
    """Return the seconds without output of the slowest partition."""
    with _Scene("at_least_once", standbys=1) as scene:
        members = [scene.start("one"), scene.start("two")]
        scene.fill(keys)
        with scene.records_coming_in(keys):
            scene.wait("every partition is active on one and followed on the other", lambda: _settled(members))
            time.sleep(_WORKING_S)
            return scene.silence_after(members[0].kill())


def _settled(members: list[_Member]) -> bool:
    told = [member.told() for member in members]
    return all(each["copies"] == _PARTITIONS and each["active"] == _PARTITIONS // 2 for each in told) and all(
        each["lag"] < _RATE for each in told
    )


class _Member:
    """A process of the application, which reports the state of its stores at intervals."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._log = log
        self._last: dict[str, int] = {"active": 0, "copies": 0, "lag": 0, "restored": 0}
        self._errors = log.open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.recovery", "member", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=Path(__file__).resolve().parent.parent,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._last = json.loads(line)

    def told(self) -> dict[str, int]:
        """Return its last report. Raises BenchmarkError if it has stopped unexpectedly."""
        if self._process.poll() is not None:
            raise BenchmarkError(f"a process of the application stopped early:\n{self._log.read_text()[-2000:]}")
        return self._last

    def kill(self) -> int:
        """Kill it with SIGKILL; return the time, in ms."""
        killed_ms = time.time_ns() // 1_000_000
        self._process.kill()
        self.end()
        return killed_ms

    def end(self) -> None:
        """Kill it and release its resources."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._errors.close()


class _Scene:
    """A broker with an input and an output topic, and processes that count between them."""

    def __init__(self, guarantee: str, *, standbys: int) -> None:
        self._arguments = [guarantee, str(standbys)]
        self._members: list[_Member] = []
        self._folder = tempfile.TemporaryDirectory(prefix="streams-py-bench-", ignore_cleanup_errors=True)
        self._broker = JvmBroker(heap="1g")
        try:
            self._bootstrap = self._broker.bootstrap
            make_topic(self._bootstrap, _IN, _PARTITIONS)
            make_topic(self._bootstrap, _OUT, _PARTITIONS, append_time=True)
            self._watcher = Consumer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "group.id": "benchmark-watch",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                }
            )
        except BaseException:
            self._broker.close()
            self._folder.cleanup()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            member.end()
        self._watcher.close()
        self._broker.close()
        self._folder.cleanup()

    def start(self, name: str) -> _Member:
        """Start a process. Processes with the same name use the same disk."""
        log = Path(self._folder.name) / f"{name}-{len(self._members)}.log"
        state_dir = str(Path(self._folder.name) / name)
        member = _Member([self._bootstrap, *self._arguments, state_dir], log)
        self._members.append(member)
        return member

    def fill(self, keys: int) -> None:
        """Write every key once, and wait until all are counted."""
        producer = _producer(self._bootstrap)
        for number in range(keys):
            put(producer, _IN, b"v", numbered_key(number))
        end_filling(producer)
        self.wait(f"{keys:,} keys are counted", lambda: end_of(self._watcher, _OUT, range(_PARTITIONS)) >= keys)

    def records_coming_in(self, keys: int) -> _Feed:
        """Write records of the existing keys at a constant rate until the end of the block."""
        return _Feed(self._bootstrap, keys)

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait for a condition. Raises BenchmarkError on a timeout, or if a process of the application has stopped."""
        limit = time.monotonic() + _LIMIT_S
        while not holds():
            if time.monotonic() > limit:
                raise BenchmarkError(f"timed out after {_LIMIT_S:.0f} s; expected: {what}")
            self._members[-1].told()
            time.sleep(0.3)

    def silence_after(self, killed_ms: int) -> float:
        """Return the seconds from the kill to the first output of the slowest partition."""
        # Records that the dead process had sent may reach the broker shortly after the kill.
        after_ms = killed_ms + 1000
        stamps = [TopicPartition(_OUT, number, after_ms) for number in range(_PARTITIONS)]
        time.sleep(max(0.0, after_ms / 1000 - time.time()))
        self._watcher.assign(self._watcher.offsets_for_times(stamps, 60))
        first_ms: dict[int, int] = {}
        limit = time.monotonic() + _LIMIT_S
        while len(first_ms) < _PARTITIONS:
            if time.monotonic() > limit:
                raise BenchmarkError(f"only the partitions {sorted(first_ms)} have output after the kill")
            self._members[-1].told()
            for message in self._watcher.consume(1000, 0.2):
                partition, stamp_ms = message.partition(), message.timestamp()[1]
                if message.error() is None and partition is not None and stamp_ms > after_ms:
                    first_ms.setdefault(partition, stamp_ms)
        return (max(first_ms.values()) - killed_ms) / 1000


class _Feed:
    """Writes at a constant rate until the end of its block."""

    def __init__(self, bootstrap: str, keys: int) -> None:
        self._producer = _producer(bootstrap)
        self._keys = keys
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def _write(self) -> None:
        chosen = random.Random(7)
        began, written = time.monotonic(), 0
        while not self._done.wait(0.01):
            while written < (time.monotonic() - began) * _RATE:
                put(self._producer, _IN, b"v", numbered_key(chosen.randrange(self._keys)))
                written += 1
            self._producer.poll(0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._producer.flush(10)


def _producer(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "partitioner": "murmur2_random"})


def member(bootstrap: str, guarantee: str, standbys: str, state_dir: str) -> None:
    """Count until killed, and print the state of the stores at intervals."""
    from streams_protocol.types import TopicPartition as Changelog
    from streams_py import KafkaStreams, RestoreListener, State, StreamsBuilder, serdes

    class Total(RestoreListener):
        """Counts the records of all restores."""

        records = 0

        def on_batch_restored(self, changelog: Changelog, store: str, batch_end: int, count: int) -> None:
            self.records += count

    builder = StreamsBuilder(key=serdes.STRING, value=serdes.BYTES)
    counts = builder.stream(_IN).group_by_key().count(store="counts")
    counts.to_stream().to(_OUT, key=serdes.STRING, value=serdes.INT64)
    config = {
        "application.id": "recovery",
        "bootstrap.servers": bootstrap,
        "processing.guarantee": guarantee,
        "num.standby.replicas": standbys,
        "state.dir": state_dir,
        "statestore.cache.max.bytes": 0,
        "commit.interval.ms": _COMMIT_MS,
        "consumer.session.timeout.ms": _SESSION_MS,
        "consumer.heartbeat.interval.ms": _HEARTBEAT_MS,
    }
    restored = Total()
    with KafkaStreams(builder.build(), config, restore_listener=restored) as streams:
        while True:
            said = {"active": 0, "copies": 0, "lag": 0, "restored": restored.records}
            if streams.state is State.RUNNING:
                lags = streams.all_local_store_partition_lags().get("counts", {})
                said["copies"] = len(lags)
                said["lag"] = sum(each.lag for each in lags.values())
                said["active"] = sum(len(thread.active_tasks) for thread in streams.metadata_for_local_threads())
            print(json.dumps(said), flush=True)
            time.sleep(_REPORT_INTERVAL_S)


if __name__ == "__main__":
    member(*sys.argv[2:])
