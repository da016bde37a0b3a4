"""One process of the demo. It runs the word count and reports its tasks on standard output as JSON lines.

It stops when its standard input is closed, so it never outlives the demo.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from examples.word_count.app import word_count
from streams_py import KafkaStreams

_REPORT_INTERVAL_S = 0.1


def report(streams: KafkaStreams) -> dict[str, Any]:
    """Return state and tasks of this process."""
    threads = streams.metadata_for_local_threads()
    return {
        "state": streams.state.value,
        "active": sorted({str(task) for thread in threads for task in thread.active_tasks}),
        "standby": sorted({str(task) for thread in threads for task in thread.standby_tasks}),
    }


def main() -> int:
    """Run until standard input is closed."""
    order = json.loads(sys.stdin.readline())
    topology = word_count(order["input"], order["output"])
    ended = threading.Event()

    def wait_for_parent() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_parent, daemon=True).start()
    last = None
    with KafkaStreams(topology, order["config"]) as streams:
        while not ended.wait(_REPORT_INTERVAL_S):
            now = report(streams)
            if now != last:
                print(json.dumps(now), flush=True)
                last = now
            if streams.state.is_final:
                print(
                    json.dumps({"state": "ERROR", "active": [], "standby": [], "error": str(streams.error)}), flush=True
                )
                return 1
        streams.close(10)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
