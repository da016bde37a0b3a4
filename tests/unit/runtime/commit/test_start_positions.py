"""The position at which reading starts without a committed offset."""

from __future__ import annotations

import re

import pytest

from streams_protocol.types import TopicPartition
from streams_py.errors import StreamsError
from streams_py.ports import BEGINNING, END
from streams_py.runtime.commit.start_positions import StartPositions
from streams_py.topology.declare.nodes import ResetPolicy, SourceNode

EARLIEST, LATEST = ResetPolicy.EARLIEST, ResetPolicy.LATEST
SOURCES = (
    SourceNode("named", ("in-1",), reset_policy=EARLIEST),
    SourceNode("silent", ("in-2", "odd")),
    SourceNode("r", ("r-repartition",), is_internal=True, reset_policy=EARLIEST),
    SourceNode("pattern", (), re.compile("in-.*"), reset_policy=LATEST),
    SourceNode("later", (), re.compile("in-.*|x-.*"), reset_policy=EARLIEST),
    SourceNode("without", (), re.compile("y-.*")),
)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("in-1", BEGINNING),
        ("in-2", END),
        ("odd", END),
        ("app-r-repartition", BEGINNING),
        ("in-3", END),
        ("x-1", BEGINNING),
        ("y-1", END),
    ],
)
def test_policy_is_that_of_the_source_that_reads_the_topic_else_the_default(topic: str, expected: int) -> None:
    assert StartPositions("app", SOURCES, LATEST).after_reset(TopicPartition(topic, 3)) == expected


def test_policy_of_a_pattern_source_counts_for_the_topics_it_matches() -> None:
    positions = StartPositions("app", SOURCES, EARLIEST)
    assert positions.after_reset(TopicPartition("in-99", 0)) == END
    assert positions.after_reset(TopicPartition("y-1", 0)) == BEGINNING


@pytest.mark.parametrize("topic", ["odd", "y-1", "unknown"])
def test_topic_without_any_policy_is_an_error_that_says_what_to_set(topic: str) -> None:
    with pytest.raises(StreamsError, match=rf"{topic}-0 has no valid committed offset.*auto.offset.reset"):
        StartPositions("app", SOURCES, None).after_reset(TopicPartition(topic, 0))
