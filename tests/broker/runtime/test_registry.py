"""A schema registry that is away for longer than a transaction may last: records wait for it, and nothing else does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("fastavro")

from streams_py import KafkaStreams, State, StreamsBuilder, Topology, serdes
from streams_py.registry import SchemaRegistry
from tests.support.broker.kit import Application
from tests.support.broker.worker import generation_of
from tests.support.registry.stub import RegistryStub, running

pytestmark = pytest.mark.broker

TRANSACTION_MS = 4_000
AWAY_S = 2 * TRANSACTION_MS / 1000
TEXT = '"string"'
ENCODED = b"\x00\x00\x00\x00\x01\x02a"
RECORDS = 20


def topology(app: Application, registry: SchemaRegistry) -> Topology:
    """Build a topology with three tasks per partition number.

    It writes counts with the registry, reads texts with it, and processes records without it.
    """
    builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
    counts = builder.stream(app.input).group_by_key().count(store="counts")
    counts.to_stream().to(app.output, value=registry.avro('"long"'))
    builder.stream(f"{app.input}-read", value=registry.avro(TEXT)).to(f"{app.output}-read", value=serdes.STRING)
    builder.stream(f"{app.input}-free").to(f"{app.output}-free")
    return builder.build()


def test_nothing_is_lost_or_doubled_when_the_registry_is_away_for_longer_than_a_transaction_lasts(
    application: Callable[..., Application], tmp_path: Path
) -> None:
    app = application(
        partitions=2, processing_guarantee="exactly_once_v2", commit_interval_ms=100, statestore_cache_max_bytes=0
    )
    for topic in (app.input, app.output):
        for more in ("read", "free"):
            app.broker.create_topic(f"{topic}-{more}", app.partitions)

    def feed(topic: str, values: list[bytes]) -> None:
        for number in range(app.partitions):
            app.feed_raw(topic, number, values)

    def passed() -> int:
        return len(app.read(f"{app.output}-free"))

    with running(RegistryStub()) as stub:
        number = stub.add({"schemaType": "AVRO", "schema": TEXT}, f"{app.input}-read-value")
        assert number == 1
        stub.answer = (503, b"")
        config = {**app.config, "state.dir": str(tmp_path), "producer.transaction.timeout.ms": TRANSACTION_MS}
        streams = KafkaStreams(topology(app, stub.registry()), config)
        with streams:
            app.until(lambda: streams.state is State.RUNNING, "the application to run")
            (thread,) = (one.name for one in streams.metadata_for_local_threads())
            generation = generation_of(streams, thread)
            feed(app.input, [b"x"] * RECORDS)
            feed(f"{app.input}-read", [ENCODED] * RECORDS)
            app.until(lambda: len(stub.requests) > 1, "the registry to be asked")
            until, fed = time.monotonic() + AWAY_S, 0
            while time.monotonic() < until:  # the thread's other tasks continue, and commit
                feed(f"{app.input}-free", [b"y"])
                fed += app.partitions
                app.until(lambda so_far=fed: passed() >= so_far, "the other records")  # type: ignore[misc]
            assert app.read() == app.read(f"{app.output}-read") == []
            assert generation_of(streams, thread) == generation
            stub.answer = None
            app.until(lambda: len(app.read()) >= app.partitions * RECORDS, "the counts")
            app.until(lambda: len(app.read(f"{app.output}-read")) >= app.partitions * RECORDS, "the texts")
            assert generation_of(streams, thread) == generation
            assert streams.state is State.RUNNING
            streams.close()
    assert passed() == fed
    written = sorted(record.value() or b"" for record in app.read())
    counts = [b"\x00\x00\x00\x00\x02" + bytes([2 * count]) for count in range(1, RECORDS + 1)]
    assert written == sorted(counts * app.partitions)
    assert [record.value() for record in app.read(f"{app.output}-read")] == [b"a"] * (app.partitions * RECORDS)
