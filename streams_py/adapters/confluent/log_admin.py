"""Where topics begin and end: what a job that reads whole topics has to ask before it starts."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Final

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaException, TopicCollection
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # exports unmarked

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.admin import ConfluentAdmin
from streams_py.adapters.confluent.failures import broker_away
from streams_py.errors import StreamsError
from streams_py.ports import AdminError, AdminErrorKind

__all__ = ["LogAdmin"]

_PASSING: Final = (AdminErrorKind.LEADER_NOT_AVAILABLE, AdminErrorKind.TIMED_OUT)
_LEADER_PATIENCE_S: Final = 10.0
"""A new topic has no leaders for a moment, and a topic whose broker has just gone has none for a while."""
_LEADER_RETRY_S: Final = 0.1


class LogAdmin(ConfluentAdmin):
    """An admin client that knows about isolation, timestamps and topic ids."""

    def partition_counts(self) -> Mapping[str, int]:
        """All topics with the number of their partitions. Never creates one, as asking for a topic by name might."""
        try:
            listed = self._live().list_topics(timeout=self._timeout_s).topics
        except KafkaException as failed:
            self._forget_client()
            raise broker_away(self._bootstrap, "listing topics", self._timeout_ms) from failed
        return {name: len(topic.partitions) for name, topic in listed.items() if topic.partitions}

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """The cluster's ids of topics (KIP-516): a topic that was deleted and created again has another one. Topics
        whose id cannot be learnt are missing."""
        if not topics:
            return {}
        found = self._ask(
            "describing topics",
            lambda client: client.describe_topics(TopicCollection(sorted(topics)), request_timeout=self._timeout_s),
            lambda described: str(getattr(described, "topic_id", "")),
        )
        return {name: text for name, text in found.items() if isinstance(text, str) and text}

    def log_starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """First offsets that are still there."""
        return self._offsets(partitions, OffsetSpec.earliest(), read_committed=False)  # type: ignore[no-untyped-call]  # stubs

    def log_ends(self, partitions: Collection[TopicPartition], *, read_committed: bool) -> Mapping[TopicPartition, int]:
        """End offsets, exclusive. With ``read_committed`` the last stable ones: nothing before them is undecided."""
        return self._offsets(partitions, OffsetSpec.latest(), read_committed=read_committed)  # type: ignore[no-untyped-call]  # stubs

    def first_at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
        """First offset whose record is not older; -1 where all records are older."""
        return self._offsets(partitions, OffsetSpec.for_timestamp(timestamp_ms), read_committed=False)

    def _offsets(
        self, partitions: Collection[TopicPartition], spec: Any, *, read_committed: bool
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        offsets: dict[TopicPartition, int] = {}
        left = {confluent_kafka.TopicPartition(*partition): spec for partition in partitions}
        give_up_s = time.monotonic() + min(self._timeout_s, _LEADER_PATIENCE_S)
        while left:
            answers = self._ask(
                "listing offsets",
                lambda client, asked=left: client.list_offsets(  # type: ignore[misc]  # bound now, called now
                    asked, isolation_level=level, request_timeout=self._timeout_s
                ),
                lambda found: int(found.offset),
            )
            failed: dict[confluent_kafka.TopicPartition, AdminError] = {}
            for native, answer in answers.items():
                if isinstance(answer, AdminError):
                    failed[native] = answer
                else:
                    offsets[TopicPartition(native.topic, native.partition)] = answer
            for native, error in failed.items():
                if error.kind not in _PASSING or time.monotonic() >= give_up_s:
                    raise StreamsError(
                        f"offsets of {native.topic}-{native.partition} cannot be listed: {error.message}; was the "
                        "topic deleted, or may the user not describe it?"
                    )
            left = dict.fromkeys(failed, spec)
            if left:
                time.sleep(_LEADER_RETRY_S)
        return offsets
