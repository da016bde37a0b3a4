"""Whether the keys of input topics are in the partitions that Kafka's default partitioner chooses.

A stream that was repartitioned here, and a query by key, look for a key in its murmur2 partition. If a producer wrote
an input topic with another rule (librdkafka's default is CRC32), they miss most records, and no error says so.
Therefore a sample of the keys is compared, from the first records on and while the application runs.

Only topics that meet state are compared: a topic that is only mapped or filtered may be placed in any way. Repartition
topics are written by this library, and windowed keys follow another rule.
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

__all__ = ["KeyPlacement"]

_log = logging.getLogger("streams_py")

_SAMPLES_MIN: Final = 30
"""Fewer keys say nothing: by chance some are where they should be."""
_SAMPLES_MAX: Final = 256
"""After so many keys the count starts again, with one key of each batch."""
_FIRST_PER_BATCH: Final = 64
_SHARE_MIN: Final = 0.1
"""Of keys elsewhere. Two of CRC32's partitions agree with murmur2 in half of the keys, more partitions in fewer."""
_NON_NEGATIVE: Final = 0x7FFFFFFF


class KeyPlacement:
    """The samples of one client. Any thread; a count that two threads add to at once may miss a key."""

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
        """Take samples of a batch of one partition, and warn once of each topic with keys elsewhere.

        Args:
            subtopology: Of the task that gets the records.
            partition: Where the records come from.
            records: At least one.
            partitions_of: The number of partitions of a topic; called only for a verdict.
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
        # A topic that was right at first is judged once per full sample, so that small batches cost no more than a key.
        if len(samples) >= (_SAMPLES_MAX if topic in self._per_batch else _SAMPLES_MIN):
            self._judge(topic, samples, partitions_of)

    def _judge(self, topic: str, samples: list[tuple[int, int]], partitions_of: Callable[[str], int]) -> None:
        try:
            count = partitions_of(topic)
        except StreamsError:
            return  # the cluster does not answer now
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
