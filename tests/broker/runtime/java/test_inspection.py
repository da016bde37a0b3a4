"""``streams-py inspect`` of a group with a Java and a Python member shows their actual work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from streams_py.backtest.candidates import parse_candidate
from streams_py.backtest.kernel import Orders
from streams_py.cli.groups.deciding_live import decide_live
from streams_py.cli.groups.explaining_live import explain_live
from streams_py.cli.groups.inspecting import inspect_command
from tests.support.broker.kit import Application, text, true_counts


def test_a_group_of_java_and_python_is_shown_as_its_members_see_it(
    application: Callable[..., Application], java: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    app = application(num_standby_replicas=1)

    def seen() -> dict[str, Any]:
        capsys.readouterr()
        status = inspect_command(app.id, app.broker.bootstrap, None, as_json=True, watch_s=None, all_tasks=False)
        shown = capsys.readouterr()
        assert status == 0, shown.err
        found: dict[str, Any] = json.loads(shown.out)
        return found

    first = app.start("java", command=java)
    app.await_shared(first)
    python = app.start("python")
    lines = text(2_000)
    app.feed(lines)
    app.await_shared(first, python)
    app.await_caught_up()
    assert app.counts() == true_counts(lines)
    app.until(lambda: first.standby and python.standby, "standbys on both")
    app.until(lambda: seen()["state"] == "Stable" and not seen()["follow_ups"], "a group at rest")

    group = seen()
    (leader,) = (member for member in group["members"] if member["member_id"] == group["leader"])
    assert "python" not in leader["client_id"], "Java came first"
    assert group["generation_is_exact"]
    assert not group["problems"]
    held: dict[str, set[str]] = {}
    copies: dict[str, set[str]] = {}
    for task in group["tasks"]:
        held.setdefault(task["active"], set()).add(task["task"])
        for copy in task["copies"]:
            assert copy["kind"] == "standby"
            copies.setdefault(copy["member"], set()).add(task["task"])
    app.until(
        lambda: sorted(map(sorted, held.values())) == sorted(map(sorted, (first.running, python.running))),
        "both to say of themselves what the group says of them",
    )
    assert sorted(map(sorted, copies.values())) == sorted(map(sorted, (first.standby, python.standby)))
    assert {task["input_lag"] for task in group["tasks"]} == {0}
    assert {task["task"] for task in group["tasks"] if task["stateful"]} == {f"1_{n}" for n in range(app.partitions)}
    assert all(copy["lag"] is not None for task in group["tasks"] for copy in task["copies"]), "one changelog fits"

    shown = inspect_command(app.id, app.broker.bootstrap, None, as_json=False, watch_s=None, all_tasks=True)
    assert shown == 0
    picture = capsys.readouterr().out
    assert "2 members in 2 processes, 8 tasks" in " ".join(picture.split())

    began = time.monotonic()
    status = explain_live(None, app.id, app.broker.bootstrap, None, settings=None, assignor=None, as_json=True)
    explained = json.loads(capsys.readouterr().out)
    assert status == 0
    assert time.monotonic() - began < 30, "no request waited for its timeout"
    assert (explained["configs"], explained["generation"]) == ({"num.standby.replicas": 1}, group["generation"])
    assert len(explained["tasks"]) == 2 * app.partitions
    assert all(task["outlook"] == "stays" and task["is_as_decided"] for task in explained["tasks"]), explained
    assert {len(task["decided"]["standbys"]) for task in explained["tasks"] if task["task"].startswith("1_")} == {1}
    assert decided_again(app, capsys) == {"recorded": 0, "high_availability": 0}
    assert seen()["generation"] == group["generation"], "no member joined"

    python.kill()
    app.until(lambda: len(seen()["members"]) == 1, "the killed member to be gone")
    app.until(lambda: {task["active"] for task in seen()["tasks"]} == {leader["member_id"]}, "Java to have everything")


def decided_again(app: Application, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    """Return how many tasks each candidate of ``streams-py backtest --live`` would move."""
    orders = Orders([parse_candidate("recorded"), parse_candidate("builtin:high_availability")])
    began = time.monotonic()
    status = decide_live(app.id, app.broker.bootstrap, None, assumed=None, orders=orders, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert status == 0
    assert time.monotonic() - began < 30, "no request waited for its timeout"
    assert (told["group"], told["configs"]["num.standby.replicas"]) == (app.id, 1)
    return {of["candidate"]: of["figures"]["moved_active"] for of in told["outcomes"]}


def test_what_is_no_group_of_kafka_streams_is_said_in_one_sentence(
    application: Callable[..., Application], capsys: pytest.CaptureFixture[str]
) -> None:
    app = application()
    status = inspect_command("no-such-group", app.broker.bootstrap, None, as_json=False, watch_s=None, all_tasks=False)
    assert status == 2
    assert "group no-such-group does not exist" in capsys.readouterr().err
