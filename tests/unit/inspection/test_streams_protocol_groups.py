"""Groups whose coordinator assigns the tasks (KIP-1071), from the bytes of a broker's answer to what is shown."""

from __future__ import annotations

import io
import uuid
from collections.abc import Sequence
from types import SimpleNamespace as Row
from typing import Any

import pytest
from rich.console import Console

from streams_protocol.types import TaskId
from streams_py.adapters.kafka_python.admin.streams_groups import StreamsGroupDescribeResponse, streams_group
from streams_py.cli.groups.group_tables import render, to_json
from streams_py.errors import StreamsError
from streams_py.inspection.gather import inspect_group
from streams_py.inspection.reasons import explain_group
from streams_py.inspection.view import CopyKind
from streams_py.ports.described_groups import DescribedGroup, DescribedStreamsGroup
from tests.support.inspection.groups import FakeCluster


def topic(name: str, partitions: int = 0) -> Row:
    return Row(name=name, partitions=partitions, replication_factor=0, topic_configs=[])


def subtopology(name: str, sources: list[str], *, state: Sequence[Row] = (), reads: Sequence[Row] = ()) -> Row:
    return Row(
        subtopology_id=name,
        source_topics=sources,
        repartition_sink_topics=[],
        state_changelog_topics=list(state),
        repartition_source_topics=list(reads),
    )


SUBS = [
    subtopology("0", ["in"]),
    subtopology("1", [], state=[topic("app-c-changelog")], reads=[topic("app-c-repartition", 2)]),
]


def tasks(**subs: list[int]) -> list[Row]:
    """s0=[1, 2]: tasks 0_1 and 0_2."""
    return [Row(subtopology_id=name[1:], partitions=partitions) for name, partitions in subs.items()]


def offset(task: TaskId, at: int) -> Row:
    return Row(subtopology_id=str(task.subtopology), partition=task.partition, offset=at)


def member(number: int, active: list[Row], target: list[Row], **more: Any) -> Row:
    return Row(
        member_id=f"m{number}",
        member_epoch=7,
        instance_id=None,
        rack_id=None,
        client_id=f"client-{number}",
        client_host="/10.0.0.1",
        topology_epoch=0,
        process_id=more.get("process", str(uuid.UUID(int=number + 1))),
        user_endpoint=more.get("endpoint"),
        client_tags=more.get("tags", []),
        task_offsets=more.get("offsets", []),
        task_end_offsets=more.get("ends", []),
        assignment=Row(active_tasks=active, standby_tasks=more.get("standby", []), warmup_tasks=[]),
        target_assignment=Row(active_tasks=target, standby_tasks=[], warmup_tasks=[]),
        is_classic=False,
    )


def answer(*members: Row, subs: list[Row] = SUBS) -> DescribedStreamsGroup:
    """A broker's answer, encoded and decoded again."""
    group = Row(
        error_code=0,
        error_message=None,
        group_id="app",
        group_state="Reconciling",
        group_epoch=7,
        assignment_epoch=7,
        topology=Row(epoch=0, subtopologies=subs),
        members=list(members),
        authorized_operations=-(2**31),
    )
    response = StreamsGroupDescribeResponse
    data = response(throttle_time_ms=0, groups=[group]).encode(version=0)
    (found,) = response.decode(data, version=0).groups
    return streams_group(found)


class Cluster(FakeCluster):
    """A coordinator that has the group."""

    def __init__(self, found: DescribedStreamsGroup | None) -> None:
        super().__init__({"in": 2, "app-c-repartition": 2, "app-c-changelog": 2}, {"in": 9, "app-c-repartition": 5})
        self.found = found

    def describe_group(self, group: str) -> DescribedGroup:
        raise StreamsError(f"group {group} does not exist")

    def describe_streams_group(self, group: str) -> DescribedStreamsGroup | None:
        return self.found


MOVING = (
    member(0, tasks(s0=[0, 1], s1=[0]), tasks(s0=[0], s1=[0]), tags=[Row(key="zone", value="a")]),
    member(
        1,
        tasks(s1=[1]),
        tasks(s0=[1], s1=[1]),
        standby=tasks(s1=[0]),
        endpoint=Row(host="10.0.0.2", port=8080),
        offsets=[offset(TaskId(1, 0), 40)],
        ends=[offset(TaskId(1, 0), 100)],
    ),
)


def test_tasks_copies_and_what_is_on_its_way_are_shown() -> None:
    cluster = Cluster(answer(*MOVING))
    view = inspect_group(cluster, "app")
    found = {str(task.id): (task.owner, task.heading_to, task.is_stateful, task.input_lag) for task in view.tasks}
    assert found == {
        "0_0": ("m0", None, False, 0),
        "0_1": ("m0", "m1", False, 0),
        "1_0": ("m0", None, True, 0),
        "1_1": ("m1", None, True, 0),
    }
    (copy,) = (copy for task in view.tasks for copy in task.copies)
    assert (copy.member_id, copy.kind, copy.reported, copy.lag) == ("m1", CopyKind.STANDBY, 40, 60)
    assert (view.generation, view.problems) == (7, ())
    first, second = view.members
    assert (first.process, first.host) == (str(uuid.UUID(int=1)), "10.0.0.1")
    assert first.subscription is not None
    assert second.subscription is not None
    assert (first.subscription.client_tags, second.subscription.endpoint) == ({"zone": "a"}, "10.0.0.2:8080")


def test_the_picture_says_who_decides_and_what_moves() -> None:
    view = inspect_group(Cluster(answer(*MOVING)), "app")
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render(view, all_tasks=True))
    text = console.export_text()
    assert "app: Reconciling, generation 7, leader none: the coordinator assigns (KIP-1071)" in text
    assert "0_1: moving from A1 to B1" in text
    assert " streams " in text, "in the place of the version"
    data = to_json(view)
    assert data["protocol"] == "streams"
    assert {task["heading_to"] for task in data["tasks"]} == {None, "m1"}
    assert {member["version"] for member in data["members"]} == {None}


def test_what_cannot_be_named_is_a_problem_and_no_error() -> None:
    odd = [*SUBS, subtopology("counts", ["in"]), subtopology("9", ["gone"])]
    only = member(0, tasks(s0=[0], scounts=[0]), [], process="who?")
    view = inspect_group(Cluster(answer(only, subs=odd)), "app")
    assert {task.owner for task in view.tasks if task.id == TaskId(0, 0)} == {"m0"}
    assert list(view.problems) == [
        "client-0: its process id 'who?' is not valid",
        "source topic gone does not exist, or this user may not see it",
        "sub-topology 'counts' has an id that is not a number, so its tasks are missing here",
    ]


def test_reasons_of_such_a_group_are_refused_in_a_sentence() -> None:
    with pytest.raises(StreamsError, match=r"uses the streams protocol \(KIP-1071\)"):
        explain_group(Cluster(answer(*MOVING)), "app")


def test_a_group_of_neither_protocol_is_said_not_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(None)
    with pytest.raises(StreamsError, match="group app does not exist"):
        inspect_group(cluster, "app")
    monkeypatch.setattr(cluster, "list_groups", lambda: {"app": "Consumer", "other": "Streams"})
    with pytest.raises(StreamsError, match="app is not a Kafka Streams group, but a group of type consumer"):
        inspect_group(cluster, "app")
