"""What a range of a partition gives when the client does odd things."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from streams_py.adapters.confluent.bulk import range_reader
from streams_py.adapters.confluent.bulk.range_reader import ReadLimits, first_record, read_messages, read_range
from streams_py.errors import BrokerUnavailableError, OffsetOutOfRangeError, StreamsError

SETTINGS = {"bootstrap.servers": "unreachable:1", "client.id": "reader"}


class Scripted:
    """A consumer that delivers these offsets or messages; a call gets what is left of one answer at most."""

    def __init__(self, *answers: Sequence[int | Message], log: tuple[int, int] | None = (0, 100)) -> None:
        self.answers: list[list[int | Message]] = [[*answer] for answer in answers]
        self.log = log
        self.assigned: list[int] = []

    def __call__(self, settings: Any, logger: Any) -> Scripted:
        return self

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned.append(partitions[0].offset)

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        if not self.answers:
            return []
        found, self.answers[0] = self.answers[0][:count], self.answers[0][count:]
        if not self.answers[0]:
            del self.answers[0]
        return [record(given) if isinstance(given, int) else given for given in found]

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        if self.log is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return self.log

    def close(self) -> None:
        pass


def record(
    at: int, key: bytes | None = None, value: bytes | None = b"v", headers: Any = None, epoch: int = -1
) -> Message:
    return Message("t", 0, at, key, value, headers, timestamp=(1, 5), leader_epoch=epoch)


def event(code: int, at: int = -1001) -> Message:
    return Message("t", 0, at, error=KafkaError(code))


def end_at(at: int) -> Message:
    return event(KafkaError._PARTITION_EOF, at)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "_AGAIN_S", (0.0, 0.0, 0.0))


def offsets_read(
    monkeypatch: pytest.MonkeyPatch,
    answers: Iterable[Sequence[int | Message]],
    end: int,
    limits: ReadLimits | None = None,
) -> list[int]:
    """By both functions, which have to agree."""
    return offsets_and_redelivered(monkeypatch, answers, end, limits)[0]


def offsets_and_redelivered(
    monkeypatch: pytest.MonkeyPatch,
    answers: Iterable[Sequence[int | Message]],
    end: int,
    limits: ReadLimits | None = None,
) -> tuple[list[int], list[int]]:
    """The same, with the counts of records that were delivered again."""
    limits, again, also = limits or ReadLimits(), list[int](), list[int]()
    monkeypatch.setattr(range_reader, "Consumer", Scripted(*answers))
    pieces = read_messages(SETTINGS, "t", 0, 0, end, limits, on_redelivered=again.append)
    found = [record.offset() for some in pieces for record in some]
    monkeypatch.setattr(range_reader, "Consumer", Scripted(*answers))
    columns = read_range(SETTINGS, "t", 0, 0, end, limits, on_redelivered=also.append)
    assert [at for some in columns for at in some.offsets] == found
    assert also == again
    return found, again


@pytest.mark.parametrize(
    ("answers", "again"),
    [
        ([[0, 1, 2, 3], [1, 2], [3, 4, 5, 6], [7, 8]], 3),
        ([[0, 1, 2, 3, 1, 2, 3, 4, 5], [6, 7, 8]], 3),
        ([[0, 1], [0, 1, 2, 3, 4, 5, 6, 7, 8, 5, 6]], 2),
        ([[0, 1, 2, 3, 4, 5, 6], [4], [4, 5, 6, 7, 8]], 4),
    ],
)
def test_records_that_the_client_delivers_again_are_counted_and_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answers: list[list[int]], again: int
) -> None:
    caplog.set_level(logging.INFO)
    for end in (8, 9):
        assert offsets_and_redelivered(monkeypatch, answers, end) == ([*range(end)], [again])
    assert "records again; each record is read once" in caplog.text
    assert max(record.levelno for record in caplog.records) == logging.INFO


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([[0, 5, 9, 5, 9, 14]], [0, 5, 9, 14]),  # as many records as offsets between the first and the last
        ([[0, 5, 9], [5, 9, 14, 19]], [0, 5, 9, 14, 19]),
        ([[2, 4, 2, 4, 6]], [2, 4, 6]),
    ],
)
def test_records_delivered_again_in_one_call_are_left_out_when_the_log_has_gaps(
    monkeypatch: pytest.MonkeyPatch, answers: list[list[int]], expected: list[int]
) -> None:
    last = expected[-1] + 1
    assert offsets_read(monkeypatch, answers, last) == expected


def test_offsets_without_records_are_no_repetition(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert offsets_read(monkeypatch, [[3, 7], [8, 20]], 21) == [3, 7, 8, 20]
    assert not caplog.text


@pytest.mark.parametrize(
    "answers",
    [
        [[record(0), record(1), record(2), end_at(4)]],  # behind: two markers end the log
        [[end_at(0), record(0), record(1), record(2), end_at(4)]],  # before
        [[record(0), end_at(1), record(1), end_at(2), record(2), end_at(4)]],  # between
        [[record(0), record(1)], [record(2), end_at(4)]],
        [[record(0), record(1), record(2)], [end_at(4)]],
        [[record(0), record(1), record(2), record(6), end_at(8)]],  # the log continues after the range
    ],
)
def test_records_before_an_end_of_partition_event_are_read_when_both_come_in_one_call(
    monkeypatch: pytest.MonkeyPatch, answers: list[list[Message]]
) -> None:
    assert offsets_read(monkeypatch, answers, 4) == [0, 1, 2]


def test_error_behind_the_last_record_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offsets_read(monkeypatch, [[0, 1, 2, event(KafkaError._BAD_MSG)]], 3) == [0, 1, 2]


# -- size --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "large",
    [
        {"key": b"x" * 1_000},
        {"value": b"x" * 1_000},
        {"headers": [("h", b"x" * 1_000)]},
        {"headers": [("x" * 1_000, None)]},
    ],
    ids=["keys", "values", "headers", "header names"],
)
@pytest.mark.parametrize("small", [0, 40], ids=["from the first record on", "behind small records"])
def test_pieces_stay_within_their_bytes(monkeypatch: pytest.MonkeyPatch, large: dict[str, Any], small: int) -> None:
    log = [record(at) if at < small else record(at, **large) for at in range(300)]
    limits = ReadLimits(records=200, bytes=10_000)
    monkeypatch.setattr(range_reader, "Consumer", Scripted(log))
    sizes = []
    for columns in read_range(SETTINGS, "t", 0, 0, 300, limits):
        parts = [columns.keys, columns.values, [text for of in columns.headers for both in of or () for text in both]]
        sizes.append(sum(len(part or b"") for some in parts for part in some))
        assert sizes[-1] <= columns.bytes <= limits.bytes
        assert len(columns.offsets) <= limits.records
    assert sum(sizes) > 250_000
    monkeypatch.setattr(range_reader, "Consumer", Scripted(log))
    pieces = [*read_messages(SETTINGS, "t", 0, 0, 300, limits)]
    assert max(map(len, pieces)) <= (limits.records if small else 10)
    assert offsets_read(monkeypatch, [log], 300, limits) == [*range(300)]


def test_record_that_is_larger_than_the_limit_comes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    log = [record(0), record(1, b"x" * 9_000), record(2), record(3, value=b"x" * 9_000), record(4, value=b"x" * 9_000)]
    monkeypatch.setattr(range_reader, "Consumer", Scripted(log))
    pieces = [columns.offsets for columns in read_range(SETTINGS, "t", 0, 0, 5, ReadLimits(bytes=1_000))]
    assert pieces == [[0], [1], [2], [3], [4]]


def test_first_call_requests_few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of the records is not known yet."""
    counts = []

    class Counting(Scripted):
        def consume(self, count: int, timeout_s: float) -> list[Message]:
            counts.append(count)
            return super().consume(count, timeout_s)

    log = [record(at, b"k" * 1_000_000) for at in range(100)]
    monkeypatch.setattr(range_reader, "Consumer", Counting(log))
    assert sum(len(columns.offsets) for columns in read_range(SETTINGS, "t", 0, 0, 100, ReadLimits())) == 100
    assert max(counts) <= 16


# -- errors ------------------------------------------------------------------------------------------------------------


def test_refused_position_counts_when_it_comes_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = [event(KafkaError._AUTO_OFFSET_RESET)]
    client = Scripted([0, 1], refused, refused, refused, [2, 3], refused, [4])
    monkeypatch.setattr(range_reader, "Consumer", client)
    assert [at for columns in read_range(SETTINGS, "t", 0, 0, 5, ReadLimits()) for at in columns.offsets] == [*range(5)]
    assert client.assigned == [0, 2, 2, 2, 4]
    for log, expected in (
        ((0, 1), "offset 2 of t-0 does not exist: the log ends at 1"),
        ((0, 9), "the leader of t-0 refuses offset 2, although its log has the offsets 0 to 9"),
    ):
        monkeypatch.setattr(range_reader, "Consumer", Scripted([0, 1], *[refused] * 4, log=log))
        with pytest.raises(OffsetOutOfRangeError, match=expected):
            list(read_range(SETTINGS, "t", 0, 0, 5, ReadLimits()))


def test_deleted_beginning_is_an_error_or_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [[event(KafkaError._AUTO_OFFSET_RESET)], [7, 8]]
    monkeypatch.setattr(range_reader, "Consumer", Scripted(*answers, log=(7, 9)))
    with pytest.raises(
        OffsetOutOfRangeError, match="OFFSET_GONE: offset 0 of t-0 was deleted, the first one left is 7"
    ):
        list(read_range(SETTINGS, "t", 0, 0, 9, ReadLimits()))
    client = Scripted(*answers, log=(7, 9))
    monkeypatch.setattr(range_reader, "Consumer", client)
    found = list(read_range(SETTINGS, "t", 0, 0, 9, ReadLimits(skip_gone=True)))
    assert [columns.offsets for columns in found] == [[7, 8]]
    assert client.assigned == [0, 7]


def test_refused_position_of_which_no_broker_says_more_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Scripted(*[[event(KafkaError._AUTO_OFFSET_RESET)]] * 6, [0, 1], log=None)
    monkeypatch.setattr(range_reader, "Consumer", client)
    assert [columns.offsets for columns in read_range(SETTINGS, "t", 0, 0, 2, ReadLimits())] == [[0, 1]]


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION])
def test_unknown_partition_counts_when_it_comes_again_and_again(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    assert offsets_read(monkeypatch, [[event(code)], [0, event(code)], [event(code)], [event(code)], [1]], 2) == [0, 1]
    monkeypatch.setattr(range_reader, "Consumer", Scripted(*[[event(code)]] * 4))
    with pytest.raises(StreamsError, match="t-0 cannot be read at offset 0"):
        list(read_range(SETTINGS, "t", 0, 0, 2, ReadLimits()))


def test_record_that_the_client_cannot_read_is_an_error_with_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "Consumer", Scripted([0, 1, event(KafkaError._BAD_MSG)]))
    with pytest.raises(StreamsError, match="t-0 cannot be read at offset 2"):
        list(read_range(SETTINGS, "t", 0, 0, 3, ReadLimits()))


def test_read_gives_up_when_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "Consumer", Scripted([0], [event(KafkaError._TRANSPORT)]))
    with pytest.raises(BrokerUnavailableError, match="no record of t-0 came for 1 ms at offset 1"):
        list(read_range(SETTINGS, "t", 0, 0, 3, ReadLimits(patience_ms=1)))


def test_records_written_after_the_plan_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later leader epoch below the planned end: the log was cut there and written again."""
    log = [record(0, epoch=3), record(1, epoch=4), record(2)]
    for planned in (4, None):
        monkeypatch.setattr(range_reader, "Consumer", Scripted(log))
        found = list(read_range(SETTINGS, "t", 0, 0, 3, ReadLimits(), leader_epoch=planned))
        assert [columns.offsets for columns in found] == [[0, 1, 2]]
    monkeypatch.setattr(range_reader, "Consumer", Scripted(log[:2]))
    with pytest.raises(StreamsError, match=r"record at offset 1 was written after .* \(leader epoch 4, planned 3\)"):
        list(read_messages(SETTINGS, "t", 0, 0, 2, ReadLimits(), leader_epoch=3))


def test_first_record_of_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    for answers, expected in (([[4, 5, 9]], 4), ([[], [12]], 10), ([[end_at(10)]], 10)):
        monkeypatch.setattr(range_reader, "Consumer", Scripted(*answers))
        assert first_record(SETTINGS, "t", 0, 1, 10, ReadLimits()) == expected
