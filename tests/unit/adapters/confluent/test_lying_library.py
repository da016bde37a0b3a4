"""A client library that answers nonsense: what no broker says never passes the port as an answer."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid
from hypothesis import given
from hypothesis import strategies as st
from kafka import errors as kafka_errors
from kafka.admin import MemberToRemove

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import admin as admin_module
from streams_py.adapters.confluent.admin import ConfluentAdmin
from streams_py.adapters.confluent.bulk import log_admin
from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.adapters.connection import librdkafka_gaps
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports import AdminError, AdminErrorKind, TopicCleanup, TopicSpec

SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "client.id": "lied-to", "log.connection.close": False}
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
NO_OFFSETS = (-1001, -1, -2, -1000, None, "12", 3.5, True)

offsets = st.one_of(st.integers(0, 2**62), st.sampled_from(NO_OFFSETS))
codes = st.sampled_from(
    [
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._NOENT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN,
    ]
)
failures = codes.map(lambda code: KafkaException(KafkaError(code)))
LEFT_OUT = object()


def done(value: object) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


class Library:
    """An admin client whose answers are given."""

    def __init__(self, answers: Mapping[Any, object] | None = None, topics: list[object] | None = None) -> None:
        self.answers = answers or {}
        self.topics = topics or []

    def poll(self, timeout: float) -> int:
        return 0

    def list_offsets(self, asked: Mapping[Any, object], **_: object) -> dict[Any, Future[Any]]:
        found = {(tp.topic, tp.partition): tp for tp in asked}
        return {
            found[tp]: done(value if isinstance(value, Exception) else SimpleNamespace(offset=value))
            for tp, value in self.answers.items()
            if value is not LEFT_OUT and tp in found
        }

    def by_name(self, *_: object, **__: object) -> dict[Any, Future[Any]]:
        return {name: done(value) for name, value in self.answers.items() if value is not LEFT_OUT}

    describe_topics = create_topics = by_name

    def describe_configs(self, asked: list[Any], **_: object) -> dict[Any, Future[Any]]:
        given = {name: value for name, value in self.answers.items() if value is not LEFT_OUT}
        return {resource: done(given[resource.name]) for resource in asked if resource.name in given}

    def list_topics(self, **_: object) -> object:
        answer = self.topics.pop(0) if len(self.topics) > 1 else self.topics[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Reader:
    """A consumer whose answer to ``committed`` is given."""

    def __init__(self, answers: list[object]) -> None:
        self.answers = answers

    def committed(self, asked: object, timeout: float) -> object:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        pass


def lied_to(library: Library, kind: type[ConfluentAdmin] = ConfluentAdmin, timeout_ms: int = 300) -> Any:
    admin = kind(SETTINGS, timeout_ms=timeout_ms)
    # In place of a client of librdkafka.
    admin._live = lambda: library  # type: ignore[method-assign, assignment, return-value]
    return admin


@pytest.fixture(autouse=True)
def _questions_are_repeated_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, pause in (
        (log_admin, "_RETRY_S"),
        (admin_module, "_SECOND_REQUEST_S"),
        (admin_module, "_COORDINATOR_BACKOFF_S"),
    ):
        monkeypatch.setattr(module, pause, 0.001)


@given(st.dictionaries(st.sampled_from(PARTITIONS), st.one_of(offsets, failures, st.just(LEFT_OUT))))
def test_every_listed_offset_is_one_or_an_error(answers: dict[TopicPartition, object]) -> None:
    admin = lied_to(Library(answers))
    try:
        listed = admin.list_offsets(PARTITIONS)
    except BrokerUnavailableError:
        assert not any(isinstance(value, int) and value is not True and value >= 0 for value in answers.values())
        return
    assert set(listed) == set(PARTITIONS)
    for partition, answer in listed.items():
        given_answer = answers.get(partition, LEFT_OUT)
        if isinstance(answer, AdminError):
            assert isinstance(given_answer, Exception) or given_answer in NO_OFFSETS or given_answer is LEFT_OUT
        else:
            assert answer >= 0
            assert answer == given_answer


@given(st.dictionaries(st.sampled_from(PARTITIONS), offsets, min_size=3))
def test_ends_of_a_range_are_offsets_or_there_are_none(answers: dict[TopicPartition, object]) -> None:
    admin = lied_to(Library(answers), LogAdmin, timeout_ms=1)
    believable = all(isinstance(value, int) and value is not True and value >= 0 for value in answers.values())
    for ask in (lambda: admin.log_starts(PARTITIONS), lambda: admin.log_ends(PARTITIONS, read_committed=True)):
        if believable:
            assert ask() == answers
        else:
            with pytest.raises(BrokerUnavailableError):
                ask()


def test_only_a_look_up_by_time_may_say_minus_one() -> None:
    partition = PARTITIONS[0]
    assert lied_to(Library({partition: -1}), LogAdmin).first_at([partition], 5) == {partition: -1}
    with pytest.raises(BrokerUnavailableError):
        lied_to(Library({partition: -1001}), LogAdmin).first_at([partition], 5)


NO_LEADERS = KafkaException(KafkaError(KafkaError._NOENT, "No leaders found"))


class Leaderless(Library):
    """A library without a leader for any partition, and with given topics."""

    def list_offsets(self, asked: Mapping[Any, object], **_: object) -> dict[Any, Future[Any]]:
        return {partition: done(NO_LEADERS) for partition in asked}


def test_topic_whose_brokers_are_away_is_not_taken_for_one_that_does_not_exist() -> None:
    library = Leaderless({"t": described(0, 1, 2, leader=None)})
    assert {answer.kind for answer in lied_to(library).list_offsets(PARTITIONS).values()} == {
        AdminErrorKind.LEADER_NOT_AVAILABLE
    }
    with pytest.raises(BrokerUnavailableError, match="cannot be listed now"):
        lied_to(library, LogAdmin, timeout_ms=1).log_ends(PARTITIONS, read_committed=False)


def test_broker_unavailable_when_the_library_alone_says_that_there_are_no_leaders() -> None:
    """A client that has lost its only broker says so of every partition. No broker has answered anything then."""
    library = Leaderless({"t": KafkaException(KafkaError(KafkaError._TIMED_OUT))})
    with pytest.raises(BrokerUnavailableError, match="while listing offsets \\(no leaders found\\)"):
        lied_to(library).list_offsets(PARTITIONS)


def test_topic_that_does_not_exist_is_told_from_one_without_leaders() -> None:
    library = Leaderless({"t": KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))})
    assert {answer.kind for answer in lied_to(library).list_offsets(PARTITIONS).values()} == {
        AdminErrorKind.UNKNOWN_TOPIC
    }
    with pytest.raises(StreamsError, match="was the topic deleted") as raised:
        lied_to(library, LogAdmin, timeout_ms=1).log_ends(PARTITIONS, read_committed=False)
    assert not raised.value.retriable


@pytest.mark.parametrize("code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION])
def test_client_whose_knowledge_of_leaders_is_old_is_replaced(code: int) -> None:
    partition = PARTITIONS[0]
    answers: dict[TopicPartition, object] = {partition: KafkaException(KafkaError(code))}
    admin = ConfluentAdmin(SETTINGS, timeout_ms=300)
    admin._client = Library(answers)  # type: ignore[assignment]  # in place of a client of librdkafka
    assert admin.list_offsets([partition])[partition].kind is AdminErrorKind.LEADER_NOT_AVAILABLE  # type: ignore[union-attr]
    assert admin._client is None  # the next call creates one
    admin._client = Library({partition: 7})  # type: ignore[assignment]  # see above
    assert admin.list_offsets([partition]) == {partition: 7}
    assert admin._client is not None  # it is kept


def described(*numbers: int, leader: int | None = 1) -> object:
    node = SimpleNamespace(id=1, rack=None)
    head = None if leader is None else SimpleNamespace(id=leader)
    parts = [SimpleNamespace(id=number, leader=head, replicas=[node]) for number in numbers]
    return SimpleNamespace(name="t", partitions=parts)


@pytest.mark.parametrize("numbers", [(), (1,), (0, 2), (0, 0, 1)])
def test_topic_with_half_of_its_partitions_is_no_answer(numbers: tuple[int, ...]) -> None:
    admin = lied_to(Library({"t": described(*numbers), "good": described(0, 1)}))
    answers = admin.describe_topics(["t", "good"])
    assert answers["t"].kind is AdminErrorKind.TIMED_OUT
    assert [info.partition for info in answers["good"]] == [0, 1]


@pytest.mark.parametrize("leader", [None, -1])
def test_partition_without_leader_has_none(leader: int | None) -> None:
    [info] = lied_to(Library({"t": described(0, leader=leader)})).describe_topics(["t"])["t"]
    assert info.leader is None


@pytest.mark.parametrize(("said", "found"), [(Uuid(0, 7), str(Uuid(0, 7))), (Uuid(0, 0), None), (None, None)])
def test_topic_has_the_id_that_its_broker_gives_if_it_gives_one(said: Uuid | None, found: str | None) -> None:
    topic: Any = described(0)
    topic.topic_id = said
    [info] = lied_to(Library({"t": topic})).describe_topics(["t"])["t"]
    assert info.topic_id == found


def test_topic_that_is_left_out_of_an_answer_is_neither_there_nor_created() -> None:
    admin = lied_to(Library({"t": described(0)}))
    assert admin.describe_topics(["t", "u"])["u"].kind is AdminErrorKind.TIMED_OUT
    admin = lied_to(Library({"t": None}))
    assert admin.create_topics([TopicSpec("t", 1), TopicSpec("u", 1)])["u"].kind is AdminErrorKind.TIMED_OUT


def limited(policy: object, ms: object = "5", size: object = "-1") -> dict[str, object]:
    return configured(cleanup_policy=policy, retention_ms=ms, retention_bytes=size)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("compact, delete", TopicCleanup(frozenset({"compact", "delete"}), 5, -1)),
        ("", TopicCleanup(frozenset(), 5, -1)),
        ("zip", AdminErrorKind.TIMED_OUT),
        (None, AdminErrorKind.TIMED_OUT),
    ],
)
def test_cleanup_is_what_a_broker_says_or_an_error(said: object, found: object) -> None:
    lies = {"u": limited("delete", None), "v": limited("delete", "5", "much"), "w": None}
    answers = lied_to(Library({"t": limited(said), "good": limited("compact"), **lies})).cleanup(["t", "good", *lies])
    answer = answers.pop("t")
    assert (answer.kind if isinstance(answer, AdminError) else answer) == found
    assert answers.pop("good").policy == {"compact"}
    assert [answer.kind for answer in answers.values()] == [AdminErrorKind.TIMED_OUT] * 3


def configured(**keys: object) -> dict[str, object]:
    return {name.replace("_", "."): SimpleNamespace(value=value) for name, value in keys.items()}


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (configured(cleanup_policy="compact", delete_retention_ms="5"), 5),
        (configured(cleanup_policy="compact,delete", delete_retention_ms="0"), 0),
        (configured(cleanup_policy="delete", delete_retention_ms="5"), None),
        (configured(cleanup_policy="compact"), AdminErrorKind.TIMED_OUT),
        (configured(cleanup_policy=None, delete_retention_ms="5"), AdminErrorKind.TIMED_OUT),
        (configured(cleanup_policy="compact", delete_retention_ms="-1"), AdminErrorKind.TIMED_OUT),
        ({}, AdminErrorKind.TIMED_OUT),
        (None, AdminErrorKind.TIMED_OUT),
        (LEFT_OUT, AdminErrorKind.TIMED_OUT),
        (KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), AdminErrorKind.NOT_ALLOWED),
    ],
)
def test_retention_of_deletions_is_what_a_broker_says_or_an_error(said: object, kept: object) -> None:
    good = configured(cleanup_policy="compact", delete_retention_ms="7")
    answers = lied_to(Library({"t": said, "good": good})).delete_retention_ms(["t", "good"])
    answer = answers["t"]
    assert (answer.kind if isinstance(answer, AdminError) else answer) == kept
    assert answers["good"] == 7
    if isinstance(answer, AdminError) and answer.kind is AdminErrorKind.NOT_ALLOWED:
        assert "no right DESCRIBE_CONFIGS on topic t" in answer.message


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (configured(cleanup_policy="delete", retention_ms="5", retention_bytes="-1"), {"t": (5, -1)}),
        (configured(cleanup_policy="compact,delete", retention_ms="-1", retention_bytes="0"), {"t": (-1, 0)}),
        (configured(cleanup_policy="compact", retention_ms="5", retention_bytes="5"), {}),
        (configured(cleanup_policy="delete", retention_ms="-1", retention_bytes="-1"), {}),
        (configured(cleanup_policy="delete", retention_ms="soon", retention_bytes="5"), {}),
        (configured(cleanup_policy="delete", retention_ms="5"), {}),
        (None, {}),
        (KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), {}),
    ],
)
def test_what_a_topic_keeps_is_known_of_those_that_delete_and_say_so(
    said: object, kept: dict[str, tuple[int, int]]
) -> None:
    good = configured(cleanup_policy="delete", retention_ms="7", retention_bytes="8")
    found = lied_to(Library({"t": said, "good": good}), LogAdmin).retentions(["t", "good"])
    assert found == {**kept, "good": (7, 8)}


def cluster(*topics: str, brokers: int = 1, **odd: object) -> object:
    found = {name: SimpleNamespace(error=None, partitions={0: None}) for name in topics}
    return SimpleNamespace(topics={**found, **odd}, brokers=dict.fromkeys(range(brokers)))


def test_metadata_without_brokers_is_no_answer() -> None:
    with pytest.raises(BrokerUnavailableError, match="names no brokers"):
        lied_to(Library(topics=[cluster(brokers=0)])).describe_topics()


def test_cluster_without_topics_is_believed_when_it_says_so_twice() -> None:
    assert lied_to(Library(topics=[cluster(), cluster()])).describe_topics() == {}
    late = lied_to(Library({"t": described(0)}, topics=[cluster(), cluster("t")]))
    assert list(late.describe_topics()) == ["t"]


def test_partition_counts_are_asked_for_again_while_a_topic_has_an_error() -> None:
    broken = SimpleNamespace(error=KafkaError(KafkaError.LEADER_NOT_AVAILABLE), partitions={})
    gone = SimpleNamespace(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), partitions={})
    library = Library(topics=[cluster(a=broken, gone=gone), cluster("a", gone=gone)])
    assert lied_to(library, LogAdmin).partition_counts() == {"a": 1}
    with pytest.raises(BrokerUnavailableError, match="does not report the partitions of a"):
        lied_to(Library(topics=[cluster(a=broken)]), LogAdmin).partition_counts()


def position(number: int, offset: int, error: KafkaError | None = None) -> object:
    found = confluent_kafka.TopicPartition("t", number, offset)
    return SimpleNamespace(topic=found.topic, partition=number, offset=offset, error=error)


def read_by(admin: ConfluentAdmin, reader: Reader) -> None:
    """Let an admin client ask this reader for committed offsets."""
    # In place of a consumer of librdkafka.
    admin._reader_of = lambda group: reader  # type: ignore[method-assign, assignment, return-value]


@given(st.lists(st.integers(0, 2), unique=True, max_size=2))
def test_committed_offsets_that_leave_out_a_partition_are_no_answer(numbers: list[int]) -> None:
    admin = ConfluentAdmin(SETTINGS, timeout_ms=1)
    read_by(admin, Reader([[position(number, 5) for number in numbers]]))
    with pytest.raises(BrokerUnavailableError, match="leaves out partitions"):
        admin.committed_offsets("g", PARTITIONS)


def test_committed_offsets_are_asked_for_again_when_one_partition_failed() -> None:
    whole = [position(0, 4), position(1, -1001), position(2, 9)]
    partial = [position(0, 4), position(1, -1001, KafkaError(KafkaError._TIMED_OUT)), position(2, 9)]
    reader = Reader([partial, KafkaException(KafkaError(KafkaError._TRANSPORT)), whole])
    admin = ConfluentAdmin(SETTINGS, timeout_ms=20_000)
    read_by(admin, reader)
    assert admin.committed_offsets("g", PARTITIONS) == dict(zip(PARTITIONS, (4, None, 9), strict=True))


def test_committed_offsets_are_asked_for_again_when_the_text_beside_one_is_read_beyond_its_end() -> None:
    beyond = UnicodeDecodeError("utf-8", b"AgAA\x90", 4, 5, "invalid start byte")
    reader = Reader([beyond, [position(0, 4), position(1, -1001), position(2, 9)]])
    admin = ConfluentAdmin(SETTINGS, timeout_ms=20_000)
    read_by(admin, reader)
    assert admin.committed_offsets("g", PARTITIONS) == dict(zip(PARTITIONS, (4, None, 9), strict=True))


def test_error_that_waiting_cannot_mend_is_not_called_a_broker_that_is_away() -> None:
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(StreamsError) as raised:
        lied_to(Library({PARTITIONS[0]: refused}), LogAdmin).log_ends([PARTITIONS[0]], read_committed=False)
    assert not raised.value.retriable


def test_removal_of_a_static_member_that_no_answer_names_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class SilentLibrary:
        def __init__(self, **settings: object) -> None:
            assert settings["bootstrap_timeout_ms"] == settings["request_timeout_ms"] == 1_234

        def remove_group_members(self, group: str, members: list[object]) -> dict[str, object]:
            return {}

        def close(self) -> None: ...

    monkeypatch.setattr(librdkafka_gaps, "KafkaAdminClient", SilentLibrary)
    with pytest.raises(BrokerUnavailableError, match="static member i-1 of group g could not be removed"):
        librdkafka_gaps.remove_static_member({}, "g", "i-1", "m", timeout_ms=1_234)


@pytest.mark.parametrize(
    "error", [kafka_errors.FencedInstanceIdError, kafka_errors.UnknownMemberIdError, kafka_errors.NoError]
)
def test_static_member_is_removed_as_the_one_it_was_and_a_namesake_in_its_place_stays(
    monkeypatch: pytest.MonkeyPatch, error: type[kafka_errors.KafkaError]
) -> None:
    asked: list[MemberToRemove] = []

    class Library:
        def __init__(self, **settings: object) -> None: ...

        def remove_group_members(self, group: str, members: list[MemberToRemove]) -> dict[str, object]:
            asked.extend(members)
            return {"m": error}

        def close(self) -> None: ...

    monkeypatch.setattr(librdkafka_gaps, "KafkaAdminClient", Library)
    librdkafka_gaps.remove_static_member({}, "g", "i-1", "m", timeout_ms=1_234)
    assert asked == [MemberToRemove(member_id="m", group_instance_id="i-1")]
