"""How far a sequence is that is written once, when brokers say odd things of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk import once_writer
from streams_py.adapters.confluent.bulk.once_writer import OnceWriter
from streams_py.errors import StreamsError
from streams_py.ports import OffsetAndMetadata

PLACE = TopicPartition("out", 0)


class Brokers:
    """Say these numbers one after the other, and the last one from then on; None: nothing is known."""

    def __init__(self, *numbers: int | None) -> None:
        self.numbers = [*numbers]
        self.committed: list[int] = []
        self.now_s = 0.0

    def __call__(self, *_: Any, **__: Any) -> Brokers:
        return self

    def initialize(self, timeout_ms: int) -> None:
        pass

    def committed_position(self, name: str, place: TopicPartition) -> OffsetAndMetadata | None:
        number = self.numbers.pop(0) if len(self.numbers) > 1 else self.numbers[0]
        return None if number is None else OffsetAndMetadata(number, f"sum of {number}")

    def flush(self, timeout_ms: int) -> int:
        return 0

    def check(self) -> None:
        pass

    def commit_transaction(self, offsets: dict[TopicPartition, OffsetAndMetadata], *_: object) -> None:
        self.committed.append(offsets[PLACE].offset)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[OnceWriter, Brokers]]:
    def writer(*numbers: int | None) -> tuple[OnceWriter, Brokers]:
        brokers = Brokers(*numbers)
        for name in ("LogAdmin", "ConfluentTransactionalProducer", "time"):
            monkeypatch.setattr(once_writer, name, brokers)
        return OnceWriter({"bootstrap.servers": "unreachable:1"}, "mine", PLACE, timeout_ms=1), brokers

    return writer


Told = Callable[..., tuple[OnceWriter, Brokers]]


def test_sequence_is_announced_only_where_nobody_has(told: Told) -> None:
    for known, wanted in ((None, [0]), (0, []), (7, [])):
        writer, brokers = told(known)
        writer.announce()
        assert brokers.committed == wanted


def test_nothing_known_of_an_announced_sequence_is_not_taken_for_nothing_written(told: Told) -> None:
    writer, _ = told(None, None, 7)
    assert writer.begin() == (7, "sum of 7")
    writer, brokers = told(None)
    with pytest.raises(StreamsError, match=r"brokers have no committed position of mine: .*offsets\.retention\.min"):
        writer.begin()
    assert brokers.now_s >= 10


def test_number_that_a_coordinator_gives_that_still_reads_its_log_is_not_believed_after_a_failure(told: Told) -> None:
    writer, brokers = told(None, 3, 6, 7, 7)
    assert writer.begin(is_repeated=True) == (7, "sum of 7")
    assert brokers.now_s >= 30
    writer, brokers = told(3)
    assert writer.begin() == (3, "sum of 3")
    assert brokers.now_s == 0, "where nothing has failed nothing waits"
