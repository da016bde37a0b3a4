"""What a range of a partition gives when the client does odd things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from streams_py.adapters.confluent.bulk import range_reader
from streams_py.adapters.confluent.bulk.range_reader import ReadLimits, read_messages, read_range

SETTINGS = {"bootstrap.servers": "nobody:1", "client.id": "reader"}


class Scripted:
    """A consumer that delivers these offsets or messages, some at a time."""

    def __init__(self, *answers: Sequence[int | Message]) -> None:
        self.answers = [*answers]

    def __call__(self, settings: Any, logger: Any) -> Scripted:
        return self

    def assign(self, partitions: Any) -> None:
        pass

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        answer = self.answers.pop(0) if self.answers else []
        return [record(given) if isinstance(given, int) else given for given in answer]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "answers",
    [
        [[0, 1, 2, 3], [1, 2], [3, 4, 5, 6], [7, 8]],
        [[0, 1, 2, 3, 1, 2, 3, 4, 5], [6, 7, 8]],
        [[0, 1], [0, 1, 2, 3, 4, 5, 6, 7, 8, 5, 6]],
        [[0, 1, 2, 3, 4, 5, 6], [4], [4, 5, 6, 7, 8]],
    ],
)
def test_records_that_the_client_delivers_again_are_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answers: list[list[int]]
) -> None:
    for end in (8, 9):
        monkeypatch.setattr(range_reader, "Consumer", Scripted(*answers))
        found = [record.offset() for some in read_messages(SETTINGS, "t", 0, 0, end, ReadLimits()) for record in some]
        assert found == [*range(end)]
        monkeypatch.setattr(range_reader, "Consumer", Scripted(*answers))
        assert [at for columns in read_range(SETTINGS, "t", 0, 0, end, ReadLimits()) for at in columns.offsets] == found
    assert "t-0: the consumer delivered" in caplog.text


def test_offsets_without_records_are_no_repetition(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(range_reader, "Consumer", Scripted([3, 7], [8, 20]))
    found = [record.offset() for some in read_messages(SETTINGS, "t", 0, 0, 21, ReadLimits()) for record in some]
    assert found == [3, 7, 8, 20]
    assert not caplog.text


def record(at: int) -> Message:
    return Message("t", 0, at, None, b"v%d" % at)


def end_at(at: int) -> Message:
    return Message("t", 0, at, error=KafkaError(KafkaError._PARTITION_EOF))


@pytest.mark.parametrize(
    "answers",
    [
        [[record(0), record(1), record(2), end_at(4)]],  # behind: two markers end the log
        [[end_at(0), record(0), record(1), record(2), end_at(4)]],  # before
        [[record(0), end_at(1), record(1), end_at(2), record(2), end_at(4)]],  # between
        [[record(0), record(1)], [record(2), end_at(4)]],
        [[record(0), record(1), record(2)], [end_at(4)]],
        [[record(0), record(1), record(2), record(6), end_at(8)]],  # the log went on behind the range
    ],
)
def test_records_before_an_end_of_partition_event_are_read_when_both_come_in_one_call(
    monkeypatch: pytest.MonkeyPatch, answers: list[list[Message]]
) -> None:
    monkeypatch.setattr(range_reader, "Consumer", Scripted(*answers))
    found = [record.offset() for some in read_messages(SETTINGS, "t", 0, 0, 4, ReadLimits()) for record in some]
    assert found == [0, 1, 2]
