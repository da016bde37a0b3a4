"""The application under test: one process, ``python -m streams_py.testing.torture.application ORDER``.

ORDER is a JSON file with topics, stages and configuration. Each stage has a repartition topic, and counts the records
of each key in a store. SIGTERM closes the application, and SIGUSR1 writes the stores to the file ``dump``. The process
also stops when its standard input is closed, so that it does not survive a killed torture run.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from streams_py import KafkaStreams, State, StreamsBuilder, Topology, key_value_store, serdes
from streams_py.errors import StreamsError
from streams_py.testing.torture.history import Entry, entry_bytes, read_entry
from streams_py.topology.declare.processor import Processor, Record

_openings = itertools.count()
_POLL_S = 0.1
_FAILED, _ORPHANED = 3, 4


class Counting(Processor[str, bytes, str, bytes]):
    """Counts the records of each key, and forwards each record with its count."""

    def __init__(self, store: str) -> None:
        self._name = store

    def init(self, context: Any) -> None:
        self._context = context
        self._store = context.get_state_store(self._name)
        self._writer = f"{os.getpid()}.{next(_openings)}@{time.time_ns() // 1_000_000}"

    def process(self, record: Record[str, bytes]) -> None:
        before = read_entry(record.value)
        count = (self._store.get(record.key) or 0) + 1
        self._store.put(record.key, count)
        entry = Entry(before.number, (*before.counts, count), self._writer)
        self._context.forward(record.with_value(entry_bytes(entry)))


def topology(source: str, sink: str, partitions: Sequence[int]) -> Topology:
    """Build a topology with one stage per entry of ``partitions``, the partition count of its repartition topic."""
    builder = StreamsBuilder()
    stream = builder.stream(source, key=serdes.STRING, value=serdes.BYTES)
    for stage, count in enumerate(partitions):
        store = f"counts-{stage}"
        builder.add_state_store(key_value_store(store, key=serdes.STRING, value=serdes.INT64))
        stream = stream.repartition(
            key=serdes.STRING, value=serdes.BYTES, partitions=count, name=f"stage-{stage}"
        ).process(partial(Counting, store), stores=store, key=serdes.STRING, value=serdes.BYTES)
    stream.to(sink, key=serdes.STRING, value=serdes.BYTES)
    return builder.build()


def dump_stores(streams: KafkaStreams, stages: int, path: Path) -> None:
    """Write the content of the stores of this instance's active tasks to a JSON file."""
    found = {}
    for stage in range(stages):
        try:
            found[str(stage)] = dict(streams.store(f"counts-{stage}").all())
        except StreamsError as error:
            logging.warning("cannot read the store of stage %d now: %s", stage, error)
            return
    scratch = path.with_suffix(".part")
    scratch.write_text(json.dumps(found))
    scratch.rename(path)


def main() -> int:
    """Run until SIGTERM, an error or the end of standard input; return the exit status."""
    order = json.loads(Path(sys.argv[1]).read_text())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(levelname)s %(name)s %(message)s")
    streams = KafkaStreams(topology(order["source"], order["sink"], order["partitions"]), order["config"])
    ends, dumps, orphaned = threading.Event(), threading.Event(), threading.Event()
    for number, event in ((signal.SIGTERM, ends), (signal.SIGUSR1, dumps)):
        signal.signal(number, lambda *_, event=event: event.set())
    Path(order["ready"]).write_text(str(os.getpid()))

    def wait_for_the_end_of_input() -> None:
        while os.read(0, 1):  # not through sys.stdin, whose lock this thread would hold when the process exits
            pass
        orphaned.set()

    threading.Thread(target=wait_for_the_end_of_input, daemon=True).start()
    streams.start()
    while not ends.wait(_POLL_S):
        if orphaned.is_set():
            return _ORPHANED
        if streams.state is State.ERROR:
            return _FAILED
        if dumps.is_set():
            dumps.clear()
            dump_stores(streams, len(order["partitions"]), Path(order["dump"]))
    streams.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
