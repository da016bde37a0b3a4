"""Where topics begin and end: what a job that reads whole topics has to ask before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaError, TopicCollection
from confluent_kafka.admin import ConfigResource, OffsetSpec  # type: ignore[attr-defined]  # exports unmarked

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.admin import ConfluentAdmin
from streams_py.adapters.confluent.answers import (
    TopicRetention,
    offset_of,
    retention_of,
    time_of,
    time_offset_of,
    topic_id_of,
    whole_partitions,
)
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports import AdminError, AdminErrorKind, OffsetAndMetadata

__all__ = ["LogAdmin"]

_PASSING: Final = (AdminErrorKind.LEADER_NOT_AVAILABLE, AdminErrorKind.TIMED_OUT)
_LEADER_PATIENCE_S: Final = 10.0
"""A new topic has no leaders for a moment, and a topic whose broker has just gone has none for a while."""
_LEADER_RETRY_S: Final = 0.1
_NOT_THERE: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
)


class LogAdmin(ConfluentAdmin):
    """An admin client that knows about isolation, timestamps and topic ids."""

    def partition_counts(self) -> Mapping[str, int]:
        """All topics with the number of their partitions. Never creates one, as asking for a topic by name might."""
        give_up_s = time.monotonic() + min(self._timeout_s, _LEADER_PATIENCE_S)
        while True:
            listed = {
                name: topic
                for name, topic in self._listed_topics().items()
                # Deleted between two looks of the broker, or not to be seen: then it is not there for us.
                if topic.error is None or topic.error.code() not in _NOT_THERE
            }
            counts = {name: whole_partitions(topic) for name, topic in listed.items()}
            unsure = sorted(name for name, count in counts.items() if count is None)
            if not unsure:
                return {name: count for name, count in counts.items() if count is not None}
            if time.monotonic() >= give_up_s:
                raise BrokerUnavailableError(
                    f"{self._bootstrap} does not say how many partitions {', '.join(unsure)} have; is a broker down?"
                )
            time.sleep(_LEADER_RETRY_S)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """The cluster's ids of topics (KIP-516): a topic that was deleted and created again has another one. Topics
        whose id cannot be learnt are missing."""
        if not topics:
            return {}
        found = self._ask(
            "describing topics",
            lambda client: client.describe_topics(TopicCollection(sorted(topics)), request_timeout=self._timeout_s),
            topic_id_of,
            sorted(topics),
        )
        return {name: text for name, text in found.items() if isinstance(text, str)}

    def committed_position(self, group: str, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The committed position of a group with the text beside it; None where there is none."""
        found = self._committed(group, [partition]).get(partition)
        return None if found is None else OffsetAndMetadata(found.offset, found.metadata or "")

    def log_starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """First offsets that are still there."""
        return self._offsets(partitions, OffsetSpec.earliest(), read_committed=False)  # type: ignore[no-untyped-call]  # stubs

    def log_ends(self, partitions: Collection[TopicPartition], *, read_committed: bool) -> Mapping[TopicPartition, int]:
        """End offsets, exclusive. With ``read_committed`` the last stable ones: nothing before them is undecided."""
        return self._offsets(partitions, OffsetSpec.latest(), read_committed=read_committed)  # type: ignore[no-untyped-call]  # stubs

    def first_at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
        """First offset whose record is not older; -1 where all records are older."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        return self._offsets(partitions, spec, read_committed=False, read=time_offset_of)

    def newest_ms(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Largest timestamps, wherever they stand; -1 where there is no record."""
        spec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]  # stubs
        return self._offsets(partitions, spec, read_committed=False, read=time_of)

    def retentions(self, topics: Collection[str]) -> dict[str, TopicRetention]:
        """What topics keep, of those that delete the rest; without those that delete nothing, and those that may not be
        described."""
        if not topics:
            return {}
        asked = {ConfigResource(ConfigResource.Type.TOPIC, topic): topic for topic in sorted(topics)}
        found = self._ask(
            "describing topics",
            lambda client: client.describe_configs(list(asked), request_timeout=self._timeout_s),
            retention_of,
            list(asked),
        )
        return {asked[resource]: answer for resource, answer in found.items() if isinstance(answer, TopicRetention)}

    def _offsets(
        self,
        partitions: Collection[TopicPartition],
        spec: Any,
        *,
        read_committed: bool,
        read: Callable[[Any], int | AdminError] = offset_of,
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        offsets: dict[TopicPartition, int] = {}
        left = {confluent_kafka.TopicPartition(*partition): spec for partition in partitions}
        give_up_s = time.monotonic() + min(self._timeout_s, _LEADER_PATIENCE_S)
        while left:
            failed: list[TopicPartition] = []
            for partition, answer in self._list_offsets(left, level, read).items():
                if not isinstance(answer, AdminError):
                    offsets[partition] = answer
                elif answer.kind not in _PASSING:
                    raise StreamsError(
                        f"offsets of {partition} cannot be listed: {answer.message}; was the topic deleted, or may the "
                        "user not describe it?"
                    )
                elif time.monotonic() >= give_up_s:
                    raise BrokerUnavailableError(f"offsets of {partition} cannot be listed now: {answer.message}")
                else:
                    failed.append(partition)
            left = {confluent_kafka.TopicPartition(*partition): spec for partition in failed}
            if left:
                time.sleep(_LEADER_RETRY_S)
        return offsets
