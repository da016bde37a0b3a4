"""An application on the embedded cluster that counts words."""

from __future__ import annotations

from streams_py import KafkaStreams, StreamsBuilder, serdes
from streams_py.errors import InvalidStateStoreError


def counting() -> StreamsBuilder:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("lines").group_by(lambda _, line: line).count(store="counts")
    return builder


def counts(streams: KafkaStreams) -> dict[str, int]:
    try:
        return dict(streams.store("counts").all())
    except InvalidStateStoreError:  # not there yet
        return {}
