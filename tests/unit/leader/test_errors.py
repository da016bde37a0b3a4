"""Errors of an assign step: error assignments, failures of the leader, and errors without either."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from streams_protocol import DecodeError
from streams_py.errors import BrokerUnavailableError, ConfigError, IllegalStateError, StreamsError, TopologyError
from streams_py.leader import GroupLeader
from streams_py.leader.effects import CreateTopics, DescribeTopics, FetchCommittedOffsets, ListEndOffsets, Wait
from streams_py.leader.events import (
    CommittedOffsetsFetched,
    EndOffsetsListed,
    Event,
    TopicsCreated,
    TopicsDescribed,
    WaitEnded,
)
from streams_py.ports import AdminError, AdminErrorKind, MemberSubscription
from streams_py.topology.physical.metadata import TopologyMetadata
from tests.support.leader.kit import (
    COUNT,
    NOW_MS,
    REPARTITIONED,
    STATELESS,
    TIMED_OUT,
    FakeCluster,
    assign,
    member,
    settings,
    sub,
    tp,
    tps,
)

RUNNING = {f"0_{p}": -2 for p in range(4)}
ALL = "in-0 in-1 in-2 in-3"


def test_everybody_gets_code_4_and_no_topic_is_touched_when_one_asks_for_shutdown() -> None:  # L20
    outcome = assign({"a": member(1), "b": member(2, error_code=4), "f": member(0, version=12)})
    assert outcome.codes == {"a": 4, "b": 4, "f": 4}
    assert outcome.cluster.of(DescribeTopics) == outcome.cluster.of(CreateTopics) == []
    assert outcome.published.stable is None


@pytest.mark.parametrize("code", [1, 2, 3, 5])
def test_error_code_other_than_4_is_ignored_in_a_subscription(code: int) -> None:
    assert assign({"a": member(1, error_code=code)}).codes == {"a": 0}


def test_everybody_gets_code_1_when_a_source_topic_is_missing() -> None:  # L21
    outcome = assign({"a": member(1), "b": member(2)}, COUNT, FakeCluster({}))
    assert outcome.codes == {"a": 1, "b": 1}
    assert "in do not exist; create them" in str(outcome.published.error)
    assert "source topics in do not exist" in outcome.cluster.logged


@pytest.mark.parametrize("version", [1, 2])
def test_everybody_gets_code_3_when_a_future_member_meets_one_that_cannot_probe(version: int) -> None:  # L22
    outcome = assign({"a": member(1, version=version), "f": member(0, version=12)})
    assert outcome.codes == {"a": 3, "f": 3}
    assert {info.version for info in outcome.infos.values()} == {11}


def test_everybody_gets_code_3_when_a_repartition_count_cannot_be_derived() -> None:  # L23
    circle = TopologyMetadata({0: sub("app-r in", repartitions={"app-r": None})})
    outcome = assign({"a": member(1)}, circle)
    assert outcome.codes == {"a": 3}
    assert "number of partitions of app-r cannot be derived" in str(outcome.published.error)


def exists(_: object) -> Event:
    return TopicsCreated(NOW_MS, {"app-counts-changelog": AdminError(AdminErrorKind.ALREADY_EXISTS, "exists")})


def test_timeout_leaves_the_assign_step_when_topics_are_not_ready_in_time() -> None:  # L24
    cluster = FakeCluster(faults={CreateTopics: exists})
    clock = iter(range(NOW_MS, NOW_MS + 10_000_000, 100_000))
    cluster.faults[Wait] = lambda effect: WaitEnded(next(clock))
    cluster.faults[DescribeTopics] = lambda effect: TopicsDescribed(
        next(clock), {"app-counts-changelog": AdminError(AdminErrorKind.UNKNOWN_TOPIC, "unknown")}
    )
    cluster.faults[CreateTopics] = lambda effect: dataclasses.replace(exists(effect), now_ms=next(clock))
    outcome = assign({"a": member(1)}, COUNT, cluster)
    assert isinstance(outcome.error, BrokerUnavailableError)
    assert outcome.error.retriable
    assert "app-counts-changelog" in str(outcome.error)
    assert "half of max.poll.interval.ms" in str(outcome.error)


def listing_fails(_: object) -> Event:
    return EndOffsetsListed(NOW_MS, error=TIMED_OUT)


def test_owners_keep_their_tasks_and_a_deadline_is_set_when_end_offsets_are_not_known() -> None:  # L25
    cluster = FakeCluster({"in": 4, "app-counts-changelog": 4}, faults={ListEndOffsets: listing_fails})
    outcome = assign({"a": member(1, owned=ALL, sums=RUNNING), "b": member(2)}, COUNT, cluster)
    assert outcome.active("a") == ["0_0", "0_1", "0_2", "0_3"]
    assert outcome.next_ms("a") == NOW_MS + 600_000
    assert "end offsets cannot be listed: timed out" in outcome.cluster.logged


def test_one_failed_partition_is_enough() -> None:  # L25
    def one_fails(effect: object) -> Event:
        return EndOffsetsListed(NOW_MS, dict.fromkeys(tps("app-counts-changelog-0"), TIMED_OUT))

    cluster = FakeCluster({"in": 1, "app-counts-changelog": 1}, faults={ListEndOffsets: one_fails})
    outcome = assign({"a": member(1)}, COUNT, cluster)
    assert outcome.next_ms("a") == NOW_MS + 600_000


def test_committed_offsets_that_are_not_known_count_as_well() -> None:  # L25
    topology = TopologyMetadata({0: sub("in", source_changelogs="in")})
    cluster = FakeCluster(faults={FetchCommittedOffsets: lambda e: CommittedOffsetsFetched(NOW_MS, error=TIMED_OUT)})
    outcome = assign({"a": member(1, owned=ALL, sums=RUNNING), "b": member(2)}, topology, cluster)
    assert outcome.active("a") == ["0_0", "0_1", "0_2", "0_3"]


@pytest.mark.parametrize("lie", [-1001, -1, -2])
def test_negative_end_offset_is_taken_for_none(lie: int) -> None:
    def dying(effect: object) -> Event:
        return EndOffsetsListed(NOW_MS, dict.fromkeys(tps("app-counts-changelog-0"), lie))

    cluster = FakeCluster({"in": 1, "app-counts-changelog": 1}, faults={ListEndOffsets: dying})
    outcome = assign({"a": member(1)}, COUNT, cluster)
    assert outcome.next_ms("a") == NOW_MS + 600_000


def test_error_leaves_the_assign_step_when_an_end_offset_is_left_out() -> None:  # L26
    cluster = FakeCluster(
        {"in": 1, "app-counts-changelog": 1}, faults={ListEndOffsets: lambda e: EndOffsetsListed(NOW_MS)}
    )
    outcome = assign({"a": member(1)}, COUNT, cluster)
    assert "did not return an end offset for app-counts-changelog-0" in str(outcome.error)


# -- undecodable user data of one member ------------------------------------------------------------------------

GARBAGE = {
    "truncated": b"\x00\x00\x00\x0b\x00\x00\x00\x0b\x00",
    "text": b"hello",
    "empty": b"",
    "impossible version": b"\x00\x00\x00\x00" * 8,
    "null": None,
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_only_the_member_gets_code_3_when_its_user_data_is_garbage(kind: str) -> None:
    bad = MemberSubscription(("in",), GARBAGE[kind], (), -1, None)
    outcome = assign({"a": member(1), "bad": bad, "c": member(2)})
    assert outcome.codes == {"a": 0, "bad": 3, "c": 0}
    assert outcome.partitions["bad"] == ()
    assert len(outcome.active("a")) + len(outcome.active("c")) == 4
    assert "member bad receives an error assignment, the other members are not affected" in outcome.cluster.logged


def test_only_the_member_gets_code_3_when_its_end_point_is_garbage() -> None:
    outcome = assign({"a": member(1), "bad": member(2, endpoint="h:port")})
    assert outcome.codes == {"a": 0, "bad": 3}


def test_tasks_are_withheld_when_the_member_with_garbage_claims_them() -> None:
    bad = MemberSubscription(("in",), b"?", tps("in-0 in-1"), 1, None)
    outcome = assign({"a": member(1), "bad": bad}, STATELESS)
    assert outcome.partitions["a"] == tps("in-2 in-3")
    assert outcome.next_ms("a") == 0


def test_everybody_gets_code_3_when_nobody_can_be_read() -> None:
    bad = MemberSubscription(("in",), b"?", (), 1, None)
    outcome = assign({"x": bad, "y": bad})
    assert outcome.codes == {"x": 3, "y": 3}
    assert outcome.cluster.of(DescribeTopics) == []


VALID = member(2, owned="in-0", sums={"0_0": -2, "0_1": 5}, endpoint="h:1", tags={"zone": "z"}).user_data or b""


@settings_of_hypothesis(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=80),
        st.tuples(st.integers(0, len(VALID) - 1), st.binary(min_size=1, max_size=4)).map(
            lambda change: VALID[: change[0]] + change[1] + VALID[change[0] + len(change[1]) :]
        ),
    )
)
def test_assign_step_always_answers_every_member_when_one_sends_anything_at_all(data: bytes) -> None:
    strange = MemberSubscription(("in",), data, tps("in-0"), 1, None)
    outcome = assign({"a": member(1), "strange": strange})
    assert set(outcome.published.assignments) == {"a", "strange"}
    if outcome.codes["strange"] == 0:
        given_tasks = {t for info in outcome.infos.values() for t in info.active_tasks}
        assert len(given_tasks) >= 3  # in-0 may be withheld


@pytest.mark.parametrize(("data", "kind"), [(b"hello", DecodeError), (None, DecodeError)])
def test_garbage_leaves_the_assign_step_when_we_do_as_kafka_does(data: bytes | None, kind: type[Exception]) -> None:
    bad = MemberSubscription(("in",), data, (), 1, None)
    assert isinstance(assign({"a": member(1), "bad": bad}, reference_behaviour=True).error, kind)


def test_bad_end_point_leaves_the_assign_step_when_we_do_as_kafka_does() -> None:
    outcome = assign({"bad": member(2, endpoint="h:port")}, reference_behaviour=True)
    assert isinstance(outcome.error, ConfigError)


# -- partitions of no task -----------------------------------------------------------------------------------------


def test_unknown_partitions_are_only_logged() -> None:
    outcome = assign({"a": member(1, owned="gone-0")})
    assert outcome.codes == {"a": 0}
    assert "owns gone-0, which no task reads" in outcome.cluster.logged


def test_unknown_partitions_alone_leave_the_assign_step_when_we_do_as_kafka_does() -> None:
    assert isinstance(assign({"a": member(1, owned="gone-0")}, reference_behaviour=True).error, IllegalStateError)
    mixed = assign({"a": member(1, owned="gone-0 in-0")}, reference_behaviour=True)
    assert mixed.codes == {"a": 0}


# -- topics ----------------------------------------------------------------------------------------------------------


def test_error_leaves_the_assign_step_when_an_internal_topic_has_another_count() -> None:
    outcome = assign({"a": member(1)}, COUNT, FakeCluster({"in": 4, "app-counts-changelog": 5}))
    assert type(outcome.error) is StreamsError
    assert "app-counts-changelog exists with 5 partitions, but 4 are needed" in str(outcome.error)


@pytest.mark.parametrize("kind", [AdminErrorKind.OTHER, AdminErrorKind.UNSUPPORTED])
def test_error_leaves_the_assign_step_when_a_topic_cannot_be_created(kind: AdminErrorKind) -> None:
    refused = AdminError(kind, "no authorisation")
    cluster = FakeCluster(faults={CreateTopics: lambda e: TopicsCreated(NOW_MS, {"app-counts-changelog": refused})})
    outcome = assign({"a": member(1)}, COUNT, cluster)
    assert "no authorisation" in str(outcome.error)
    assert "replication.factor" in str(outcome.error) or kind is AdminErrorKind.OTHER


def test_creation_is_tried_again_when_it_times_out() -> None:
    cluster = FakeCluster()
    answers = iter([TopicsCreated(NOW_MS, {"app-counts-changelog": TIMED_OUT})])

    def first_times_out(effect: object) -> Event:
        answer = next(answers, None)
        if answer is not None:
            return answer
        cluster.faults.pop(CreateTopics)
        result = cluster.execute(effect)  # type: ignore[arg-type]  # a CreateTopics
        assert result is not None
        return result

    cluster.faults[CreateTopics] = first_times_out
    outcome = assign({"a": member(1)}, COUNT, cluster)
    assert [effect.duration_ms for effect in cluster.of(Wait)] == [100]  # type: ignore[union-attr]  # Waits
    assert outcome.codes == {"a": 0}


def test_topic_is_waited_for_and_asked_for_its_offsets_when_its_leader_is_away() -> None:
    cluster = FakeCluster({"in": 1, "app-counts-changelog": 1})

    def leaderless_once(effect: object) -> Event:
        cluster.faults.pop(DescribeTopics)
        return TopicsDescribed(
            NOW_MS, {"app-counts-changelog": AdminError(AdminErrorKind.LEADER_NOT_AVAILABLE, "no leader")}
        )

    cluster.faults[DescribeTopics] = leaderless_once
    outcome = assign({"a": member(1)}, COUNT, cluster)
    assert cluster.of(CreateTopics) == []
    assert cluster.listed == {tp("app-counts-changelog-0")}
    assert outcome.codes == {"a": 0}


def test_topology_error_leaves_the_assign_step_when_joined_topics_differ() -> None:
    topology = TopologyMetadata(
        {0: sub("left right app-r", repartitions={"app-r": None}), 1: sub("x", sinks="app-r")},
        (frozenset({"left", "right"}),),
    )
    outcome = assign({"a": member(1)}, topology, FakeCluster({"left": 2, "right": 3, "x": 1}))
    assert isinstance(outcome.error, TopologyError)
    assert "left (2), right (3)" in str(outcome.error)


def test_joined_topics_are_compared_also_without_a_repartition_topic_but_not_by_kafka_streams() -> None:
    topology = TopologyMetadata({0: sub("left right")}, (frozenset({"left", "right"}),))
    cluster = FakeCluster({"left": 2, "right": 3})
    assert isinstance(assign({"a": member(1)}, topology, cluster).error, TopologyError)
    assert assign({"a": member(1)}, topology, cluster, reference_behaviour=True).codes == {"a": 0}


# -- misuse ------------------------------------------------------------------------------------------------------


def test_illegal_state_when_an_answer_comes_without_a_request() -> None:
    with pytest.raises(IllegalStateError, match="no assign request in progress, but received WaitEnded"):
        GroupLeader(settings()).handle(WaitEnded(NOW_MS))


def test_repartition_topics_are_created_before_changelogs() -> None:
    outcome = assign({"a": member(1)}, REPARTITIONED)
    assert [spec.name for e in outcome.cluster.of(CreateTopics) for spec in e.specs] == [  # type: ignore[union-attr]
        "app-r",
        "app-counts-changelog",
    ]
