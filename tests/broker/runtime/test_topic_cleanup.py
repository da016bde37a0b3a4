"""Internal topics that a user created before the start, with a ``cleanup.policy`` that differs from what stores
require.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from streams_py import KafkaStreams, State, StreamsBuilder, serdes
from streams_py.testing.broker import Broker
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.broker


def test_start_warns_of_existing_internal_topics_that_lose_records(
    kafka_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    number = os.getpid()
    app, source = f"cleaned-{number}", f"cleaned-in-{number}"
    deleted, compacted, right = f"{app}-sums-changelog", f"{app}-again-repartition", f"{app}-counts-changelog"
    kafka_broker.create_topic(source, 1)
    kafka_broker.create_topic(deleted, 1, config={"cleanup.policy": "delete", "retention.ms": "604800000"})
    kafka_broker.create_topic(compacted, 1, config={"cleanup.policy": "compact"})
    kafka_broker.create_topic(right, 1, config={"cleanup.policy": "compact"})
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    words = builder.stream(source).select_key(lambda key, value: value).repartition(name="again").group_by_key()
    words.count(store="counts")
    words.reduce(lambda old, new: old + new, store="sums")
    settings = {"application.id": app, "bootstrap.servers": kafka_broker.bootstrap, "state.dir": str(tmp_path)}
    with caplog.at_level(logging.WARNING, "streams_py.leader"):
        streams = KafkaStreams(builder.build(settings), settings)
        try:
            streams.start()
            until(lambda: len(cleanup_warnings(caplog)) == 2, "the warnings")
            until(lambda: streams.state is State.RUNNING, "RUNNING")
        finally:
            assert streams.close(PATIENCE_S, leave_group=True)
    repartition, changelog = cleanup_warnings(caplog)
    assert f"repartition topic {compacted} has cleanup.policy=compact, but requires" in repartition
    assert f"changelog topic {deleted} has cleanup.policy=delete, retention.ms=604800000, but requires" in changelog
    assert f"--entity-name {deleted} --add-config cleanup.policy=compact" in changelog


def cleanup_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """In the order in which they were logged: by topic name."""
    return [text for text in caplog.messages if "kafka-configs --alter" in text]
