"""Deduplication with the Processor API: forwards each event once. Event ids are kept for one day of stream time.

Topics: ``events`` (event id -> payload), out: ``unique-events``.
"""

from __future__ import annotations

from streams_py import (
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    KeyValueStore,
    StreamsBuilder,
    Topology,
    key_value_store,
    serdes,
)

DAY_MS = 24 * 60 * 60_000


class Deduplicate(FixedKeyProcessor[str, str, str]):
    def init(self, context: FixedKeyProcessorContext[str, str]) -> None:
        super().init(context)
        self.seen: KeyValueStore[str, int] = context.get_state_store("seen")

    def process(self, record: FixedKeyRecord[str, str]) -> None:
        if self.seen.put_if_absent(record.key, record.timestamp) is None:
            self.context.forward(record)


def build_topology() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.add_state_store(key_value_store("seen", key=serdes.STRING, value=serdes.INT64, ttl=DAY_MS))
    builder.stream("events").process_values(Deduplicate, stores="seen", value=serdes.STRING).to("unique-events")
    return builder.build()
