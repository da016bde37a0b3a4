"""The leader's step in bytes: eager and cooperative, different config offsets, modes and lists."""

from __future__ import annotations

import logging

import pytest

from streams_protocol.connect import TaskId, WorkerState, decode_assignment, encode_worker_state
from streams_protocol.errors import SchemaError
from streams_py.connect.assignment.jobs import Jobs
from streams_py.connect.assignment.leader import ConfigSnapshot, GroupLeader, LeaderView
from streams_py.connect.assignment.lists import parse_static_connectors, parse_static_tasks
from streams_py.connect.assignment.modes import Mode
from streams_py.errors import ConfigError
from tests.support.connect.trace import D, expected, jobs, shown

CS1 = ConfigSnapshot(4, {"connector1": 1})
CS2 = ConfigSnapshot(9, {"connector1": 2, "connector2": 1})
CS3 = ConfigSnapshot(12, {"connector1": 1, "connector2": 1, "connector3": 1})
CS4 = ConfigSnapshot(10, {"connector1": 4, "connector2": 4})


def state(name: str, offset: int, mode: Mode, **fields: object) -> bytes:
    return encode_worker_state(WorkerState(f"http://{name}:8083/", offset, **fields), mode.version)  # type: ignore[arg-type]


def lead(
    mode: Mode,
    snapshot: ConfigSnapshot,
    offsets: dict[str, int],
    newest: ConfigSnapshot | None = None,
    **fields: object,
) -> tuple[dict[str, object], LeaderView | None]:
    metadata = {name: state(name, offset, mode, **fields) for name, offset in offsets.items()}
    leader = GroupLeader(D, lambda: 1)
    answers, led = leader.lead(
        min(offsets), mode, metadata, snapshot, lambda: newest or snapshot, last_completed_generation=-1, generation=1
    )
    return {name: decode_assignment(data) for name, data in answers.items()}, led


def given(answers: dict[str, object]) -> dict[str, str]:
    return shown({name: Jobs.of(a.connectors, a.tasks) for name, a in answers.items()})  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("snapshot", "leader", "member"),
    [
        (CS1, "connector1", "connector1-0"),
        (CS2, "connector1 connector1-0 connector2-0", "connector2 connector1-1"),
        (CS3, "connector1 connector3 connector2-0", "connector2 connector1-0 connector3-0"),
    ],
)
def test_eager_assignor_deals_connectors_then_tasks_in_turn(snapshot: ConfigSnapshot, leader: str, member: str) -> None:
    offsets = {"leader": snapshot.offset, "member": snapshot.offset}
    answers, led = lead(Mode.EAGER, snapshot, offsets)
    assert given(answers) == expected(leader=leader, member=member)
    assert led is not None
    assert led.owner_url("connector1") == "http://leader:8083/"
    assert led.owner_url(TaskId("connector1", 9)) is None


@pytest.mark.parametrize("mode", [Mode.COMPATIBLE, Mode.SESSIONED, Mode.STATIC])
def test_cooperative_assignor_answers_in_the_version_of_the_group(mode: Mode) -> None:
    answers, led = lead(mode, CS4, {"worker1": 10, "worker2": 10})
    assert {a.version for a in answers.values()} == {mode.version}  # type: ignore[attr-defined]
    assert (
        given(answers)["worker1"] == expected(x="connector1 connector1-0 connector1-2 connector2-0 connector2-2")["x"]
    )
    assert led is not None
    assert led.urls == {"worker1": "http://worker1:8083/", "worker2": "http://worker2:8083/"}


@pytest.mark.parametrize(("newest", "offset", "failed"), [(10, 12, True), (12, 12, False), (13, 13, False)])
def test_nothing_is_assigned_until_the_leader_has_read_as_far_as_its_group(
    newest: int, offset: int, failed: bool
) -> None:
    answers, led = lead(Mode.STATIC, CS4, {"a": 10, "b": 12}, ConfigSnapshot(newest, CS4.task_counts))
    assert {(a.failed, a.config_offset, a.delay_ms) for a in answers.values()} == {(failed, offset, 0)}  # type: ignore[attr-defined]
    assert bool(given(answers)) is not failed
    assert (led is None) is failed


def test_connectors_whose_tasks_are_being_rewritten_have_none_for_now() -> None:
    snapshot = ConfigSnapshot(4, {"connector1": 2, "connector2": 1}, frozenset({"connector1"}))
    assert snapshot.jobs == jobs("connector1 connector2 connector2-0")


def test_garbage_of_a_member_is_refused() -> None:
    with pytest.raises(SchemaError):
        GroupLeader(D, lambda: 1).lead(
            "a", Mode.STATIC, {"a": b"\x00"}, CS1, lambda: CS1, last_completed_generation=-1, generation=1
        )


def test_jobs_that_run_nowhere_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _, led = lead(Mode.STATIC, CS1, {"a": 4}, static_connectors=frozenset())
    assert led is not None
    assert led.unassignable == jobs("connector1 connector1-0")
    assert "2 jobs run on no worker" in caplog.text
    assert "connector1, connector1-0" in caplog.text


# -- modes and lists -------------------------------------------------------------------------------------------------


def test_a_worker_advertises_everything_that_it_understands() -> None:
    assert [[mode.value for mode in own.advertised] for own in Mode] == [
        ["default"],
        ["compatible", "default"],
        ["sessioned", "compatible", "default"],
        ["static", "sessioned", "compatible", "default"],
    ]
    assert [mode.signs_requests for mode in Mode] == [False, False, True, True]


def test_modes_are_read_in_any_case_and_refused_by_name() -> None:
    assert (Mode.of_setting("STATIC"), Mode.of_setting(" Sessioned")) == (Mode.STATIC, Mode.SESSIONED)
    assert Mode.of_wire("Default") is Mode.EAGER
    with pytest.raises(ConfigError, match=r"connect\.protocol: 'foo' .* eager, compatible, sessioned, static"):
        Mode.of_setting("foo")
    with pytest.raises(ValueError, match="range"):
        Mode.of_wire("range")


def test_lists_are_read_from_text_and_from_lists(caplog: pytest.LogCaptureFixture) -> None:
    assert parse_static_connectors(None) is None
    assert parse_static_connectors("") == frozenset()
    assert parse_static_connectors(["with, comma", "b"]) == {"with, comma", "b"}
    assert parse_static_tasks("a-1-0") == {TaskId("a-1", 0)}
    assert parse_static_tasks("x--1") == {TaskId("x-", 1)}
    assert parse_static_tasks("") == frozenset()
    assert not caplog.text
    assert parse_static_tasks(" b-2 , b-2") == {TaskId("b", 2)}
    assert "static.tasks lists b-2 more than once" in caplog.text


@pytest.mark.parametrize("text", ["x", "x-", "-1", "x-01", "x-+1", "x-1.0", "x-99999999999"])
def test_text_that_is_no_task_is_refused_with_its_key(text: str) -> None:
    with pytest.raises(ConfigError, match=r"static\.tasks: .* is not a task"):
        parse_static_tasks(text)
