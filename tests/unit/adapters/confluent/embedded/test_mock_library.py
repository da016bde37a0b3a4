"""librdkafka's mock cluster by ctypes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest

from streams_py.adapters.confluent.embedded.mock_library import TOPIC_ALREADY_EXISTS, MockCluster
from streams_py.errors import StreamsError

HERE = Path(__file__)


def fill(cluster: MockCluster, topic: str, megabytes: int) -> tuple[int, int]:
    """Write that much to partition 0; its first and end offset."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 1_000_000, "linger.ms": 5}
    )
    for _ in range(megabytes * 1_000):
        producer.produce(topic, b"x" * 1_000, None, 0)
    assert producer.flush(20) == 0
    reader = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader"})
    first, end = reader.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0))
    reader.close()
    return first, end


def test_topic_has_the_wanted_partitions_and_cannot_be_made_twice(cluster: MockCluster) -> None:
    assert cluster.create_topic("made-once", 7) == 0
    assert cluster.create_topic("made-once", 7) == TOPIC_ALREADY_EXISTS


def raise_and_fill(*, written_before: bool) -> None:
    """A partition that keeps more than the library would let it."""
    cluster = MockCluster(1)
    try:
        cluster.create_topic("kept", 2)
        if written_before:
            fill(cluster, "kept", 1)
        assert cluster.raise_retention(1 << 30, partitions=10_000) >= 2
        assert cluster.raise_retention(1 << 30, partitions=10_000) == 0
        assert fill(cluster, "kept", 12) == (0, 13_000 if written_before else 12_000)
    finally:
        cluster.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory can be searched on Linux only")
@pytest.mark.parametrize("written_before", [False, True])
def test_partition_keeps_everything_when_its_retention_is_raised(written_before: bool) -> None:
    # In a separate process: all memory is searched, and a process with many tests has a lot of it.
    code = f"from {HERE.stem} import raise_and_fill; raise_and_fill(written_before={written_before})"
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_partition_drops_its_oldest_records_when_nothing_is_raised(cluster: MockCluster) -> None:
    # The fact that makes the search in memory necessary. When this fails, librdkafka has become better.
    cluster.create_topic("dropping", 1)
    first, _ = fill(cluster, "dropping", 12)
    assert first > 0


def test_refusal_is_an_error_with_the_reason(cluster: MockCluster) -> None:
    with pytest.raises(StreamsError, match="the embedded cluster refused: "):
        cluster.stop_broker(99)
