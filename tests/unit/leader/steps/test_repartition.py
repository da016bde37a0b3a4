"""Partition counts of repartition topics, and co-partition groups."""

from __future__ import annotations

import inspect

import pytest

from streams_py import StreamsBuilder
from streams_py.errors import IllegalStateError, TaskAssignmentError, TopologyError
from streams_py.leader.steps.repartition import missing_source_topics, repartition_counts
from streams_py.serdes import STRING
from streams_py.topology.physical.metadata import TopologyMetadata
from tests.support.leader.kit import sub


def topology(*subs: object, groups: tuple[str, ...] = ()) -> TopologyMetadata:
    return TopologyMetadata(dict(enumerate(subs)), tuple(frozenset(g.split()) for g in groups))  # type: ignore[arg-type]


def test_count_is_the_largest_of_all_upstream_topics() -> None:
    graph = topology(sub("x y", sinks="r"), sub("z", sinks="r"), sub("r", repartitions={"r": None}))
    assert repartition_counts(graph, {"x": 2, "y": 5, "z": 3}) == {"r": 5}


def test_count_spreads_through_a_chain_in_any_order_of_numbers() -> None:
    graph = topology(
        sub("r2", repartitions={"r2": None}), sub("r1", sinks="r2", repartitions={"r1": None}), sub("x", sinks="r1")
    )
    assert repartition_counts(graph, {"x": 7}) == {"r1": 7, "r2": 7}


def test_given_count_is_kept_and_spreads() -> None:
    graph = topology(
        sub("x", sinks="r1"), sub("r1", sinks="r2", repartitions={"r1": 3}), sub("r2", repartitions={"r2": None})
    )
    assert repartition_counts(graph, {"x": 7}) == {"r1": 3, "r2": 3}


def test_task_assignment_error_when_an_upstream_topic_has_no_count() -> None:
    with pytest.raises(TaskAssignmentError, match="source topic x"):
        repartition_counts(topology(sub("x", sinks="r"), sub("r", repartitions={"r": None})), {})


def test_task_assignment_error_when_topics_wait_for_each_other() -> None:
    graph = topology(sub("r1", sinks="r2", repartitions={"r1": None}), sub("r2", sinks="r1", repartitions={"r2": None}))
    with pytest.raises(TaskAssignmentError, match="r1, r2 cannot be derived"):
        repartition_counts(graph, {})


def joined(*, count: int | None = None, groups: tuple[str, ...]) -> TopologyMetadata:
    return topology(
        sub("x", sinks="r1"),
        sub("y", sinks="r2"),
        sub("r1 r2 t", repartitions={"r1": None, "r2": count}),
        groups=groups,
    )


COUNTS = {"x": 2, "y": 5, "t": 8}


@pytest.mark.parametrize(
    ("groups", "count", "expected"),
    [
        (("r1 r2",), None, {"r1": 5, "r2": 5}),
        (("r1 t",), None, {"r1": 8, "r2": 5}),
        (("r1 r2 t",), None, {"r1": 8, "r2": 8}),
        (("r1 r2",), 3, {"r1": 3, "r2": 3}),
        (("",), None, {"r1": 2, "r2": 5}),
    ],
)
def test_group_has_one_count(groups: tuple[str, ...], count: int | None, expected: dict[str, int]) -> None:
    assert repartition_counts(joined(count=count, groups=groups), COUNTS) == expected


def test_topology_error_when_a_given_count_differs_from_a_source_topic() -> None:
    with pytest.raises(TopologyError, match=r"r2 is set to 3 partitions.*\(t\) need 8"):
        repartition_counts(joined(count=3, groups=("r2 t",)), COUNTS)


def test_topology_error_lists_topics_by_name_when_given_counts_differ() -> None:
    graph = topology(sub("x", sinks="r1 r2"), sub("r1 r2", repartitions={"r2": 3, "r1": 4}), groups=("r2 r1",))
    with pytest.raises(TopologyError, match=r"r1 \(4\), r2 \(3\)"):
        repartition_counts(graph, {"x": 1})


def test_topology_error_when_source_topics_of_a_group_differ() -> None:
    with pytest.raises(TopologyError, match=r"t \(8\), x \(2\)"):
        repartition_counts(joined(groups=("t x",)), COUNTS)


def test_illegal_state_when_a_group_names_a_topic_that_is_not_there() -> None:
    with pytest.raises(IllegalStateError, match="topic gone of the co-partition group"):
        repartition_counts(joined(groups=("gone r1",)), COUNTS)


def test_source_topics_are_compared_also_without_repartition_topics_unlike_in_kafka_streams() -> None:
    graph = topology(sub("x y"), groups=("x y",))
    with pytest.raises(TopologyError, match=r"x \(1\), y \(2\)"):
        repartition_counts(graph, {"x": 1, "y": 2})
    assert repartition_counts(graph, {"x": 1, "y": 2}, reference_behaviour=True) == {}
    assert repartition_counts(graph, {"x": 2, "y": 2}) == {}


def test_error_about_a_group_ends_with_the_lines_that_join_it() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    x, y = builder.stream("x"), builder.table("y")
    x.join(y, max)
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]  # CPython has frames
    with pytest.raises(TopologyError, match=rf"x \(1\), y \(2\).*\({__file__}:{line}\)$"):
        repartition_counts(builder.build().metadata("app"), {"x": 1, "y": 2})


def test_missing_source_topics_are_external_ones_only() -> None:
    assert missing_source_topics(joined(groups=()), {"x": 1}) == ["t", "y"]
