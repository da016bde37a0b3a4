"""Missing internal topics of a group with committed offsets: they may have been deleted."""

from __future__ import annotations

import pytest

from streams_py.errors import StreamsError
from streams_py.leader.effects import FetchCommittedOffsets
from streams_py.leader.events import CommittedOffsetsFetched
from tests.support.leader.kit import COUNT, REPARTITIONED, TIMED_OUT, FakeCluster, assign, member, tp

COMMITTED = {tp("in-2"): 7}


@pytest.mark.parametrize(
    ("topology", "missing"),
    [(COUNT, "app-counts-changelog"), (REPARTITIONED, "app-r")],
    ids=["changelog", "repartition"],
)
def test_topic_is_created_and_reported(topology: object, missing: str) -> None:
    cluster = FakeCluster(committed=dict(COMMITTED))
    outcome = assign({"a": member(1)}, topology, cluster, missing_topics="report")  # type: ignore[arg-type]
    assert missing in outcome.cluster.created
    said = f"internal topic {missing} does not exist, but the group has committed offset 7 of in-2"
    assert outcome.cluster.logged.count(said) == 1


def test_leader_fails_before_the_topic_is_created_when_it_is_to_stop() -> None:
    cluster = FakeCluster(committed=dict(COMMITTED))
    for _ in range(2):  # at each start
        outcome = assign({"a": member(1)}, COUNT, cluster, missing_topics="fail")
        assert isinstance(outcome.error, StreamsError)
        assert "app-counts-changelog does not exist" in str(outcome.error)
    assert outcome.cluster.created == {}


@pytest.mark.parametrize("committed", [{}, {tp("in-2"): 0}], ids=["nothing committed", "nothing read"])
def test_topic_of_a_new_application_is_not_reported(committed: dict) -> None:  # type: ignore[type-arg]
    outcome = assign({"a": member(1)}, COUNT, FakeCluster(committed=committed), missing_topics="fail")
    assert outcome.cluster.created.keys() == {"app-counts-changelog"}
    assert "does not exist" not in outcome.cluster.logged


def test_group_is_assigned_when_committed_offsets_are_not_known() -> None:
    cluster = FakeCluster(committed=dict(COMMITTED))
    cluster.faults[FetchCommittedOffsets] = lambda effect: CommittedOffsetsFetched(cluster.now_ms, error=TIMED_OUT)
    outcome = assign({"a": member(1)}, COUNT, cluster, missing_topics="report")
    assert outcome.published
    assert "cannot check whether app-counts-changelog existed before: timed out" in outcome.cluster.logged
