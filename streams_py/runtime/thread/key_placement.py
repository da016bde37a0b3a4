"""Checks whether the keys of input topics are in the partitions that Kafka's default partitioner chooses.

Repartitioned streams, and queries by key, look for a key in its murmur2 partition. If a producer wrote an input topic
with another partitioner (librdkafka's default is CRC32), they miss most records without any error. So a sample of the
keys is checked, from the first records on and while the application runs.

Only topics that are read by stateful sub-topologies are checked: a topic that is only mapped or filtered may use any
partitioner. Repartition topics are written by this library, and windowed keys follow another rule.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from streams_protocol.types import TopicPartition
from streams_py.errors import StreamsError
from streams_py.ports import RawRecord
from streams_py.serdes import Serde
from streams_py.serdes.windowed import WindowedSerde
from streams_py.topology.partitioning import murmur2
from streams_py.topology.physical.metadata import TopologyMetadata
from streams_py.topology.physical.subtopologies import Subtopology

_log = logging.getLogger("streams_py")

_SAMPLES_MIN: Final = 30
"""Minimum number of sampled keys for a verdict: some keys are in the right partition by chance."""
_SAMPLES_MAX: Final = 256
"""Number of sampled keys after which counting restarts, with one key of each batch."""
_FIRST_PER_BATCH: Final = 64
_SHARE_MIN: Final = 0.1
"""Minimum share of misplaced keys for a warning. With two partitions CRC32 and murmur2 agree on half of the keys, with
more partitions on fewer."""
_NON_NEGATIVE: Final = 0x7FFFFFFF


class KeyPlacement:
    """The samples of one client. Thread-safe, except that concurrent additions to a count may lose a key."""

    def __init__(
        self, subtopologies: Iterable[Subtopology], metadata: TopologyMetadata, default_key_serde: Serde[object] | None
    ) -> None:
        self._stateful = frozenset(sub.id for sub in subtopologies if sub.stores and not sub.is_global)
        self._ignored = {
            topic for topics in metadata.subtopologies.values() for topic in topics.repartition_sources
        } | {
            topic
            for sub in subtopologies
            for source in sub.sources
            if isinstance(source.key_serde or default_key_serde, WindowedSerde)
            for topic in source.topics
        }
        self._samples: dict[str, list[tuple[int, int]]] = {}
        self._per_batch: dict[str, int] = {}
        self._guard = threading.Lock()

    def note(
        self,
        subtopology: int,
        partition: TopicPartition,
        records: Sequence[RawRecord],
        partitions_of: Callable[[str], int],
    ) -> None:
        """Sample a batch of one partition, and log one warning for each topic with misplaced keys.

        Args:
            subtopology: Sub-topology of the task that gets the records.
            partition: The partition of the records.
            records: At least one record.
            partitions_of: Returns the number of partitions of a topic; only called for a verdict.
        """
        topic = partition.topic
        if topic in self._ignored or subtopology not in self._stateful:
            return
        samples = self._samples.setdefault(topic, [])
        step = max(1, len(records) // self._per_batch.get(topic, _FIRST_PER_BATCH))
        for record in records[::step]:
            key = record.key()
            if key is not None:
                samples.append((murmur2(key) & _NON_NEGATIVE, partition.partition))
        # A topic that passed its first check is checked once per full sample, so a small batch costs one key at most.
        if len(samples) >= (_SAMPLES_MAX if topic in self._per_batch else _SAMPLES_MIN):
            self._judge(topic, samples, partitions_of)

    def _judge(self, topic: str, samples: list[tuple[int, int]], partitions_of: Callable[[str], int]) -> None:
        try:
            count = partitions_of(topic)
        except StreamsError:
            return  # the cluster is not reachable now
        elsewhere = sum(hashed % count != number for hashed, number in samples)
        if elsewhere < _SHARE_MIN * len(samples):
            if len(samples) >= _SAMPLES_MAX:
                self._samples[topic], self._per_batch[topic] = [], 1
            return
        with self._guard:
            if topic in self._ignored:
                return
            self._ignored.add(topic)
        del self._samples[topic]
        _log.warning(
            "topic %s: %d of %d sampled keys are not in the partition that Kafka's default partitioner (murmur2) "
            "chooses; joins with repartitioned data and queries by key miss records with such keys. Write the topic "
            "with partitioner=murmur2_random (librdkafka, confluent-kafka), or call repartition() before the join",
            topic,
            elsewhere,
            len(samples),
        )
