"""Time without output of partitions while members join, leave, drain and are killed, compared with Kafka Streams.

    python -m benchmarks.gaps member BOOTSTRAP APPLICATION_ID INPUT OUTPUT CACHE_BYTES COMMIT_MS STATE_DIR

Processes with one thread count, keep standby copies for each other, and get records at a constant rate. A gap is the
longest time without output of a partition after an event, minus the normal value. The normal value is the median over
all partitions of the longest time without output while nothing happens. A partition has moved if the group coordinator
reported more than one member for it during that time.
"""

from __future__ import annotations

import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Self

from benchmarks.cluster import BenchmarkError
from benchmarks.jobs import Order
from benchmarks.live_output import LOOK_S, PARTITIONS, LiveOutput, longest_silence, moved_between
from benchmarks.peers import JAVA, Peer, Running, command_of
from benchmarks.table import Goal, Row, reason_of
from streams_py.testing.broker import JvmBroker, NoBrokerError

_COMMIT_MS = 100
_SESSION_MS = 6_000
_HEARTBEAT_MS = 1_200
_WARM_S = 15.0
"""Warm-up time after two members share the partitions, in s, so that copies are complete and code is warm."""
_WINDOW_S = 18.0
_DRAIN_S = 30.0
_LIMIT_S = 90.0
_RUNS_MAX = 2
_MEMBERS = Peer(
    "members", "streams_py", lambda _: [sys.executable, "-m", "benchmarks.gaps"]
)  # each with the order of a Peer
_PLANNED = ("join", "leave")
_EVENTS = ("join", "leave", "join", "kill")
_OUR_EVENTS = ("join", "leave", "join", "drain", "join", "kill")


def gap_rows(runs: int, tick: Callable[[str], None], *, with_jvm: bool = True) -> Iterator[Row]:
    """Measure the seconds without output beyond the normal value."""
    peers = ((_MEMBERS, _OUR_EVENTS), *([(JAVA, _EVENTS)] if with_jvm else ()))
    found: dict[str, list[list[Gap]]] = {peer.name: [] for peer, _ in peers}
    notes: dict[str, str] = {}
    try:
        broker = JvmBroker(heap="1g")
    except NoBrokerError as error:
        yield Row("gaps", "", "s", (), note=f"no broker: {str(error).splitlines()[0]}", failed=True)
        return
    with closing(broker), tempfile.TemporaryDirectory(prefix="streams-py-bench-") as folder:
        for run in range(min(runs, _RUNS_MAX)):
            for peer, events in peers:
                tick(f"gaps of {peer.title}: {', '.join(events)}, run {run + 1}")
                try:
                    with _Scene(broker.bootstrap, Path(folder), peer) as scene:
                        found[peer.name].append(scene.gaps(events))
                except Exception as error:  # an error of one peer must not stop the other
                    reason = reason_of(error)
                    notes[peer.name] = reason if reason.startswith(peer.title) else f"{peer.title}: {reason}"
    ours, java = found[_MEMBERS.name], found.get(JAVA.name, [])
    title = JAVA.title if with_jvm else ""

    def row(work: str, value: Callable[[list[Gap]], float], goal: Goal, *, with_peer: bool = True) -> Row:
        peer = tuple(map(value, java)) if with_peer else ()
        note = "; ".join(text for name, text in notes.items() if with_peer or name == _MEMBERS.name)
        peer_title = title if with_peer else ""
        return Row(work, peer_title, "s", tuple(map(value, ours)), peer, goal, note, failed=bool(note))

    yield row(
        "gap of partitions that stay, while a member joins, leaves, is killed: longest",
        lambda gaps: max(gap.longest_untouched for gap in gaps),
        Goal("<= 0.02", ours_max=0.0201),
    )
    yield row(
        "gap of partitions that move as a member joins or leaves: median",
        lambda gaps: median(each for gap in gaps if gap.event in _PLANNED for each in gap.moved),
        Goal("<= 1/2", ratio_max=0.5),
    )
    yield row(
        "gap of partitions whose member drains: longest",
        lambda gaps: max(each for gap in gaps if gap.event == "drain" for each in gap.moved),
        Goal("<= 0.5", ours_max=0.501),
        with_peer=False,
    )
    yield row(
        f"gap of partitions whose member is killed, session {_SESSION_MS / 1000:g} s: longest",
        lambda gaps: max(each for gap in gaps if gap.event == "kill" for each in gap.moved),
        Goal(""),
    )


@dataclass(frozen=True, slots=True)
class Gap:
    """The effect of one event: seconds without output beyond the normal value, for each partition that moved."""

    event: str
    moved: tuple[float, ...]
    longest_untouched: float


class _Scene:
    """An application of one peer with input records, and the measurement of its output."""

    def __init__(self, bootstrap: str, folder: Path, peer: Peer) -> None:
        self._peer, self._bootstrap, self._folder = peer, bootstrap, folder
        self._command = command_of(peer, folder)
        self._application = f"gaps-{peer.name}-{uuid.uuid4().hex[:6]}"
        self._output = LiveOutput(bootstrap, self._application)
        self._processes = ExitStack()
        self._started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._output:
            self._processes.close()

    def gaps(self, events: Sequence[str]) -> list[Gap]:
        """Start two members and run the events one after the other."""
        members = [self._start(), self._start()]
        self._output.start()
        self._wait_for_two_members()
        time.sleep(_WARM_S)
        windows: list[tuple[str, float, float]] = []
        for event in ("nothing", *events):
            begin = time.time()
            match event:
                case "join":
                    members.append(self._start())
                case "leave":
                    members.pop(0).let_end()
                case "drain":
                    draining = members.pop(0)
                    draining.tell("drain")
                    draining.let_end()
                case "kill":
                    members.pop(0).kill()
            time.sleep(_WINDOW_S)
            for member in members:
                member.check()
            windows.append((event, begin, time.time()))
        if self._output.failed:
            raise BenchmarkError(f"{self._peer.title}: {self._output.failed[0]}")
        return self._measured(windows)

    def _measured(self, windows: Sequence[tuple[str, float, float]]) -> list[Gap]:
        (_, *quiet), *others = windows
        normal = median(longest_silence(stamps, *quiet) for stamps in self._output.stamps)
        gaps = []
        for event, begin, end in others:
            moved = moved_between(self._output.owners, begin, end, PARTITIONS)
            silences = [max(0.0, longest_silence(stamps, begin, end) - normal) for stamps in self._output.stamps]
            if not moved or max(silences) > _WINDOW_S - 1:
                raise BenchmarkError(f"{self._peer.title}: event {event} did not complete within {_WINDOW_S:.0f} s")
            untouched = [silence for number, silence in enumerate(silences) if number not in moved]
            gaps.append(Gap(event, tuple(silences[number] for number in sorted(moved)), max(untouched, default=0.0)))
        return gaps

    def _start(self) -> Running:
        self._started += 1
        state_dir = str(self._folder / f"{self._application}-{self._started}")
        order = Order(
            "member",
            self._bootstrap,
            self._application,
            self._output.source,
            self._output.sink,
            "0",
            str(_COMMIT_MS),
            state_dir,
        )
        return self._processes.enter_context(Running(self._peer, self._command, order))

    def _wait_for_two_members(self) -> None:
        limit = time.monotonic() + _LIMIT_S
        while not (len(members := self._output.members()) == PARTITIONS and len(set(members.values())) > 1):
            if time.monotonic() > limit or self._output.failed:
                raise BenchmarkError(
                    f"{self._peer.title}: two members do not share the partitions {self._output.failed}"
                )
            time.sleep(LOOK_S)


def member(order: Order) -> None:
    """Count until standard input is closed, then close and leave the group.

    Closing hands tasks over for a part of its timeout. After the input line ``drain``, it hands over all tasks first.
    """
    from streams_py import KafkaStreams, StreamsBuilder, serdes

    builder = StreamsBuilder()
    counts = builder.stream(order.source, key=serdes.STRING, value=serdes.BYTES).group_by_key().count(store="counts")
    counts.to_stream().to(order.sink, key=serdes.STRING, value=serdes.INT64)
    config = {
        "application.id": order.application,
        "bootstrap.servers": order.bootstrap,
        "state.dir": order.state_dir,
        "statestore.cache.max.bytes": order.cache_bytes,
        "commit.interval.ms": order.commit_ms,
        "num.standby.replicas": 1,
        "consumer.session.timeout.ms": _SESSION_MS,
        "consumer.heartbeat.interval.ms": _HEARTBEAT_MS,
    }
    streams = KafkaStreams(builder.build(), config)
    streams.start()
    if "drain" in sys.stdin.read():
        streams.drain(_DRAIN_S)
    streams.close(30, leave_group=True)


if __name__ == "__main__":
    member(Order(*sys.argv[1:]))
