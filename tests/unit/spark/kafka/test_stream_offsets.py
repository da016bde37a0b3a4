"""Offsets and lag of a stream."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_protocol.types import TopicPartition
from streams_py.errors import StreamsError
from streams_py.spark.kafka.progress import records_behind, records_read
from streams_py.spark.kafka.stream_offsets import (
    check_same_topics,
    check_still_there,
    firsts_in,
    ids_in,
    limited,
    offsets_in,
    stream_key,
    stream_offsets,
    stream_partition,
)


@given(st.text("a.-_/", min_size=1), st.integers(0, 10**6))
def test_stream_key_round_trips(topic: str, partition: int) -> None:
    tp = TopicPartition(topic, partition)
    assert stream_partition(stream_key(tp)) == tp


lags = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.tuples(st.integers(0, 50), st.integers(0, 50)))


@given(lags, st.integers(1, 60))
def test_limit_is_kept_and_used_up(of: dict[str, tuple[int, int]], rows: int) -> None:
    start = {key: low for key, (low, _) in of.items()}
    ends = {key: low + lag for key, (low, lag) in of.items()}
    result = limited(start, ends, rows)
    read = {key: result[key] - start[key] for key in of}
    assert sum(read.values()) == min(rows, sum(lag for _, lag in of.values()))
    assert all(0 <= read[key] <= lag for key, (_, lag) in of.items())
    waiting = [key for key, (_, lag) in of.items() if lag]
    if len(waiting) <= rows:
        assert all(read[key] for key in waiting)


def test_limit_follows_the_lag() -> None:
    assert limited({"a": 0, "b": 10}, {"a": 900, "b": 110}, 100) == {"a": 90, "b": 20}
    assert limited({}, {"a": 5}, None) == {"a": 5}


def test_partition_that_vanished_or_shrank_stops_the_query() -> None:
    check_still_there({"t/0": 5}, {"t/0": 5, "t/1": 0})
    with pytest.raises(StreamsError, match="t/1, which this query has read, does not exist"):
        check_still_there({"t/0": 5, "t/1": 0}, {"t/0": 5})
    with pytest.raises(StreamsError, match=r"t/0 ends at 4, but this query has read it up to 5.*created again"):
        check_still_there({"t/0": 5}, {"t/0": 4})


def test_offsets_carry_the_ids_of_their_topics() -> None:
    found = stream_offsets({"b/0": 1, "a/1": 2}, {"a": "A", "c": "C"})
    assert found == {"b/0": 1, "a/1": 2, "a": "A"}
    assert json.dumps(found) == json.dumps(stream_offsets({"a/1": 2, "b/0": 1}, {"c": "C", "a": "A"}))
    assert (offsets_in(found), ids_in(found)) == ({"a/1": 2, "b/0": 1}, {"a": "A"})


def test_topic_with_another_id_stops_the_query() -> None:
    check_same_topics({"a": "A"}, {"a": "A", "b": "B"})
    check_same_topics({"a": "A"}, {})  # not to be learnt now
    with pytest.raises(StreamsError, match=r"topic a is another one .*its id is Z, not A.*created again\? Start over"):
        check_same_topics({"a": "A"}, {"a": "Z"})


def test_lag_is_what_lies_between_the_ends_of_batch_and_topic() -> None:
    end = {"a/0": 5, "a": "id"}
    mine = {"latestOffset": {"a/0": 9, "a/1": 3, "a": "id"}, "endOffset": end}
    other = {"latestOffset": {"logOffset": 7}, "endOffset": {"logOffset": 2}}
    text = {"latestOffset": '{"b/0": 4}', "endOffset": '{"b/0": 6}'}
    nothing = {"latestOffset": None, "endOffset": "not JSON"}
    assert records_behind({"sources": [mine, other, text, nothing]}) == {
        TopicPartition("a", 0): 4,
        TopicPartition("a", 1): 3,
        TopicPartition("b", 0): 0,
    }


def test_lag_is_that_of_the_slower_one_where_a_query_reads_a_topic_twice() -> None:
    slow, fast = ({"latestOffset": {"a/0": 9}, "endOffset": {"a/0": end}} for end in (2, 9))
    for sources in ([slow, fast], [fast, slow]):
        assert records_behind({"sources": sources}) == {TopicPartition("a", 0): 7}


def test_first_offsets_of_new_partitions_are_kept_apart_from_ids_and_offsets() -> None:
    found = stream_offsets({"a/0": 5, "a/1": 1_200, "b/0": 3}, {"a": "A"}, {"a/0": 0, "a/1": 1_000, "gone/7": 4})
    assert json.loads(json.dumps(found)) == {"a/0": 5, "a/1": 1_200, "b/0": 3, "a": "A", "a/1/first": "1000"}
    assert (offsets_in(found), ids_in(found)) == ({"a/0": 5, "a/1": 1_200, "b/0": 3}, {"a": "A"})
    assert firsts_in(found) == {"a/1": 1_000}
    assert firsts_in({"a/1/first": "no number", "a": "1000"}) == {}


def test_records_read_are_what_lies_between_the_offsets_of_a_micro_batch() -> None:
    end = {"a/0": 9, "a/1": 1_003, "a/1/first": "1000", "a": "id"}
    source = {"startOffset": {"a/0": 5, "a": "id"}, "endOffset": json.dumps(end)}
    other = {"startOffset": {"logOffset": 7}, "endOffset": {"logOffset": 20}}
    assert records_read({"numInputRows": 14, "sources": [source, other]}) == 7
    first = {"startOffset": None, "endOffset": {"a/0": 9, "a": "id"}}
    assert records_read({"sources": [first]}, {"a/0": 4, "a": "id"}) == 5
    assert records_read({"sources": [first]}) == 9
