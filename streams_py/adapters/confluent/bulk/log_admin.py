"""Requests for the bounds of topics, for jobs that read whole topics.

When a broker fails, or a partition changes its leader, requests return an error or no answer for some seconds. So each
request is repeated with a new client until its timeout. A new client may connect to another broker, and gets the
current leaders and their epochs from it.
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

_Answer = TypeVar("_Answer")

_TRANSIENT: Final = (AdminErrorKind.LEADER_NOT_AVAILABLE, AdminErrorKind.TIMED_OUT)
_RETRY_S: Final = 0.1
"""Pause before a request is repeated, in seconds."""
_REQUEST_S: Final = 5.0
"""Time limit of a single request, in seconds. A failed broker must leave time for a request to another broker."""
_NOT_THERE: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
)


class LogAdmin(ConfluentAdmin):
    """An admin client that also handles isolation levels, timestamps and topic ids.

    ``timeout_ms`` limits a call as a whole. Within that time, requests without an answer are repeated.
    """

    @property
    def _timeout_s(self) -> float:
        return min(super()._timeout_s, _REQUEST_S)

    def reconnect(self) -> None:
        """Send the next request with a new client, which may connect to another broker."""
        self._forget_client()

    def _with_retries(self, ask: Callable[[], _Answer]) -> _Answer:
        """Repeat a request until it is answered.

        Raises:
            BrokerUnavailableError: No answer within the timeout.
        """
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
        """Return all topics with their partition counts.

        It never creates a topic. A metadata request for a topic by name might do so.
        """
        return self._with_retries(self._partition_counts)

    def _partition_counts(self) -> Mapping[str, int]:
        listed = {
            name: topic
            for name, topic in self._listed_topics().items()
            # The broker is deleting the topic, or the user may not describe it: treat it as not existing.
            if topic.error is None or topic.error.code() not in _NOT_THERE
        }
        counts = {name: whole_partitions(topic) for name, topic in listed.items()}
        unsure = sorted(name for name, count in counts.items() if count is None)
        if unsure:
            raise BrokerUnavailableError(
                f"{self._bootstrap} does not report the partitions of {', '.join(unsure)}; is a broker down?"
            )
        return {name: count for name, count in counts.items() if count is not None}

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return the ids of topics (KIP-516). A topic that was deleted and recreated has a new id.

        The result does not include topics that don't exist or have no id.
        """
        return self._with_retries(lambda: self._topic_ids(topics))

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
            if isinstance(answer, AdminError) and answer.kind in _TRANSIENT:
                raise BrokerUnavailableError(f"topic {name} cannot be described now: {answer.message}")
        return {name: text for name, text in found.items() if isinstance(text, str)}

    def committed_position(self, group: str, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the committed offset of a group with its metadata, or None."""
        found = self._committed(group, [partition]).get(partition)
        return None if found is None else OffsetAndMetadata(found.offset, found.metadata or "")

    def log_starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the first offset of each log."""
        return self._offsets(partitions, OffsetSpec.earliest(), read_committed=False, read=offset_of)  # type: ignore[no-untyped-call]  # stubs

    def log_ends(self, partitions: Collection[TopicPartition], *, read_committed: bool) -> Mapping[TopicPartition, int]:
        """Return the end offsets, exclusive.

        With ``read_committed`` these are the last stable offsets: all transactions before them have ended.
        """
        return self._offsets(partitions, OffsetSpec.latest(), read_committed=read_committed, read=offset_of)  # type: ignore[no-untyped-call]  # stubs

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the epochs of the current leaders. No record in a log has a later epoch.

        The result does not include partitions whose leader does not report an epoch.
        """
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # stubs
        found = self._offsets(partitions, spec, read_committed=False, read=leader_epoch_of)
        return {at: epoch for at, epoch in found.items() if epoch >= 0}

    def first_at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
        """Return the first offset whose record is not older than ``timestamp_ms``; -1 where all records are older."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        return self._offsets(partitions, spec, read_committed=False, read=time_offset_of)

    def newest_records(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, NewestRecord]:
        """Return the record with the largest timestamp of each partition.

        Records of open and aborted transactions are included, so readers of committed records may not see the record.
        """
        spec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]  # stubs
        return self._offsets(partitions, spec, read_committed=False, read=newest_record_of)

    def retentions(self, topics: Collection[str]) -> dict[str, TopicRetention]:
        """Return the retention limits of topics.

        The result does not include topics that never delete records by retention, and topics that the user may not
        describe.
        """
        if not topics:
            return {}
        asked = {ConfigResource(ConfigResource.Type.TOPIC, topic): topic for topic in sorted(topics)}
        found = self._with_retries(
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
        """Return the committed offset of each partition, or None. Waits for open transactions (KIP-447)."""
        return self._with_retries(lambda: super(LogAdmin, self).committed_offsets(group, partitions))

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
                elif answer.kind in _TRANSIENT:
                    refused.append(f"offsets of {partition} cannot be listed now: {answer.message}")
                else:
                    raise StreamsError(
                        f"offsets of {partition} cannot be listed: {answer.message}; was the topic deleted, or does "
                        "the user lack the right to describe it?"
                    )
            if refused:
                raise BrokerUnavailableError(refused[0])
            return offsets

        return self._with_retries(ask)
