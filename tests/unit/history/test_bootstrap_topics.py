"""The topics of a warm start must not change: when a change is reported, and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams_protocol.types import TopicPartition
from streams_py.errors import StreamsError
from streams_py.history.bootstrap import BootstrapPlan, Step
from streams_py.history.bootstrap_ends import commit
from streams_py.history.bootstrap_topics import check_topics
from streams_py.history.refuse import RefusedTopologyError
from tests.support.history.bootstrap import BETWEEN, CHANGELOG, Cluster, at_step, planned


def test_topic_that_was_deleted_and_created_again_is_another_one_whatever_its_offsets(tmp_path: Path) -> None:
    cluster, file = Cluster(), tmp_path / "plan.json"
    plan = planned(cluster)
    plan.save(file)
    cluster.create_again("lines")
    with pytest.raises(
        RefusedTopologyError, match=r"topic lines: it was deleted and created again since .*; plan again"
    ):
        check_topics(BootstrapPlan.load(file), cluster)
    cluster = Cluster()
    plan = at_step(cluster, Step.VERIFIED)
    cluster.create_again("lines")
    with pytest.raises(
        StreamsError,
        match=r"topic lines: it was deleted .*, so the plan's positions are not valid for it; run `bootstrap",
    ):
        commit(plan, file, cluster)
    assert cluster.offsets == {}


def test_partitions_that_a_topic_was_given_since_keep_positions_from_being_committed(tmp_path: Path) -> None:
    cluster = Cluster()
    plan = at_step(cluster, Step.VERIFIED)
    cluster.topics["lines"] = 3
    with pytest.raises(
        StreamsError, match="topic lines: it has 3 partitions, but the plan has 2, so the plan's positions"
    ):
        commit(plan, tmp_path / "plan.json", cluster)
    assert cluster.offsets == {}


def test_topics_that_outputs_were_written_to_must_be_there_for_the_next_attempt() -> None:
    cluster = Cluster()
    cluster.topics["out"] = 1
    plan = planned(cluster).writing_to(cluster.topic_ids(["out"])).aborted()
    check_topics(plan.writing_to(cluster.topic_ids(["out"])), cluster)
    cluster.create_again("out")
    with pytest.raises(RefusedTopologyError, match="topic out: it was deleted and created again"):
        check_topics(plan.writing_to(cluster.topic_ids(["out"])), cluster)


def test_records_that_are_deleted_by_now_are_named_with_all_the_rest() -> None:
    cluster = Cluster()
    plan = planned(cluster)
    cluster.logs |= {TopicPartition("lines", 0): (5, 5), TopicPartition("lines", 1): (3, 9)}
    cluster.topics[BETWEEN] = 5
    with pytest.raises(RefusedTopologyError) as refused:
        check_topics(plan, cluster)
    for part in (
        "lines-0: its first 5 offsets are deleted now, but only 0 were",
        "lines-1: its first 3",
        "5 partitions",
    ):
        assert part in str(refused.value)
    with pytest.raises(RefusedTopologyError, match=f"{BETWEEN}: it has 5 partitions") as refused:
        check_topics(plan, cluster, skip_gone=True)
    assert "are deleted now" not in str(refused.value)


def test_topics_that_have_changed_since_the_plan_was_made_are_named_before_anything_is_done() -> None:
    cluster = Cluster()
    plan = planned(cluster)
    check_topics(plan, cluster)
    cluster.topics |= {"lines": 3, CHANGELOG: 2, BETWEEN: 5}
    cluster.logs[TopicPartition(CHANGELOG, 1)] = (0, 3)
    with pytest.raises(RefusedTopologyError) as refused:
        check_topics(plan, cluster)
    for part in (
        "topic lines: it has 3 partitions, but the plan has 2; plan again",
        f"topic {BETWEEN}: it has 5 partitions, but needs 2",
        f"topic {CHANGELOG}: it is not empty",
    ):
        assert part in str(refused.value)
    del cluster.topics["lines"]
    with pytest.raises(RefusedTopologyError, match="topic lines: it does not exist; plan again"):
        check_topics(plan, cluster)


def test_changelogs_that_were_emptied_are_empty() -> None:
    cluster = Cluster()
    cluster.topics[CHANGELOG] = 2
    cluster.logs[TopicPartition(CHANGELOG, 0)] = (9, 9)
    check_topics(planned(cluster), cluster)
