"""A process that reads parts of changelogs for its parent process, and writes them as sorted files for its stores.

A Python thread restores only as fast as one processor allows. This second process restores in parallel, without holding
the interpreter's lock of the parent. It is started as ``python -m streams_py.clients.sorter_program PARENT``, with the
process id of the parent.

The parent writes lines of JSON to its standard input: first the settings of the consumer, then one part after the other
(:class:`streams_py.ports.ChangelogPart`). On standard output the process reports its progress, and finally the files.
It exits when its input ends, or when its parent has exited for any reason. Checking only the input is not enough,
because processes forked from the parent keep the input open.

The process has no topology and runs no user code: keys and values are not decoded.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.errors import StreamsError
from streams_py.ports import ChangelogPart, SortedPart
from streams_py.state.disk.sorted_files import SortedFiles
from streams_py.state.stores.changelog_entries import changelog_entries

_RECORDS_MAX: Final = 5_000
"""Maximum number of records per poll. Large, because no other work waits for this thread."""
_POLL_MS: Final = 100
_TOLD_S: Final = 0.25
"""Interval between progress reports, in s."""
_PARENT_S: Final = 1.0
"""Interval between checks that the parent still exists, in s."""


def main() -> None:
    """Process requests until the input ends."""
    gc.disable()  # records are never part of reference cycles
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    consumer = ConfluentConsumer(requests.get(), purpose="restore consumer")
    while True:
        part = ChangelogPart(**requests.get())
        try:
            _tell(_sort(consumer, part)._asdict())
        except (StreamsError, OSError) as error:
            _tell({"error": str(error)})


def _listen(requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin.buffer:
        try:
            requests.put(json.loads(line))
        except ValueError:
            os._exit(1)  # the parent reports the exit; a part that never starts would wait forever
    os._exit(0)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_S)
    os._exit(0)


def _tell(what: Mapping[str, object]) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


def _sort(consumer: ConfluentConsumer, part: ChangelogPart) -> SortedPart:
    partition, end = TopicPartition(*part.changelog), part.end  # JSON has no tuples
    files = SortedFiles(part.folder, part.name, stamped=part.stamped)
    records_read = bytes_read = 0
    last: int | None = None
    told_s = time.monotonic()
    consumer.assign({partition: part.start})
    try:
        while (at := consumer.position(partition)) is None or at < end:
            records = consumer.poll(_RECORDS_MAX, _POLL_MS)
            if records and records[-1].offset() >= end:
                records = [record for record in records if record.offset() < end]
            if records:
                bytes_read += files.add(changelog_entries(records))
                records_read += len(records)
                last = records[-1].offset()
            if (now_s := time.monotonic()) - told_s >= _TOLD_S:
                told_s = now_s
                _tell({"at": at})
    finally:
        consumer.assign({})
    return SortedPart(tuple(files.finish()), last, records_read, bytes_read)


if __name__ == "__main__":
    main()
