"""A record consumer whose library says what is not so: positions are neither lost nor reset for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import consumer as module
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.errors import OffsetOutOfRangeError, StreamsError
from streams_py.ports import BEGINNING
from tests.support.clocks import FakeTime

PARTITION = TopicPartition("t", 0)


class Library:
    """The used part of librdkafka's consumer. ``looks`` are the answers to lookups; the last one is repeated."""

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


def record() -> object:
    return SimpleNamespace(error=lambda: None)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> ConfluentConsumer:
    monkeypatch.setattr(module, "Consumer", Library)
    monkeypatch.setattr(module, "_error_of_message", lambda message: message.error())  # messages are fakes
    monkeypatch.setattr(module, "_CHECK_INTERVAL_S", 0.0)
    monkeypatch.setattr(module, "Message", SimpleNamespace)
    return ConfluentConsumer({"bootstrap.servers": "x", "client.id": "c"})


def library_of(consumer: ConfluentConsumer) -> Library:
    return consumer._consumer  # type: ignore[return-value]  # the fake in place of librdkafka


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


def test_thread_is_not_held_up_by_many_partitions_that_no_broker_answers_for(
    consumer: ConfluentConsumer, clock: FakeTime
) -> None:
    """Each question takes half a second. One broker is away, the other one says that a position is gone."""
    asked: list[int] = []

    def look(native: Any, **options: object) -> tuple[int, int] | None:
        asked.append(native.partition)
        if native.partition == 39:
            return (50, 60)
        clock.now_s += 0.5
        return None

    consumer._watermarks = look  # type: ignore[assignment]  # a slow broker
    partitions = [TopicPartition("t", number) for number in range(40)]
    consumer.assign(dict.fromkeys(partitions, 7))
    consumer._invalid = set(partitions)  # as after an answer of the library for each
    turns: list[float] = []
    told: set[TopicPartition] = set()
    while not told:
        began_s = clock.now_s
        try:
            assert consumer.poll(10, 0) == []
        except OffsetOutOfRangeError as error:
            told |= error.partitions
        turns.append(clock.now_s - began_s)
    assert told == {partitions[39]}
    assert max(turns) <= 3
    assert sorted(set(asked)) == list(range(40))
    assert len(asked) <= 60


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


@pytest.fixture
def silent(clock: FakeTime, consumer: ConfluentConsumer) -> ConfluentConsumer:
    """It has delivered what is before offset 4 of a log that ends at 10, and nothing since."""
    consumer.assign({PARTITION: 0})
    library_of(consumer).at = 4
    return consumer


def ask_until(consumer: ConfluentConsumer, clock: FakeTime, until_s: float) -> float | None:
    """Poll every second; when the client was replaced, None if it was not."""
    first = library_of(consumer)
    while clock.now_s < until_s:
        clock.now_s += 1
        assert consumer.poll(10, 0) == []
        if library_of(consumer) is not first:
            return clock.now_s
    return None


@pytest.mark.parametrize(
    ("log", "replaced_at"), [((0, 10), 35), ((0, 4), None), (None, 60), ((-1, -1), 60), ((5, 5), 35)]
)
def test_client_that_delivers_nothing_of_a_log_that_goes_on_is_replaced(
    silent: ConfluentConsumer, clock: FakeTime, log: object, replaced_at: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    library_of(silent).looks = [log]
    assert ask_until(silent, clock, 100) == replaced_at
    if replaced_at == 35:
        assert library_of(silent).assigned == [4]
        assert f"t-0 has records from 4 to {log[1]}; continuing with a new client" in caplog.text  # type: ignore[index]


def test_log_that_goes_on_at_the_second_look_only_is_no_reason(silent: ConfluentConsumer, clock: FakeTime) -> None:
    """A record may be written between a poll and the look that follows it."""
    library = library_of(silent)
    library.looks = [(0, 5)]
    assert ask_until(silent, clock, 34) is None
    library.at = 5
    library.events = [record()]
    clock.now_s = 35
    assert len(silent.poll(10, 0)) == 1
    library.looks = [(0, 6)]
    assert ask_until(silent, clock, 69) is None
    assert ask_until(silent, clock, 100) == 70


def test_client_is_silent_since_its_last_record(silent: ConfluentConsumer, clock: FakeTime) -> None:
    assert ask_until(silent, clock, 29) is None
    library_of(silent).events = [event(KafkaError._PARTITION_EOF, 4)]
    assert ask_until(silent, clock, 90) == 65


def test_client_that_gets_errors_instead_of_records_is_silent(silent: ConfluentConsumer, clock: FakeTime) -> None:
    library_of(silent).events = [event(KafkaError._TRANSPORT)] * 10_000
    assert ask_until(silent, clock, 60) == 35


def test_partitions_that_were_put_in_a_moment_ago_are_not_waited_for_in_vain(
    clock: FakeTime, consumer: ConfluentConsumer
) -> None:
    """A thread without tasks, or whose tasks restore, has an empty consumer for long."""
    assert ask_until(consumer, clock, 600) is None
    consumer.assign({PARTITION: 4})
    assert ask_until(consumer, clock, 634) is None
    consumer.seek(PARTITION, 4)
    assert ask_until(consumer, clock, 668) is None
    assert ask_until(consumer, clock, 700) == 669


def test_partitions_that_were_resumed_a_moment_ago_are_not_waited_for_in_vain(
    silent: ConfluentConsumer, clock: FakeTime
) -> None:
    library = library_of(silent)
    library.pause = library.resume = lambda _: None  # type: ignore[attr-defined]
    silent.pause([PARTITION])
    assert ask_until(silent, clock, 1000) is None
    silent.resume([PARTITION])
    assert ask_until(silent, clock, 1034) is None
    assert ask_until(silent, clock, 1100) == 1035


@pytest.mark.parametrize("polled_for_s", [1, 33])
def test_time_in_which_nobody_asks_is_no_silence(
    silent: ConfluentConsumer, clock: FakeTime, polled_for_s: float
) -> None:
    """A slow processor, or a frozen process: records that came meanwhile need a moment."""
    assert ask_until(silent, clock, polled_for_s) is None
    clock.now_s = 1000
    assert ask_until(silent, clock, 1035) is None
    assert ask_until(silent, clock, 1100) == 1036


def test_polls_may_take_long(silent: ConfluentConsumer, clock: FakeTime) -> None:
    first = library_of(silent)
    for clock.now_s in (20, 40, 60):
        silent.poll(10, 20_000)
    assert library_of(silent) is not first


def test_client_that_no_broker_answers_again_and_again_is_replaced(
    silent: ConfluentConsumer, clock: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    """The client's own connections may be the cause. Then all further requests would fail too."""
    library_of(silent).looks = [None, (0, 4), None, None]
    assert ask_until(silent, clock, 200) == 120
    assert library_of(silent).assigned == [4]
    assert "no broker returns the end offset of t-0; continuing with a new client" in caplog.text


def test_broker_that_is_back_has_time_to_deliver(silent: ConfluentConsumer, clock: FakeTime) -> None:
    library_of(silent).looks = [None, (0, 10), (0, 10)]
    assert ask_until(silent, clock, 64) is None
    assert ask_until(silent, clock, 100) == 65


def test_one_partition_without_a_leader_is_no_reason(silent: ConfluentConsumer, clock: FakeTime) -> None:
    silent.assign({TopicPartition("t", number): 4 for number in range(3)})
    library_of(silent).looks = [None, (0, 4), (0, 4)] * 10
    assert ask_until(silent, clock, 300) is None


def test_a_look_that_is_answered_slowly_asks_for_few_partitions(
    silent: ConfluentConsumer, clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread does nothing else, and a transaction has a timeout."""
    silent.assign({TopicPartition("t", number): 4 for number in range(20)})
    asked: list[float] = []

    def slowly(partition: TopicPartition, timeout_s: float) -> None:
        clock.now_s += timeout_s
        asked.append(partition.partition)

    monkeypatch.setattr(silent, "_log_range", slowly)  # a slow broker
    for _ in range(30):
        clock.now_s += 1
        silent.poll(10, 0)
    assert asked == [0, 1, 2]
    assert clock.now_s == 33
    assert ask_until(silent, clock, 70) is not None
    assert asked == [0, 1, 2, 3, 4, 5]


def test_client_is_kept_when_there_is_no_room_for_another(
    silent: ConfluentConsumer, clock: FakeTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> object:
        raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE))

    first = library_of(silent)
    monkeypatch.setattr(module, "Consumer", refuse)
    assert ask_until(silent, clock, 90) is None
    assert "creating a new client failed" in caplog.text
    first.events = [record()]
    assert len(silent.poll(10, 0)) == 1


def test_client_whose_partitions_are_all_paused_may_be_silent(silent: ConfluentConsumer, clock: FakeTime) -> None:
    library_of(silent).pause = lambda _: None  # type: ignore[attr-defined]
    silent.pause([PARTITION])
    assert ask_until(silent, clock, 1000) is None


def test_what_is_paused_stays_so_with_a_new_client(silent: ConfluentConsumer, clock: FakeTime) -> None:
    other = TopicPartition("t", 1)
    silent.assign({PARTITION: None, other: 7})
    library_of(silent).pause = lambda _: None  # type: ignore[attr-defined]
    silent.pause([other])
    assert ask_until(silent, clock, 35) == 35
    assert library_of(silent).assigned == [4]
    silent.resume([other])
    assert library_of(silent).assigned == [4, 4]  # the library gives one position for all


def test_new_clients_that_do_not_help_become_rare(silent: ConfluentConsumer, clock: FakeTime) -> None:
    replaced_at: list[float] = []
    while (at := ask_until(silent, clock, 2_000)) is not None:
        replaced_at.append(at)
        library_of(silent).at = 4
    assert replaced_at == [35, 100, 225, 470, 955, 1560]


def test_start_at_the_beginning_is_silent_too(clock: FakeTime, consumer: ConfluentConsumer) -> None:
    consumer.assign({PARTITION: BEGINNING})
    assert ask_until(consumer, clock, 100) == 35
    assert library_of(consumer).assigned == [BEGINNING]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_records_that_come_with_a_refusal_are_delivered_before_it_is_raised(
    consumer: ConfluentConsumer, number: int
) -> None:
    records = [record(), record()]
    library = library_of(consumer)
    consumer.assign({PARTITION: 0})
    library.events = [*records]
    library.events.insert(number, event(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert consumer.poll(10, 0) == records
    with pytest.raises(StreamsError, match="t-0 cannot be read"):
        consumer.poll(10, 0)
    assert consumer.poll(10, 0) == []


def test_refusal_without_records_is_raised_at_once(consumer: ConfluentConsumer) -> None:
    consumer.assign({PARTITION: 0})
    library_of(consumer).events = [event(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(StreamsError, match="t-0 cannot be read"):
        consumer.poll(10, 0)
    assert consumer.poll(10, 0) == []
