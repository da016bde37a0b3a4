"""Process months of history on Spark, then continue live: one topology, no record counted twice or lost.

    python3 run.py backfill [LINES]
    BOOTSTRAP=localhost:9092 python3 run.py backfill

1. A topic is filled with history: LINES lines (default 1,000,000), each with two pages. Then traffic continues.
2. Spark runs the topology of app.py over the history and writes the compacted changelog: plan, run, verify, commit.
3. The application starts. It reads only records that are newer than the plan. Its counts must equal a plain Counter.

What to look at: step 3 has the counts of the whole history within seconds. Needs Java 17+ and the extra `spark`.
Without BOOTSTRAP it starts a separate broker. A broker in BOOTSTRAP must not have the topic `visits`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.backfill.app import visits
from streams_py import InvalidStateStoreError, KafkaStreams, StreamsError, TopicSpec, create_topics
from streams_py.testing.broker import JvmBroker, NoBrokerError

_TOPIC: Final = "visits"
_PARTITIONS: Final = 4
_PAGES: Final = 20_000
_LINES: Final = 1_000_000
_LIVE_LINES_PER_S: Final = 200
_TAKEOVER_S: Final = 120.0
_AGE_MS: Final = 3_600_000


class Traffic:
    """Writes lines, and counts their pages."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.kbytes": 65536}
        )
        self._written = 0
        self._first_ms = int(time.time() * 1000) - _AGE_MS
        self.counted: Counter[str] = Counter()

    def write(self, lines: int, tick: Callable[[int], None] = lambda _: None) -> None:
        """Write this number of lines."""
        for _ in range(lines):
            at = self._written
            pages = f"/page/{at * 7919 % _PAGES}", f"/page/{at % 97}"
            self.counted.update(pages)
            while True:
                try:
                    self._producer.produce(
                        _TOPIC, " ".join(pages), partition=at % _PARTITIONS, timestamp=self._first_ms + at
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._written = at + 1
            if at % 10_000 == 0:
                self._producer.poll(0)
                tick(at)
        self._producer.flush(60)
        tick(self._written)

    @contextlib.contextmanager
    def in_background(self) -> Iterator[None]:
        """Write some hundred lines per second until the end of the block."""
        ended = threading.Event()

        def write() -> None:
            while not ended.wait(0.1):
                self.write(_LIVE_LINES_PER_S // 10)

        thread = threading.Thread(target=write, name="traffic")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@contextlib.contextmanager
def _bar(console: Console, what: str, total: int | None) -> Iterator[Callable[[int, int | None], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def bootstrap(console: Console, step: str, *arguments: str) -> None:
    """Run ``streams-py bootstrap STEP ...``."""
    console.print(f"[bold]streams-py bootstrap {step} {' '.join(arguments)}[/bold]", soft_wrap=True)
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "streams_py", "bootstrap", step, *arguments], check=False)
    if done.returncode:
        raise StreamsError(f"bootstrap {step} failed")
    console.print(f"[dim]{step}: {time.monotonic() - began:.0f} s[/dim]")


def play(address: str, lines: int, folder: Path, console: Console) -> bool:
    """Run the whole demonstration; return whether the counts are right."""
    settings = {"application.id": "visits-by-page", "bootstrap.servers": address, "state.dir": str(folder / "state")}
    create_topics(settings, TopicSpec(_TOPIC, _PARTITIONS, config={"retention.ms": "-1"}))
    traffic = Traffic(address)
    with _bar(console, "history ", lines) as tick:
        traffic.write(lines, lambda done: tick(done, None))
    common = ("--bootstrap", address, "--plan", str(folder / "plan.json"))
    with traffic.in_background():
        bootstrap(console, "plan", "examples.backfill.app:visits", "--application-id", "visits-by-page", *common)
        bootstrap(console, "run", "--commit", "--master", "local[2]", *common)
        console.print("committed; the application takes over while lines come in")
        streams = KafkaStreams(visits(), {**settings, "commit.interval.ms": 200})
        streams.start()
    try:
        wanted = traffic.counted.total()
        until = time.monotonic() + _TAKEOVER_S
        began = time.monotonic()
        with _bar(console, "takeover", wanted) as tick:
            while (total := sum(_state(streams).values())) < wanted and time.monotonic() < until:
                tick(total, None)
                time.sleep(0.3)
            tick(total, None)
        right = _state(streams) == dict(traffic.counted)
        verdict = "equal" if right else "differ from"
        seconds = time.monotonic() - began
        console.print(f"{total:,} visits, {seconds:.0f} s after the traffic ended")
        console.print(f"the counts of {len(traffic.counted):,} pages {verdict} a plain Counter")
        return right
    finally:
        streams.close()


def _state(streams: KafkaStreams) -> dict[str, int]:
    try:
        return dict(streams.store("by-page").all())
    except InvalidStateStoreError:
        return {}


def main(arguments: list[str]) -> int:
    """Run the command; return 0 if the counts are right."""
    console = Console(highlight=False)
    try:
        from streams_py.spark.session import check_platform

        check_platform()
        lines = int(arguments[0]) if arguments else _LINES
        with contextlib.ExitStack() as ended, tempfile.TemporaryDirectory(prefix="streams-py-backfill-") as folder:
            address = os.environ.get("BOOTSTRAP")
            if address is None:
                address = ended.enter_context(contextlib.closing(JvmBroker())).bootstrap
            return 0 if play(address, lines, Path(folder), console) else 1
    except KeyboardInterrupt:
        console.print("ended by Ctrl-C")
        return 130
    except (StreamsError, NoBrokerError, ModuleNotFoundError, ValueError) as error:
        console.print(f"[red]failed:[/red] {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
