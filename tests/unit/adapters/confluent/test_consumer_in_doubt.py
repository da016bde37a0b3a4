"""A record consumer whose library says what is not so: positions are neither lost nor reset for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import consumer as module
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.errors import OffsetOutOfRangeError
from streams_py.ports import BEGINNING

PARTITION = TopicPartition("t", 0)


class Library:
    """librdkafka's consumer as far as it is used; ``looks`` are the answers of the look-ups, the last one repeated."""

    def __init__(self, *_: object, **__: object) -> None:
        self.events: list[object] = []
        self.looks: list[Any] = [(0, 10)]
        self.at = -1001
        self.assigned: list[int] = []
        self.cached: tuple[int, int] | None = (-1001, -1001)

    def consume(self, count: int, timeout: float) -> list[object]:
        events, self.events = self.events[:count], self.events[count:]
        return events

    def get_watermark_offsets(self, *_: object, cached: bool = False, **__: object) -> object:
        if cached:
            return self.cached
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, Exception):
            raise look
        return look

    def position(self, asked: list[Any]) -> list[object]:
        return [SimpleNamespace(offset=self.at)]

    def incremental_assign(self, partitions: list[Any]) -> None:
        self.assigned += [partition.offset for partition in partitions]

    def incremental_unassign(self, partitions: list[Any]) -> None: ...
    def list_topics(self, *_: object, **__: object) -> None: ...
    def close(self) -> None: ...


def event(code: int, offset: int | None = -1001) -> object:
    error = KafkaError(code)
    return SimpleNamespace(error=lambda: error, topic=lambda: "t", partition=lambda: 0, offset=lambda: offset)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> ConfluentConsumer:
    monkeypatch.setattr(module, "Consumer", Library)
    monkeypatch.setattr(module, "_error_of_message", lambda message: message.error())
    monkeypatch.setattr(module, "_LOOK_INTERVAL_S", 0.0)
    monkeypatch.setattr(module, "Message", SimpleNamespace)
    return ConfluentConsumer({"bootstrap.servers": "x", "client.id": "c"})


def library_of(consumer: ConfluentConsumer) -> Library:
    return consumer._consumer  # type: ignore[return-value]


def invalid_at(consumer: ConfluentConsumer, position: int, *looks: object) -> Library:
    library = library_of(consumer)
    consumer.assign({PARTITION: position})
    library.looks = list(looks)
    library.events = [event(KafkaError._AUTO_OFFSET_RESET)]
    return library


def test_position_that_was_deleted_is_raised_at_once(consumer: ConfluentConsumer) -> None:
    invalid_at(consumer, 3, (5, 10))
    with pytest.raises(OffsetOutOfRangeError) as raised:
        consumer.poll(10, 0)
    assert raised.value.partitions == {PARTITION}
    assert consumer.poll(10, 0) == []


def test_position_that_exists_is_read_again_and_not_reset(consumer: ConfluentConsumer) -> None:
    library = invalid_at(consumer, 7, (0, 10))
    assert consumer.poll(10, 0) == []
    assert library.assigned == [7, 7]
    assert consumer.poll(10, 0) == []
    assert consumer.position(PARTITION) == 7


@pytest.mark.parametrize(
    "nothing", [KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN)), (-1001, -1001), (0, -1001), (5, 2), None]
)
def test_nobody_is_told_to_reset_while_no_broker_answers(consumer: ConfluentConsumer, nothing: object) -> None:
    invalid_at(consumer, 7, *[nothing] * 20, (0, 10))
    for _ in range(21):
        assert consumer.poll(10, 0) == []
    assert library_of(consumer).assigned == [7, 7]


def test_end_before_the_position_is_asked_for_again(consumer: ConfluentConsumer) -> None:
    library = invalid_at(consumer, 7, (0, 0), (0, 3), (0, 10))
    for _ in range(3):
        assert consumer.poll(10, 0) == []
    assert library.assigned == [7, 7]


def test_end_before_the_position_is_believed_when_it_stays(consumer: ConfluentConsumer) -> None:
    invalid_at(consumer, 7, (0, 3))
    for _ in range(4):
        assert consumer.poll(10, 0) == []
    with pytest.raises(OffsetOutOfRangeError):
        consumer.poll(10, 0)


def test_start_that_nobody_can_look_up_is_left_to_the_caller(consumer: ConfluentConsumer) -> None:
    invalid_at(consumer, BEGINNING, (0, 3))
    with pytest.raises(OffsetOutOfRangeError):
        consumer.poll(10, 0)


@pytest.mark.parametrize("offset", [None, -1001, -1])
def test_end_of_partition_without_an_offset_says_nothing(consumer: ConfluentConsumer, offset: int | None) -> None:
    consumer.assign({PARTITION: BEGINNING})
    library_of(consumer).events = [event(KafkaError._PARTITION_EOF, offset)]
    assert consumer.poll(10, 0) == []
    assert consumer.position(PARTITION) is None
    assert consumer.lag(PARTITION) is None


@pytest.mark.parametrize("cached", [None, (-1001, -1001), (0, -1001), (0, 4)])
def test_lag_is_unknown_while_the_cached_end_is_none_or_before_the_position(
    consumer: ConfluentConsumer, cached: tuple[int, int] | None
) -> None:
    consumer.assign({PARTITION: 0})
    library_of(consumer).at, library_of(consumer).cached = 5, cached
    assert consumer.lag(PARTITION) is None
    library_of(consumer).cached = (0, 9)
    assert consumer.lag(PARTITION) == 4


def test_event_of_a_partition_that_was_taken_away_changes_nothing(consumer: ConfluentConsumer) -> None:
    consumer.assign({PARTITION: 3})
    consumer.assign({})
    library_of(consumer).events = [event(KafkaError._PARTITION_EOF, 9), event(KafkaError._AUTO_OFFSET_RESET)]
    assert consumer.poll(10, 0) == []
    consumer.assign({PARTITION: 4})
    assert consumer.position(PARTITION) == 4
    assert consumer.poll(10, 0) == []


# -- silence: a client that delivers nothing, without an error


class Clock:
    """A clock that stands still, for the module alone."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def silent(clock: Clock, consumer: ConfluentConsumer) -> ConfluentConsumer:
    """It has delivered what is before offset 4 of a log that ends at 10, and nothing since."""
    consumer.assign({PARTITION: 0})
    library_of(consumer).at = 4
    return consumer


@pytest.mark.parametrize(("log", "is_replaced"), [((0, 10), True), ((0, 4), False), (None, False), ((-1, -1), False)])
def test_client_that_delivers_nothing_of_a_log_that_goes_on_is_replaced(
    silent: ConfluentConsumer, clock: Clock, log: object, is_replaced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first = library_of(silent)
    first.looks = [log]
    clock.now_s = 29.9
    assert silent.poll(10, 0) == []
    assert library_of(silent) is first
    clock.now_s = 30
    assert silent.poll(10, 0) == []
    assert (library_of(silent) is not first) is is_replaced
    if is_replaced:
        assert library_of(silent).assigned == [4]
        assert "t-0 goes on from 4 to 10; reading on with a new client" in caplog.text


def test_client_is_silent_since_its_last_record(silent: ConfluentConsumer, clock: Clock) -> None:
    first = library_of(silent)
    clock.now_s = 29
    first.events = [event(KafkaError._PARTITION_EOF, 4)]
    silent.poll(10, 0)
    clock.now_s = 58
    silent.poll(10, 0)
    assert library_of(silent) is first
    clock.now_s = 59
    silent.poll(10, 0)
    assert library_of(silent) is not first


def test_client_that_gets_errors_instead_of_records_is_silent(silent: ConfluentConsumer, clock: Clock) -> None:
    first = library_of(silent)
    for clock.now_s in (29.0, 30.0):
        first.events = [event(KafkaError._TRANSPORT)]
        silent.poll(10, 0)
    silent.poll(10, 0)
    assert library_of(silent) is not first


def test_client_that_no_broker_answers_again_and_again_is_replaced(
    silent: ConfluentConsumer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own connections may be the cause: then it would ask in vain for ever."""
    first = library_of(silent)
    for clock.now_s, first.looks[0] in ((30, None), (60, (0, 4)), (90, None)):
        silent.poll(10, 0)
        assert library_of(silent) is first
    clock.now_s = 120
    silent.poll(10, 0)
    assert library_of(silent) is not first
    assert library_of(silent).assigned == [4]
    assert "no broker says where t-0 ends; reading on with a new client" in caplog.text


def test_client_whose_partitions_are_all_paused_may_be_silent(silent: ConfluentConsumer, clock: Clock) -> None:
    first = library_of(silent)
    first.pause = lambda _: None  # type: ignore[attr-defined]
    silent.pause([PARTITION])
    clock.now_s = 1000
    silent.poll(10, 0)
    assert library_of(silent) is first


def test_what_is_paused_stays_so_with_a_new_client(silent: ConfluentConsumer, clock: Clock) -> None:
    other = TopicPartition("t", 1)
    silent.assign({PARTITION: None, other: 7})
    library_of(silent).pause = lambda _: None  # type: ignore[attr-defined]
    silent.pause([other])
    clock.now_s = 30
    silent.poll(10, 0)
    assert library_of(silent).assigned == [4]
    silent.resume([other])
    assert library_of(silent).assigned == [4, 4]  # the library gives one position for all


def test_new_clients_that_do_not_help_become_rare(silent: ConfluentConsumer, clock: Clock) -> None:
    replaced_at: list[float] = []
    before = library_of(silent)
    for second in range(2_000):
        clock.now_s = float(second)
        silent.poll(10, 0)
        if library_of(silent) is not before:
            replaced_at.append(second)
            before = library_of(silent)
            before.at = 4
    assert replaced_at == [30, 90, 210, 450, 930, 1530]


def test_start_at_the_beginning_is_silent_too(clock: Clock, consumer: ConfluentConsumer) -> None:
    consumer.assign({PARTITION: BEGINNING})
    first = library_of(consumer)
    clock.now_s = 30
    consumer.poll(10, 0)
    assert library_of(consumer) is not first
    assert library_of(consumer).assigned == [BEGINNING]
