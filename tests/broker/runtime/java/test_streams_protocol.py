"""A Java application with ``group.protocol=streams`` (KIP-1071): what ``inspect`` and ``explain`` say of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from streams_py.cli.connecting import connected
from streams_py.cli.groups.explaining_live import explain_live
from streams_py.cli.groups.inspecting import inspect_command
from streams_py.cli.groups.reset_plan import Target
from streams_py.cli.groups.resetting import reset_application
from tests.support.broker.kit import Application, text


def test_a_group_of_the_streams_protocol_is_shown_as_its_member_sees_it(
    application: Callable[..., Application], java: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    app = application()
    for key in ("session.timeout.ms", "heartbeat.interval.ms"):  # there they are the coordinator's
        del app.config[key]
    first = app.start("java", config={"group.protocol": "streams"}, command=java)
    app.await_shared(first)
    app.feed(text(500))
    app.await_caught_up()

    def seen() -> dict[str, Any]:
        capsys.readouterr()
        status = inspect_command(app.id, app.broker.bootstrap, None, as_json=True, watch_s=None, all_tasks=False)
        shown = capsys.readouterr()
        assert status == 0, shown.err
        found: dict[str, Any] = json.loads(shown.out)
        return found

    group = seen()
    assert (group["protocol"], group["state"], group["leader"], group["problems"]) == ("streams", "Stable", None, [])
    assert {task["task"] for task in group["tasks"] if task["active"]} == first.running == app.all_tasks()
    assert {task["task"] for task in group["tasks"] if task["stateful"]} == {f"1_{n}" for n in range(app.partitions)}
    assert {task["input_lag"] for task in group["tasks"]} == {0}
    assert {(member["version"], member["process_id"] is not None) for member in group["members"]} == {(None, True)}

    second = app.start("java-2", config={"group.protocol": "streams"}, command=java)
    app.await_shared(first, second)
    app.until(lambda: len({task["active"] for task in seen()["tasks"]}) == 2, "both members with tasks")
    held: dict[str, set[str]] = {}
    for task in seen()["tasks"]:
        held.setdefault(task["active"], set()).add(task["task"])
    assert sorted(map(sorted, held.values())) == sorted(map(sorted, (first.running, second.running)))

    assert inspect_command(app.id, app.broker.bootstrap, None, as_json=False, watch_s=None, all_tasks=True) == 0
    picture = " ".join(capsys.readouterr().out.split())
    assert "leader none: the coordinator assigns (KIP-1071); 2 members in 2 processes, 8 tasks" in picture

    status = explain_live(None, app.id, app.broker.bootstrap, None, settings=None, assignor=None, as_json=False)
    assert status == 2
    assert "uses the streams protocol (KIP-1071)" in capsys.readouterr().err
    with connected(app.broker.bootstrap, None, "test") as cluster:
        assert cluster.groups.describe_streams_group("no-such-group") is None
        assert cluster.groups.list_groups()[app.id].lower() == "streams"

    again: dict[str, Any] = {"inputs": (), "target": Target(), "state_dir": None, "dry_run": False, "force": True}
    assert reset_application(app.id, app.broker.bootstrap, None, confirmed=lambda: True, **again) == 2
    assert "stop the application first: --force cannot remove members of the streams" in capsys.readouterr().err
    assert first.close() == second.close() == 0
    app.until(lambda: not seen()["members"], "both to be gone")
    assert reset_application(app.id, app.broker.bootstrap, None, confirmed=lambda: True, **again) == 0
    assert "delete topic" in capsys.readouterr().out
