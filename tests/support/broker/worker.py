"""One application process of the broker tests.

The first line of standard input is the order (JSON): the application, its configuration, its topics. Every change of
state or tasks is reported as a JSON line on standard output, and so is the answer to each further line, a command. The
process closes the application and stops when standard input is closed. A signal stops it like any other program.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NoReturn

from streams_protocol.types import TopicPartition
from streams_py import (
    KafkaStreams,
    Materialized,
    State,
    StreamsBuilder,
    StreamThreadExceptionResponse,
    Topology,
    serdes,
)
from streams_py.clients.sorter_process import SorterProcess
from streams_py.ports import ChangelogPart
from streams_py.runtime.restore import parallel_restore
from streams_py.runtime.restore.listener import RestoreListener
from streams_py.state.disk.store import RocksBytes
from streams_py.system.clock import SystemClock
from streams_py.topology.declare.processor import Processor, Record

_REPORT_INTERVAL_S = 0.05
_out = threading.Lock()
_answering = threading.Lock()


def say(message: dict[str, Any]) -> None:
    """One line to the parent."""
    with _out:
        print(json.dumps(message), flush=True)


# -- applications ------------------------------------------------------------------------------------------------


def count_words(order: dict[str, Any]) -> Topology:
    """Lines of words -> how often each word occurred; with ``delay_s`` after calls that take their time. Rows
    go when ``ttl_ms`` have passed, if given."""
    builder = StreamsBuilder()
    counts = (
        builder.stream(order["input"], key=serdes.STRING, value=serdes.STRING)
        .flat_map_values(str.split)
        .group_by(lambda _, word: word, key=serdes.STRING, value=serdes.STRING)
        .count(materialized=Materialized("counts", ttl=order.get("ttl_ms")))
        .to_stream()
    )
    if "delay_s" in order:
        counts = counts.map_values_async(looked_up(order))
    counts.to(order["output"], key=serdes.STRING, value=serdes.INT64)
    return builder.build()


def looked_up(order: dict[str, Any]) -> Callable[[Any], Coroutine[Any, Any, Any]]:
    """Gives back what it gets, after a while."""

    async def look_up(value: Any) -> Any:
        await asyncio.sleep(random.random() * order.get("delay_s", 0.01))
        return value

    return look_up


class Tracer(Processor[bytes, bytes, bytes, bytes]):
    """Writes down each record: when, by whom in which generation, and which one.

    Some values are more than that: ``poison`` fails, ``poison once`` fails the first time anybody sees it, ``close``
    closes the application.
    """

    def __init__(self, order: dict[str, Any], streams: list[KafkaStreams]) -> None:
        self._order = order
        self._streams = streams
        self._file = open(f"{order['trace']}-{os.getpid()}.jsonl", "a", buffering=1)  # noqa: SIM115  # closed in close()

    def init(self, context: Any) -> None:
        self._context = context

    def process(self, record: Record[bytes, bytes]) -> None:
        match record.value:
            case b"poison":
                raise ValueError("poisoned on purpose")
            case b"poison once" if is_first(f"{self._order['trace']}-poisoned"):
                raise ValueError("poisoned on purpose, once")
            case b"close":
                self._streams[0].close()
        where = self._context.record_metadata
        thread = threading.current_thread().name
        generation = generation_of(self._streams[0], thread)
        line = [time.time(), os.getpid(), thread, generation, where.partition, where.offset]
        self._file.write(json.dumps(line) + "\n")
        time.sleep(self._order.get("delay_s", 0))
        self._context.forward(record)

    def close(self) -> None:
        self._file.close()


def is_first(marker: str) -> bool:
    """True for the first process that asks."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def generation_of(streams: KafkaStreams, thread_name: str) -> int:
    """The group's generation as this thread knows it; -1 outside."""
    for thread in streams._threads.current():  # users see no generation
        if thread.name == thread_name:
            return thread.identity()[0]
    return -1


def trace(order: dict[str, Any], streams: list[KafkaStreams]) -> Topology:
    """Copies records, and writes each one down."""
    builder = StreamsBuilder()
    stream = builder.stream(order["input"], key=serdes.BYTES, value=serdes.BYTES)
    stream.process(lambda: Tracer(order, streams)).to(order["output"], key=serdes.BYTES, value=serdes.BYTES)
    return builder.build()


def ask(order: dict[str, Any]) -> Topology:
    """Values ``key:number`` -> the same by key, after calls that take their time."""
    builder = StreamsBuilder()
    stream = builder.stream(order["input"], key=serdes.BYTES, value=serdes.BYTES)
    keyed = stream.select_key(lambda _, value: value.partition(b":")[0], key=serdes.BYTES)
    keyed.map_values_async(looked_up(order)).to(order["output"], key=serdes.BYTES, value=serdes.BYTES)
    return builder.build()


class Restorations(RestoreListener):
    """Records of each restore: changelog -> [start, end, records]."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self._open: dict[TopicPartition, dict[str, Any]] = {}
        self.on_end: Callable[[], object] = lambda: None

    def on_restore_start(self, changelog: TopicPartition, store: str, start: int, end: int) -> None:
        self._open[changelog] = {"partition": changelog.partition, "start": start, "end": end, "total": None}
        self.seen.append(self._open[changelog])

    def on_restore_end(self, changelog: TopicPartition, store: str, total: int) -> None:
        self._open[changelog]["total"] = total
        self.on_end()


class HurriedClock(SystemClock):
    """The system's clock, but the wall clock may be put forward: a probing rebalance is a minute away at least."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


restorations = Restorations()
clock = HurriedClock()


# -- the process -------------------------------------------------------------------------------------------------


def report(streams: KafkaStreams) -> dict[str, Any]:
    """State and tasks."""
    threads = streams.metadata_for_local_threads()
    return {
        "state": streams.state.value,
        "active": sorted(str(task.id) for thread in threads for task in thread.active),
        "running": sorted(str(t.id) for thread in threads for t in thread.active if t.state.value == "RUNNING"),
        "standby": sorted(str(task.id) for thread in threads for task in thread.standby),
        "threads": {thread.name: thread.state.value for thread in threads},
        "generations": {thread.name: generation_of(streams, thread.name) for thread in threads},
        "error": None if streams.error is None else f"{type(streams.error).__name__}: {streams.error}",
    }


def obey(streams: KafkaStreams, command: dict[str, Any]) -> object:
    """Carry out a command of the parent."""
    match command["do"]:
        case "add thread":
            return streams.add_stream_thread()
        case "remove thread":
            return streams.remove_stream_thread(command.get("timeout"))
        case "close":
            return streams.close(command.get("timeout"), leave_group=command.get("leave", False))
        case "protocols":
            # Users do not see it.
            loops = [thread.loop for thread in streams._threads.current() if thread.loop is not None]
            return sorted({one.name for loop in loops for one in loop.parts.transport._member.protocols})  # see above
        case "versions":
            # Users do not see it.
            loops = [thread.loop for thread in streams._threads.current() if thread.loop is not None]
            return sorted({loop.parts.transport._member.used_version for loop in loops})  # see above
        case "drain":
            return streams.drain(command.get("timeout"))
        case "probes":
            return {"alive": streams.is_alive(), "ready": streams.is_ready()}
        case "store":
            view = streams.store("counts", stale=command.get("stale", False))
            return dict(view.all())
        case "cpu":
            times = os.times()
            return times.user + times.system
        case "threads":
            return sorted(thread.name for thread in threading.enumerate())
        case "advance":
            clock.ahead_ms += command["ms"]
            return clock.ahead_ms
        case "restored":
            return restorations.seen
        case "led":
            # Users do not see it.
            loops = [thread.loop for thread in streams._threads.current() if thread.loop is not None]
            return sum(len(loop.parts.transport._leader_executor.explanations) for loop in loops)  # see above
        case "errors":
            # The client shows only the error that stopped it.
            return [str(t.last_error) for t in streams._threads.current() if t.last_error is not None]
    raise ValueError(command)


def serve(streams: KafkaStreams, ended: threading.Event) -> None:
    """Answer commands until standard input ends."""
    for line in sys.stdin:
        command = json.loads(line)
        with _answering:
            try:
                say({"answer": obey(streams, command), "to": command["number"]})
            except Exception as error:
                say({"answer": None, "to": command["number"], "problem": f"{type(error).__name__}: {error}"})
    ended.set()


def make(order: dict[str, Any]) -> KafkaStreams:
    """The application of the order."""
    held: list[KafkaStreams] = []
    if "shared_from" in order:  # restores with this number of records
        # So many records would take too long to write.
        parallel_restore._SHARED_MIN, parallel_restore._PART_MIN = order["shared_from"], order["shared_from"] // 10  # type: ignore[misc]
    if "dies_when" in order:
        die_restoring(order["dies_when"], order["trace"])
    topology = (
        trace(order, held) if order["app"] == "trace" else ask(order) if order["app"] == "ask" else count_words(order)
    )
    answer, close_in = order.get("uncaught"), order.get("close_in")
    streams = KafkaStreams(
        topology,
        order["config"],
        clock=clock,
        on_error=None if answer is None else lambda error: handled(held[0], error, answer),
        on_state=lambda new, old: close_in == "state listener" and new is State.RUNNING and held[0].close(),
        restore_listener=restorations,
    )
    held.append(streams)
    if close_in == "restore listener":
        restorations.on_end = streams.close
    return streams


def die_restoring(when: str, trace: str) -> None:
    """With another process, whose id is written down: while it reads, when it has written, or when its files, but not
    the position, are in the database."""
    begin, store_takes_in = SorterProcess.begin, RocksBytes.take_in

    def die() -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")

    def begun(self: SorterProcess, part: ChangelogPart) -> None:
        with open(f"{trace}-sorters", "a") as file:
            file.write(f"{self.pid}\n")
        begin(self, part)
        if when == "reading":
            die()

    def taken_in(self: RocksBytes, files: Iterable[str]) -> None:
        if when == "in files":
            die()
        store_takes_in(self, files)
        die()

    SorterProcess.begin, RocksBytes.take_in = begun, taken_in  # type: ignore[method-assign]


def handled(streams: KafkaStreams, error: Exception, answer: str) -> StreamThreadExceptionResponse:
    """The answer of the order; ``close`` closes first."""
    if answer == "close":
        streams.close()
        return StreamThreadExceptionResponse.REPLACE_THREAD
    return StreamThreadExceptionResponse[answer]


def served(streams: KafkaStreams) -> contextlib.AbstractContextManager[object]:
    """Its stores, over HTTP, where the order gives it an address for that."""
    if streams.store_hosts.own is None:
        return contextlib.nullcontext()
    from streams_py.query import QueryService  # it takes time to load, which most processes here need not spend

    return QueryService(streams)


def tell_states(streams: KafkaStreams) -> None:
    """Report what changes, as long as the process lives."""
    last = None
    while True:
        now = report(streams)
        if now != last:
            say(now)
            last = now
        time.sleep(_REPORT_INTERVAL_S)


def main() -> int:
    """Run until standard input ends, or the application does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent process may ignore Ctrl-C: `nohup ... &`
    logging.basicConfig(
        level=os.environ.get("LEVEL", "INFO"), format="%(asctime)s.%(msecs)03d %(threadName)s %(name)s %(message)s",
        datefmt="%H:%M:%S",
    )  # fmt: skip
    order = json.loads(sys.stdin.readline())
    streams = make(order)
    if "drain" in order:
        threading.Thread(target=tell_states, args=(streams,), daemon=True).start()
        streams.run(drain=order["drain"])
        return 0
    ended = threading.Event()
    last = None
    with streams, served(streams):
        threading.Thread(target=serve, args=(streams, ended), daemon=True).start()
        while not ended.wait(_REPORT_INTERVAL_S):
            now = report(streams)
            if now != last:
                say(now)
                last = now
            if streams.state.is_final and not order.get("stays"):
                _answering.acquire()  # who asked for the end is to hear that it came
                return 1 if now["state"] == "ERROR" else 0
        streams.close(order.get("close_timeout", 15))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
