"""A group made of bytes, as a coordinator would keep it."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.live import Live

from streams_protocol import (
    LATEST_OFFSET,
    Assignment,
    AssignmentInfo,
    Subscription,
    SubscriptionInfo,
    encode_assignment,
    encode_assignment_info,
    encode_subscription,
    encode_subscription_info,
)
from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.cli.groups import inspecting
from streams_py.cli.groups.group_tables import render, short_tasks, to_json
from streams_py.cli.groups.inspecting import inspect_command
from streams_py.inspection.changelogs import changelogs_of
from streams_py.inspection.election import Election, decode_election, offsets_partition
from streams_py.inspection.gather import inspect_group
from streams_py.inspection.labels import last_rebalance
from streams_py.inspection.lags import with_copy_lags, with_input_lags
from streams_py.inspection.members import decode_member
from streams_py.inspection.view import CopyKind, GroupView, view_group
from streams_py.ports.described_groups import DescribedMember
from tests.support.inspection.groups import GROUP, FakeCluster, rebalanced, said, topics

PROCESSES = [ProcessId(uuid.UUID(int=number)) for number in range(1, 200)]


def member(
    number: int,
    *,
    active: tuple[int, ...] = (),
    standby: tuple[int, ...] = (),
    owned: tuple[int, ...] = (),
    sums: dict[int, int] | None = None,
    next_rebalance_ms: int = 2**63 - 1,
) -> DescribedMember:
    """Member m<number> with tasks 0_n that read in-n."""
    info = SubscriptionInfo(PROCESSES[number], task_offset_sums={TaskId(0, n): s for n, s in (sums or {}).items()})
    given = AssignmentInfo(
        active_tasks=tuple(TaskId(0, n) for n in active),
        standby_tasks={TaskId(0, n): frozenset({TopicPartition("in", n)}) for n in standby},
        next_rebalance_ms=next_rebalance_ms,
    )
    subscription = Subscription(
        ("in",), encode_subscription_info(info), tuple(TopicPartition("in", n) for n in owned), generation_id=6
    )
    assignment = Assignment(tuple(TopicPartition("in", n) for n in active), encode_assignment_info(given))
    return DescribedMember(
        f"m{number}",
        None,
        f"client-{number:03}",
        "10.0.0.1",
        encode_subscription(subscription),
        encode_assignment(assignment),
    )


def view(*members: DescribedMember, partitions: int = 3) -> GroupView:
    return view_group("app", "Stable", [decode_member(each) for each in members], {"in": partitions}, None)


def test_a_partition_between_two_owners_is_a_task_that_is_withheld() -> None:
    seen = view(member(0, active=(0,), owned=(0, 1)), member(1, active=(2,), next_rebalance_ms=0))
    tasks = {str(task.id): task for task in seen.tasks}
    assert {name: task.owner for name, task in tasks.items()} == {"0_0": "m0", "0_1": None, "0_2": "m1"}
    assert tasks["0_1"].coming_from == "m0"
    assert seen.generation == 7, "one more than the newest that a member knew"
    assert [(follow_up.member_id, follow_up.at_ms) for follow_up in seen.follow_ups] == [("m1", 0)]
    assert "0_1: withheld until A1 has revoked it" in _text(seen)


def test_a_task_that_nobody_has_or_had_is_said_to_be_lost() -> None:
    seen = view(member(0, active=(0, 1)))
    assert [str(task.id) for task in seen.tasks if task.owner is None] == ["0_2"]
    assert "0_2: no member runs it" in _text(seen)


def test_copies_beyond_the_standbys_are_warm_ups_while_a_follow_up_is_planned() -> None:
    running = dict.fromkeys((0, 1), LATEST_OFFSET)
    group = [
        member(0, active=(0, 1), sums=running, next_rebalance_ms=1_800_000_000_000),
        member(1, standby=(0, 1), sums={0: 90, 1: 80}),
        member(2, standby=(0,), sums={0: 10}),
    ]
    copies = {(str(t.id), c.member_id): c.kind for t in view(*group, partitions=2).tasks for c in t.copies}
    assert copies == {("0_0", "m1"): CopyKind.STANDBY, ("0_1", "m1"): CopyKind.STANDBY, ("0_0", "m2"): CopyKind.WARM_UP}


def test_lags_are_given_where_the_changelogs_are_certain() -> None:
    seen = view(
        member(0, active=(0, 1), sums=dict.fromkeys((0, 1), LATEST_OFFSET)),
        member(1, standby=(0, 1), sums={0: 90}),
        member(2, standby=(0,), sums={0: 130}),
        partitions=2,
    )
    counts = {"in": 2, "app-counts-changelog": 2, "app-other-changelog": 5, "stranger-x-changelog": 2}
    changelogs = changelogs_of(seen, counts).certain
    assert changelogs == {("", 0): ("app-counts-changelog",)}
    ends = {TopicPartition("app-counts-changelog", n): 100 for n in range(2)}
    ends |= {TopicPartition("in", n): 1000 for n in range(2)}
    committed = {TopicPartition("in", 0): 990, TopicPartition("in", 1): None}
    seen = with_input_lags(seen, committed, {TopicPartition("in", 1): 400}, ends)
    seen = with_copy_lags(seen, changelogs, ends)
    assert [task.input_lag for task in seen.tasks] == [10, 600]
    lags = {(str(task.id), copy.member_id): copy.lag for task in seen.tasks for copy in task.copies}
    assert lags == {("0_0", "m1"): 10, ("0_0", "m2"): 100, ("0_1", "m1"): 100}, "m2 is beyond the end: the whole of it"
    screen = io.StringIO()
    Console(file=screen, width=300).print(render(seen, all_tasks=True))
    assert "B1 (<= 10)" in screen.getvalue()
    assert "upper bounds: current end offsets minus the offsets reported at the last rebalance" in screen.getvalue()


def test_damaged_members_are_shown_with_what_is_wrong() -> None:
    good = member(0, active=(0, 1, 2))
    for bad in (
        good._replace(member_id="bad", subscription=b"\x00"),
        good._replace(member_id="bad", subscription=b"", assignment=b"\xff" * 40),
        good._replace(member_id="bad", assignment=good.assignment[:-9]),
    ):
        seen = view(good, bad._replace(client_id="strange"))
        assert seen.problems
        assert all("strange" in problem for problem in seen.problems)
        assert seen.tasks[0].owner in ("m0", "bad")
        assert "strange" in _text(seen)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_no_bytes_are_an_error(subscription: bytes, assignment: bytes) -> None:
    decoded = decode_member(DescribedMember("m", None, "c", "h", subscription, assignment))
    to_json(view_group("app", "Stable", [decoded], {}, None))


def test_a_large_group_is_folded_and_shown_in_full() -> None:
    group = [
        member(number, active=tuple(range(number, 5000, 100)), standby=tuple(range((number + 1) % 100, 5000, 100)))
        for number in range(100)
    ]
    seen = view(*group, partitions=5000)
    assert len(seen.tasks) == 5000
    assert all(task.owner and len(task.copies) == 1 for task in seen.tasks)
    assert "100 members in 100 processes, 5,000 tasks" in _text(seen)


def _text(seen: GroupView) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render(seen, all_tasks=True))
    return console.export_text()


# -- who leads -----------------------------------------------------------------------------------------------


def _record(group: str, generation: int, leader: str | None, version: int = 3) -> tuple[bytes, bytes]:
    def text(value: str | None) -> bytes:
        return b"\xff\xff" if value is None else struct.pack(">h", len(value)) + value.encode()

    key = struct.pack(">h", 2) + text(group)
    value = (
        struct.pack(">h", version) + text("consumer") + struct.pack(">i", generation) + text("stream") + text(leader)
    )
    return key, value + struct.pack(">qi", 1234, 0)


def test_the_coordinators_record_names_leader_and_generation() -> None:
    found = decode_election(*_record("app", 7, "m1"), "app")
    assert found is not None
    assert (found.generation, found.leader, found.ended_ms) == (7, "m1", 1234)


@pytest.mark.parametrize(
    "record",
    [
        _record("other", 7, "m1"),
        _record("app", 7, "m1", version=4),
        (b"\x00\x01\x00\x03app", _record("app", 7, "m1")[1]),
        (_record("app", 7, "m1")[0], None),
        (None, b""),
        (_record("app", 7, "m1")[0], b"\x00\x03\x00"),
    ],
)
def test_other_records_of_the_offsets_topic_name_nobody(record: tuple[bytes | None, bytes | None]) -> None:
    assert decode_election(*record, "app") is None


@pytest.mark.parametrize("group", ["count", "polygenelubricants", "word-count", "count-15735-0"])
def test_a_groups_records_lie_where_its_coordinator_puts_them(group: str) -> None:  # the second: abs has no answer
    h = 0
    for char in group:
        h = (31 * h + ord(char)) & 0xFFFFFFFF
    signed = h - 2**32 if h >= 2**31 else h
    assert offsets_partition(group, 50) == (0 if signed == -(2**31) else abs(signed) % 50)


def test_runs_of_tasks_are_short() -> None:
    tasks = [TaskId(0, 0), TaskId(0, 1), TaskId(0, 2), TaskId(0, 5), TaskId(1, 2), TaskId(1, 3)]
    assert short_tasks(tasks) == "0_0-2 0_5 1_2-3"


def test_what_members_call_themselves_gives_a_terminal_no_orders() -> None:
    cluster = FakeCluster(topics(1), {"in": 0, "app-counts-changelog": 0})
    evil = "[red]<script>\x1b[2J\x1b]0;title\x07\u202e"
    tags = {f"zone{evil}": f"a{evil}"}
    rebalanced(cluster, {"m0": said(0, owned=[TaskId(0, 0), TaskId(1, 0)], tags=tags)}, 1)
    (member,) = cluster.described.members
    named = member._replace(client_id=f"id{evil}", client_host=f"host{evil}")
    cluster.described = cluster.described._replace(members=(named,))
    screen = io.StringIO()
    Console(file=screen, width=300).print(render(inspect_group(cluster, GROUP, election=False), all_tasks=True))
    shown = screen.getvalue()
    assert "[red]<script>\\x1b[2J\\x1b]0;title\\x07\\u202e" in shown, "as it was sent"
    assert [char for char in shown if not char.isprintable() and char != "\n"] == []


def test_leader_that_has_left_is_said_to_have_left() -> None:
    seen = replace(view(member(0, active=(0,))), election=Election(7, "gone\x1b-1", 1234))
    assert "generation 7, leader a member that has left (gone\\x1b-1)" in _text(seen)


def test_what_has_to_be_known_is_seen_in_a_picture_that_the_terminal_cuts_off() -> None:
    seen = view(member(0, active=(0, 1)), member(1, active=()))
    screen = Console(width=200, height=6, record=True, file=io.StringIO(), force_terminal=True)
    with Live(render(seen, all_tasks=True, live=True), console=screen, auto_refresh=False) as live:
        live.refresh()
        shown = screen.export_text()
    assert "0_2: no member runs it" in shown
    assert _text(seen).rstrip().endswith("0_2: no member runs it")


def test_a_member_is_one_line_on_a_terminal_of_80_characters() -> None:
    group = [
        member(number, active=(number,))._replace(
            client_id=f"app-8f5dfa5e-8bd4-408b-99ac-9b303e44c68{number}-StreamThread-{number}-consumer",
            client_host="192.168.100.100",
        )
        for number in range(2)
    ]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(view(*group), all_tasks=True))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["A1", "8f5dfa5e…", "StreamThread-0", "192.168.100.100", "11", "0_0"] in lines
    assert ["B1", "8f5dfa5e…", "StreamThread-1", "192.168.100.100", "11", "0_1"] in lines


def test_groups_there_are_can_be_had_as_data(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster({}, {}, groups=["b", "a"])
    monkeypatch.setattr(inspecting, "connected", lambda *_: contextlib.nullcontext(cluster))
    assert inspect_command(None, None, None, as_json=True, watch_s=None, all_tasks=False) == 0
    listed = [{"group": "a", "type": "classic"}, {"group": "b", "type": "classic"}]
    assert json.loads(capsys.readouterr().out) == listed


@pytest.mark.parametrize(
    ("ended_ms", "text"),
    [
        (None, "the last rebalance"),
        (20_000_000, "the last rebalance (0 s ago)"),
        (19_941_000, "the last rebalance (59 s ago)"),
        (19_940_000, "the last rebalance (1 min ago)"),
        (9_200_000, "the last rebalance (3 h ago)"),
        (20_000_000 - 3 * 86_400_000, "the last rebalance (3 d ago)"),
        (20_000_001, "the last rebalance (0 s ago)"),
    ],
)
def test_age_of_reported_offsets_is_that_of_the_last_rebalance(ended_ms: int | None, text: str) -> None:
    view = view_group("app", "Stable", [], {}, Election(3, None, ended_ms))
    assert last_rebalance(view, 20_000_000) == text
    assert last_rebalance(replace(view, election=None), 20_000_000) == "the last rebalance"
