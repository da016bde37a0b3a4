"""What a range of a partition gives when the client does odd things."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message

from streams_py.adapters.confluent.bulk import range_reader
from streams_py.adapters.confluent.bulk.range_reader import ReadLimits, read_messages, read_range

SETTINGS = {"bootstrap.servers": "nobody:1", "client.id": "reader"}


class Scripted:
    """A consumer that delivers these offsets, some at a time."""

    def __init__(self, *answers: list[int]) -> None:
        self.answers = [*answers]

    def __call__(self, settings: Any, logger: Any) -> Scripted:
        return self

    def assign(self, partitions: Any) -> None:
        pass

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        return [Message("t", 0, at, None, b"v%d" % at) for at in self.answers.pop(0)] if self.answers else []

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
