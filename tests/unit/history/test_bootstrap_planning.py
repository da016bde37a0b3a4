"""A plan that replaces an aborted plan finds the outputs of the aborted one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py import StreamsBuilder, serdes
from streams_py.history.bootstrap import BootstrapPlan, Step
from streams_py.history.bootstrap_planning import BootstrapAllowances, make_plan
from streams_py.history.refuse import RefusedTopologyError
from tests.support.history.bootstrap import APP, CONFIG, Cluster, chosen, planned


def with_outputs(cluster: Cluster) -> BootstrapPlan:
    """Return an aborted plan that has written outputs."""
    cluster.topics["totals"] = 2
    cluster.logs[TopicPartition("totals", 1)] = (0, 3)
    plan = planned(cluster).writing_to(cluster.topic_ids(["totals"]))
    return replace(plan, step=Step.RUNNING, writers=["w"], outputs_begun=True, written_to=["totals"]).aborted()


def again(cluster: Cluster, before: BootstrapPlan, *, chooses: bool = False) -> BootstrapPlan:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("lines").to("totals")
    topology, allowed = chosen() if chooses else builder.build(), BootstrapAllowances(outputs=["errors"])
    return make_plan("app:topology", topology, APP, CONFIG, cluster, allowed, before)[0]


@pytest.mark.parametrize("is_complete", [False, True])
def test_new_plan_is_refused_while_outputs_of_the_aborted_one_are_there(is_complete: bool) -> None:
    cluster = Cluster()
    before = replace(with_outputs(cluster), outputs_begun=not is_complete)
    with pytest.raises(RefusedTopologyError) as refused:
        again(cluster, before)
    assert (
        f"topic totals: the aborted warm start ({before.id}) has written outputs to it, which abort does not "
        "delete; run that plan again with --sinks, which writes the missing outputs; or delete the topic's records"
    ) in str(refused.value)
    cluster.logs[TopicPartition("totals", 1)] = (3, 3)
    assert again(cluster, before).written_to == []


@pytest.mark.parametrize("is_another", ["nothing written", "committed", "cluster", "topology", "topic"])
def test_new_plan_does_not_mind_what_is_not_there_from_the_aborted_one(is_another: str) -> None:
    cluster = Cluster()
    before = with_outputs(cluster)
    if is_another == "topic":
        cluster.create_again("totals")
    changes: dict[str, dict[str, Any]] = {
        "nothing written": {"written_to": []},
        "committed": {"step": Step.COMMITTED},
        "cluster": {"cluster": "two"},
    }
    before = replace(before, **changes.get(is_another, {}))
    assert again(cluster, before, chooses=is_another == "topology").step is Step.PLANNED


def test_outputs_of_the_aborted_plan_count_also_where_functions_choose_the_topic() -> None:
    cluster = Cluster()
    before = replace(with_outputs(cluster), written_to=["errors"])
    cluster.topics["errors"] = 1
    cluster.logs[TopicPartition("errors", 0)] = (0, 1)
    with pytest.raises(RefusedTopologyError, match="topic errors: the aborted warm start"):
        again(cluster, before, chooses=True)
