"""Where topics begin and end: what a job that reads whole topics has to ask before it starts.

A broker that dies, and a partition between two leaders, answer nothing or an error for some seconds. Each question is
therefore asked again, by a new client, until the time-out: a new client connects to another broker and learns the
leaders and their epochs from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaError, TopicCollection
from confluent_kafka.admin import ConfigResource, OffsetSpec  # type: ignore[attr-defined]  # exports unmarked

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.admin import ConfluentAdmin
from streams_py.adapters.confluent.answers import (
    NewestRecord,
    TopicRetention,
    leader_epoch_of,
    newest_record_of,
    offset_of,
    retention_of,
    time_offset_of,
    topic_id_of,
    whole_partitions,
)
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports import AdminError, AdminErrorKind, OffsetAndMetadata

__all__ = ["LogAdmin"]

_Answer = TypeVar("_Answer")

_PASSING: Final = (AdminErrorKind.LEADER_NOT_AVAILABLE, AdminErrorKind.TIMED_OUT)
_RETRY_S: Final = 0.1
"""Pause before a question is asked again."""
_REQUEST_S: Final = 5.0
"""Time limit of a single request. A request to a dead broker must leave time for asking another broker."""
_NOT_THERE: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
)


class LogAdmin(ConfluentAdmin):
    """An admin client that knows about isolation, timestamps and topic ids.

    ``timeout_ms`` bounds a question as a whole. Within that time the question is asked again when no broker answers it.
    """

    @property
    def _timeout_s(self) -> float:
        return min(super()._timeout_s, _REQUEST_S)

    def reconnect(self) -> None:
        """Ask the next question with a new client, which may reach another broker."""
        self._forget_client()

    def _patiently(self, ask: Callable[[], _Answer]) -> _Answer:
        """Ask until there is an answer. BrokerUnavailableError when there is none within the time-out."""
        give_up_s = time.monotonic() + self._timeout_ms / 1000
        while True:
            try:
                return ask()
            except BrokerUnavailableError:
                if time.monotonic() >= give_up_s:
                    raise
            self.reconnect()
            time.sleep(_RETRY_S)

    def partition_counts(self) -> Mapping[str, int]:
        """All topics with the number of their partitions. Never creates one, as asking for a topic by name might."""
        return self._patiently(self._partition_counts)

    def _partition_counts(self) -> Mapping[str, int]:
        listed = {
            name: topic
            for name, topic in self._listed_topics().items()
            # The broker is deleting the topic, or the user may not see it: then the topic does not exist for us.
            if topic.error is None or topic.error.code() not in _NOT_THERE
        }
        counts = {name: whole_partitions(topic) for name, topic in listed.items()}
        unsure = sorted(name for name, count in counts.items() if count is None)
        if unsure:
            raise BrokerUnavailableError(
                f"{self._bootstrap} does not say how many partitions {', '.join(unsure)} have; is a broker down?"
            )
        return {name: count for name, count in counts.items() if count is not None}

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """The cluster's ids of topics (KIP-516): a topic that was deleted and created again has another one. Topics
        that do not exist, or have no id, are missing."""
        return self._patiently(lambda: self._topic_ids(topics))

    def _topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        if not topics:
            return {}
        found = self._ask(
            "describing topics",
            lambda client: client.describe_topics(TopicCollection(sorted(topics)), request_timeout=self._timeout_s),
            topic_id_of,
            sorted(topics),
        )
        for name, answer in found.items():
            if isinstance(answer, AdminError) and answer.kind in _PASSING:
                raise BrokerUnavailableError(f"topic {name} cannot be described now: {answer.message}")
        return {name: text for name, text in found.items() if isinstance(text, str)}

    def committed_position(self, group: str, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The committed position of a group with the text beside it; None where there is none."""
        found = self._committed(group, [partition]).get(partition)
        return None if found is None else OffsetAndMetadata(found.offset, found.metadata or "")

    def log_starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """First offsets that are still there."""
        return self._offsets(partitions, OffsetSpec.earliest(), read_committed=False, read=offset_of)  # type: ignore[no-untyped-call]  # stubs

    def log_ends(self, partitions: Collection[TopicPartition], *, read_committed: bool) -> Mapping[TopicPartition, int]:
        """End offsets, exclusive. With ``read_committed`` the last stable ones: nothing before them is undecided."""
        return self._offsets(partitions, OffsetSpec.latest(), read_committed=read_committed, read=offset_of)  # type: ignore[no-untyped-call]  # stubs

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Epochs of the leaders that answer now. No record that is in a log is of a later one. Partitions are missing
        whose leaders do not say."""
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # stubs
        found = self._offsets(partitions, spec, read_committed=False, read=leader_epoch_of)
        return {at: epoch for at, epoch in found.items() if epoch >= 0}

    def first_at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
        """First offset whose record is not older; -1 where all records are older."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        return self._offsets(partitions, spec, read_committed=False, read=time_offset_of)

    def newest_records(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, NewestRecord]:
        """The record with the largest timestamp of each partition. Records of transactions that are open or aborted
        count too, so readers of committed records may not see it."""
        spec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]  # stubs
        return self._offsets(partitions, spec, read_committed=False, read=newest_record_of)

    def retentions(self, topics: Collection[str]) -> dict[str, TopicRetention]:
        """What topics keep, of those that delete the rest; without those that delete nothing, and those that may not be
        described."""
        if not topics:
            return {}
        asked = {ConfigResource(ConfigResource.Type.TOPIC, topic): topic for topic in sorted(topics)}
        found = self._patiently(
            lambda: self._ask(
                "describing topics",
                lambda client: client.describe_configs(list(asked), request_timeout=self._timeout_s),
                retention_of,
                list(asked),
            )
        )
        return {asked[resource]: answer for resource, answer in found.items() if isinstance(answer, TopicRetention)}

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        """Committed positions of a group; None where there is none. Waits for open transactions (KIP-447)."""
        return self._patiently(lambda: super(LogAdmin, self).committed_offsets(group, partitions))

    def _offsets(
        self,
        partitions: Collection[TopicPartition],
        spec: Any,
        *,
        read_committed: bool,
        read: Callable[[Any], _Answer | AdminError],
    ) -> dict[TopicPartition, _Answer]:
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        offsets: dict[TopicPartition, _Answer] = {}

        def ask() -> dict[TopicPartition, _Answer]:
            left = {confluent_kafka.TopicPartition(*at): spec for at in partitions if at not in offsets}
            answers = self._list_offsets(left, level, read) if left else {}
            refused: list[str] = []
            for partition, answer in answers.items():
                if not isinstance(answer, AdminError):
                    offsets[partition] = answer
                elif answer.kind in _PASSING:
                    refused.append(f"offsets of {partition} cannot be listed now: {answer.message}")
                else:
                    raise StreamsError(
                        f"offsets of {partition} cannot be listed: {answer.message}; was the topic deleted, or may the "
                        "user not describe it?"
                    )
            if refused:
                raise BrokerUnavailableError(refused[0])
            return offsets

        return self._patiently(ask)
