"""An application of many small pipelines in a separate process, so that a crash is detected.

Its order is the first argument, as JSON: ``config``, and ``pipelines`` of (name, kind, topic, serdes, extractor, sink).
For each input line it prints its state and the content of its stores.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from streams_py import KafkaStreams, State, StreamsBuilder, serdes
from streams_py.topology.declare.processor import Processor, Record

SERDES: dict[str, Any] = {"bytes": serdes.BYTES, "text": serdes.STRING, "number": serdes.INT64, "json": serdes.JSON}


def of_value(key: Any, value: Any, time_ms: int, partition_ms: int) -> int:
    return -1 if value is None or len(value) % 3 == 0 else 1_000 + len(value)


def skip(key: Any, value: Any, time_ms: int, partition_ms: int) -> int:
    return time_ms


EXTRACTORS: dict[str, Any] = {"": None, "skip": skip, "of value": of_value}


class ReadHeaders(Processor[Any, Any, Any, Any]):
    """Looks at each header of each record."""

    def process(self, record: Record[Any, Any]) -> None:
        assert all(isinstance(name, str) and len(name) < 1 << 20 for name, _ in record.headers)
        self.context.forward(record)


def build(pipelines: list[list[str]]) -> StreamsBuilder:
    builder = StreamsBuilder()
    for name, kind, topic, serde, extractor, output in pipelines:
        key, value = (SERDES[part] for part in serde.split())
        given: dict[str, Any] = {"key": key, "value": value}
        if kind == "global":
            builder.global_table(topic, store=name, **given)
            continue
        given["timestamp_extractor"] = EXTRACTORS[extractor]
        if kind == "table":
            builder.table(topic, store=name, **given)
            continue
        stream = builder.stream(topic, **given)
        if kind == "copy":
            stream.process(ReadHeaders).to(output, key=key, value=value)
        elif kind == "count":
            counts = stream.group_by_key(key=key, value=value).count(store=name)
            if output:
                counts.to_stream().to(output, key=key, value=serdes.INT64)
        else:
            raise ValueError(kind)
    return builder


def main() -> None:
    order = json.loads(sys.argv[1])
    pipelines = order["pipelines"]
    config = order["config"]
    streams = KafkaStreams(build(pipelines).build(config), config)
    streams.start()
    stores = [name for name, kind, *_ in pipelines if kind != "copy"]
    for _ in sys.stdin:
        found: dict[str, Any] = {"state": streams.state.name, "error": str(streams.error or "")}
        if streams.state is State.RUNNING:
            try:
                found["stores"] = {
                    name: sorted((repr(key), repr(value)) for key, value in streams.store(name).all())
                    for name in stores
                }
            except Exception as error:  # a task is on its way
                found["error"] = repr(error)
        print(json.dumps(found), flush=True)
    streams.close(60)


if __name__ == "__main__":
    main()
