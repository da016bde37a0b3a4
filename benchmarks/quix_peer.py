"""Three of the jobs on Quix Streams. Runs in a separate environment, with the command line of `benchmarks.jobs`.

Runs until its standard input is closed. Imports nothing of this project.
"""

import sys
import threading
from datetime import timedelta
from typing import Any

from quixstreams import Application, State


def main(
    job: str,
    bootstrap: str,
    application: str,
    source: str,
    sink: str,
    _cache_bytes: str,
    commit_ms: str,
    state_dir: str,
) -> None:
    """Build and run the job. Quix Streams has no record cache to configure."""
    app = Application(
        bootstrap,
        consumer_group=application,
        auto_offset_reset="earliest",
        commit_interval=int(commit_ms) / 1000,
        state_dir=state_dir,
        auto_create_topics=True,  # for the changelog
        loglevel="WARNING",
    )
    if job == "map":
        frame = app.dataframe(app.topic(source, key_deserializer="str", value_deserializer="json"))
        frame = frame.apply(increment)
        frame.to_topic(app.topic(sink, key_serializer="str", value_serializer="json"))
    elif job == "window":
        frame = app.dataframe(app.topic(source, key_deserializer="str", value_deserializer="bytes"))
        frame = frame.tumbling_window(timedelta(seconds=10)).count().current()
        frame = frame.apply(lambda row: row["value"])
        frame.to_topic(app.topic(sink, key_serializer="str", value_serializer="int"))
    else:
        frame = app.dataframe(app.topic(source, key_deserializer="str", value_deserializer="bytes"))
        frame = frame.apply(count, stateful=True)
        frame.to_topic(app.topic(sink, key_serializer="str", value_serializer="int"))

    def stop_with_parent() -> None:
        sys.stdin.read()
        app.stop()

    threading.Thread(target=stop_with_parent, daemon=True).start()
    app.run()


def increment(value: dict[str, Any]) -> dict[str, Any]:
    """The function of the map job."""
    value["n"] += 1
    return value


def count(_value: object, state: State) -> int:
    """The function of the count job."""
    total = int(state.get("count", 0)) + 1
    state.set("count", total)
    return total


if __name__ == "__main__":
    main(*sys.argv[1:])
