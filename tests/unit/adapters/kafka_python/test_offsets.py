"""Committed offsets: a partition missing in a response is neither committed nor "never committed"."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import errors as kafka_errors
from kafka.protocol.consumer import OffsetCommitResponse, OffsetFetchResponse
from kafka.structs import OffsetAndMetadata as KafkaOffset
from kafka.structs import TopicPartition as KafkaPartition

from streams_protocol.types import TopicPartition
from streams_py.adapters.kafka_python.offsets import (
    answered_offsets,
    check_all_committed,
    fetch_committed,
    unstable_partitions,
)
from streams_py.errors import BrokerUnavailableError
from streams_py.ports import OffsetAndMetadata

ASKED = [TopicPartition("t", number) for number in range(3)]
UNKNOWN_TOPIC_OR_PARTITION = 3
UNSTABLE_OFFSET_COMMIT = 88


class Coordinator:
    """A coordinator that finds given offsets."""

    def __init__(self, found: object, answers: list[TopicPartition] | None = None) -> None:
        self.found = found
        self.answers = answers
        self.unstable = [TopicPartition("of the question before", 0)]

    async def fetch_committed_offsets_async(self, partitions: object, timeout_ms: int) -> Any:
        if self.answers is not None:
            self.unstable = self.answers
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def committed(found: object) -> dict[TopicPartition, OffsetAndMetadata | None]:
    return asyncio.run(fetch_committed(Coordinator(found), ASKED, 1))


@given(st.dictionaries(st.sampled_from(range(3)), st.integers(-1001, 2**62)))
def test_committed_offsets_are_offsets_or_none_for_every_partition_or_no_answer(found: dict[int, int]) -> None:
    answer = {KafkaPartition("t", number): KafkaOffset(offset, None, -1) for number, offset in found.items()}
    if len(found) < len(ASKED) or min(found.values()) < -1:
        with pytest.raises(BrokerUnavailableError, match="does not include t-"):
            committed(answer)
        return
    for partition, at in committed(answer).items():
        offset = found[partition.partition]
        assert at == (None if offset == -1 else OffsetAndMetadata(offset, ""))


@pytest.mark.parametrize("odd", [IndexError("groups"), ReferenceError("weak"), TypeError(), ValueError("decoder")])
def test_answer_that_cannot_be_read_is_asked_for_again(odd: Exception) -> None:
    with pytest.raises(BrokerUnavailableError, match="cannot be read"):
        committed(odd)


def test_errors_of_the_library_stay_what_they_are() -> None:
    with pytest.raises(kafka_errors.GroupAuthorizationFailedError):
        committed(kafka_errors.GroupAuthorizationFailedError())


def test_open_transaction_is_named_when_its_offsets_do_not_come_in_time() -> None:
    late = Coordinator(kafka_errors.KafkaTimeoutError(), [ASKED[1], ASKED[2]])
    with pytest.raises(BrokerUnavailableError, match="a transaction with offsets of t-1, t-2 has not ended"):
        asyncio.run(fetch_committed(late, ASKED, 1))
    with pytest.raises(kafka_errors.KafkaTimeoutError):
        committed(kafka_errors.KafkaTimeoutError())


@pytest.mark.parametrize("version", [7, 8])
def test_partitions_with_offsets_of_open_transactions_are_told_from_others(version: int) -> None:
    codes = {0: 0, 2: UNSTABLE_OFFSET_COMMIT, 1: UNSTABLE_OFFSET_COMMIT, 3: UNKNOWN_TOPIC_OR_PARTITION}
    parts = [SimpleNamespace(partition_index=number, error_code=code) for number, code in codes.items()]
    topics = [SimpleNamespace(name="t", partitions=parts)]
    response = SimpleNamespace(API_VERSION=version, topics=topics, groups=[SimpleNamespace(topics=topics)])
    assert unstable_partitions(response) == [TopicPartition("t", 1), TopicPartition("t", 2)]


@pytest.mark.parametrize("version", [5, 7, 8])
def test_uncommitted_partition_is_told_from_one_with_an_error(version: int) -> None:
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    kinds = group.OffsetFetchResponseTopics if version >= 8 else OffsetFetchResponse.OffsetFetchResponseTopic
    part = kinds.OffsetFetchResponsePartitions if version >= 8 else kinds.OffsetFetchResponsePartition

    def of(number: int, offset: int, code: int) -> Any:
        return part(
            partition_index=number, committed_offset=offset, committed_leader_epoch=-1, metadata="", error_code=code
        )

    topics = [kinds(name="t", partitions=[of(0, -1, 0), of(1, -1, UNKNOWN_TOPIC_OR_PARTITION), of(2, 7, 0)])]
    response = (
        OffsetFetchResponse(version=8, groups=[group(group_id="g", topics=topics, error_code=0)])
        if version >= 8
        else OffsetFetchResponse(version=version, topics=topics, error_code=0)
    )
    seven = {KafkaPartition("t", 2): KafkaOffset(7, "", -1)}
    found = answered_offsets(response, dict(seven))
    assert found == seven | {KafkaPartition("t", 0): KafkaOffset(-1, "", -1)}


def test_commit_that_is_answered_in_part_is_not_done() -> None:
    topic = OffsetCommitResponse.OffsetCommitResponseTopic
    answered = [topic.OffsetCommitResponsePartition(partition_index=number, error_code=0) for number in (0, 2)]
    built = OffsetCommitResponse(version=8, topics=[topic(name="t", partitions=answered)])
    response = OffsetCommitResponse.decode(built.encode(), version=8)
    check_all_committed([KafkaPartition("t", 0), KafkaPartition("t", 2)], response)
    with pytest.raises(kafka_errors.RequestTimedOutError, match="does not include t-1"):
        check_all_committed([KafkaPartition("t", number) for number in range(3)], response)
    with pytest.raises(kafka_errors.RequestTimedOutError, match="does not include t-0"):
        check_all_committed([KafkaPartition("t", 0)], SimpleNamespace(topics=[]))
