"""When the built-in assignors may use racks, and which topics must be described for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from streams_protocol.types import ProcessId, TaskId
from streams_py.leader.effects import DescribeTopics, ListEndOffsets
from streams_py.leader.events import EndOffsetsListed, TopicsDescribed
from streams_py.leader.steps import racks
from streams_py.leader.steps.tasks import TaskTable
from tests.support.leader.kit import (
    COUNT,
    NOW_MS,
    REPARTITIONED,
    TIMED_OUT,
    FakeCluster,
    Outcome,
    assign,
    member,
    pid,
    task,
)


class Recorder:
    """Stands in for the optimiser: records its arguments and moves no task."""

    made: list[dict[str, Any]]

    def __init__(self) -> None:
        self.made = []

    def __call__(self, **facts: Any) -> Recorder:
        self.made.append(facts)
        return self

    def optimise_active(
        self, tasks: Sequence[TaskId], clients: Sequence[ProcessId], owners: Sequence[int], **costs: int
    ) -> Sequence[int]:
        return owners

    def optimise_standby(
        self,
        tasks: Sequence[TaskId],
        clients: Sequence[ProcessId],
        actives: Sequence[int],
        standbys: Sequence[Sequence[int]],
        **costs: object,
    ) -> Sequence[Sequence[int]]:
        return standbys


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    monkeypatch.setattr(racks, "optimiser_for", found)
    return found


GROUP = {"a": member(1, rack="r0"), "b": member(2, rack="r1")}


def run(group: Mapping[str, Any] = GROUP, cluster: FakeCluster | None = None, **changes: object) -> Outcome:
    changes = {"rack_aware_assignment_strategy": "min_traffic", **changes}
    return assign(group, REPARTITIONED, cluster or FakeCluster({"in": 2}, racks=("r0", "r1")), **changes)


def described(outcome: Outcome) -> list[tuple[str, ...]]:
    return [effect.names for effect in outcome.cluster.of(DescribeTopics)]  # type: ignore[union-attr]  # by kind


def test_only_repartition_topics_are_described_when_there_are_no_standbys(recorder: Recorder) -> None:
    outcome = run()
    assert described(outcome) == [("app-r",), ("app-counts-changelog",), ("app-r",)]
    [facts] = recorder.made
    assert facts["client_racks"] == {pid(1): "r0", pid(2): "r1"}
    assert facts["strategy"] == "min_traffic"
    assert facts["active_racks"][task("1_1")] == [frozenset({"r1"})]


def test_changelogs_are_described_in_the_same_request_when_there_are_standbys(recorder: Recorder) -> None:
    outcome = run(num_standby_replicas=1)
    assert described(outcome)[-1] == ("app-counts-changelog", "app-r")
    [facts] = recorder.made
    assert facts["standby_racks"][task("1_0")] == [frozenset({"r0"})]
    assert facts["standby_racks"][task("0_0")] == []


@pytest.mark.parametrize(
    "group",
    [
        {"a": member(1, rack="r0"), "b": member(2)},
        {"a": member(1, rack="r0"), "b": member(1, rack="r1")},
        {"a": member(1, rack="")},
    ],
)
def test_racks_are_not_used_when_clients_have_none_or_two(group: dict[str, Any], recorder: Recorder) -> None:
    outcome = run(group)
    assert recorder.made == []
    assert "every instance needs client.rack" in outcome.cluster.logged
    assert set(outcome.codes.values()) == {0}


def test_racks_are_not_used_when_no_strategy_is_configured(recorder: Recorder) -> None:
    outcome = run(rack_aware_assignment_strategy="none")
    assert recorder.made == []
    assert described(outcome) == [("app-r",), ("app-counts-changelog",)]
    assert "racks are not" not in outcome.cluster.logged


def test_racks_are_not_used_when_a_topic_cannot_be_described(recorder: Recorder) -> None:
    cluster = FakeCluster({"in": 2}, racks=("r0",))
    real = cluster.describe

    def third_time_fails(effect: Any) -> TopicsDescribed:
        answer = dict(real(effect.names))
        if len(cluster.of(DescribeTopics)) == 3:
            answer = dict.fromkeys(effect.names, TIMED_OUT)
        return TopicsDescribed(NOW_MS, answer)

    cluster.faults[DescribeTopics] = third_time_fails
    outcome = run(cluster=cluster)
    assert recorder.made == []
    assert "topic app-r cannot be described" in outcome.cluster.logged


def test_racks_are_not_used_when_brokers_have_none(recorder: Recorder) -> None:
    outcome = run(cluster=FakeCluster({"in": 2}, racks=("",)))
    assert recorder.made == []
    assert "set broker.rack on every broker" in outcome.cluster.logged
    assert set(outcome.codes.values()) == {0}


def test_racks_are_not_used_when_lags_are_not_known(recorder: Recorder) -> None:
    cluster = FakeCluster({"in": 2, "app-counts-changelog": 2}, racks=("r0",))
    cluster.faults[ListEndOffsets] = lambda effect: EndOffsetsListed(NOW_MS, error=TIMED_OUT)
    run(cluster=cluster)
    assert recorder.made == []


def test_racks_are_not_used_when_a_partition_has_no_replica_with_a_rack(recorder: Recorder) -> None:
    question = racks.RackQuestion({pid(1): "r"}, (), _table(), {}, _configs())
    assert question.answer({}) == (None, "no replica of in-0 has a known rack; set broker.rack on every broker")


def _table() -> TaskTable:
    from streams_py.assignment.java_order import HashSizing
    from streams_py.leader.steps.tasks import task_table

    cluster = FakeCluster({"in": 1})
    return task_table(COUNT, cluster.metadata(["in"]), hash_sizing=HashSizing.JDK_19_AND_NEWER)


def _configs() -> Any:
    from streams_py.assignment.configs import AssignmentConfigs

    return AssignmentConfigs(rack_aware_assignment_strategy="min_traffic")
