"""``task.assignor.class`` decides. If it fails, all members keep their tasks and receive the reason."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.broker.kit import Application, steady_producer, text, true_counts

pytestmark = pytest.mark.broker

MOODY = "tests.support.broker.assignors:Moody"


def moody(application: Callable[..., Application], folder: Path, mode: str, **settings: object) -> Application:
    """An application whose assignor does what the file ``mode`` says."""
    set_mode(folder, mode)
    return application(
        **settings, task_assignor_class=MOODY, app_mode_file=str(folder / "mode"), max_poll_interval_ms=8000
    )


def set_mode(folder: Path, mode: str) -> None:
    (folder / "mode").write_text(mode)


def test_custom_assignor_is_seen_to_decide(application: Callable[..., Application], tmp_path: Path) -> None:
    app = moody(application, tmp_path, "split")
    lines = text(20_000)
    a, b = app.start("a"), app.start("b")
    app.await_shared(a, b)
    zero = {f"0_{number}" for number in range(app.partitions)}
    one = {f"1_{number}" for number in range(app.partitions)}
    app.until(lambda: {frozenset(a.running), frozenset(b.running)} == {frozenset(zero), frozenset(one)}, "the split")
    app.feed(lines)
    app.await_caught_up()
    assert app.counts() == true_counts(lines)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("raise", "moody today"),
        ("never", "waited"),
        pytest.param("refuse", "refused on purpose", marks=pytest.mark.weekly),
        pytest.param("nonsense", "TaskAssignment", marks=pytest.mark.weekly),
        pytest.param("twice", "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES", marks=pytest.mark.weekly),
    ],
)
def test_running_tasks_keep_running_and_the_error_names_the_assignor_when_it_fails(
    application: Callable[..., Application], tmp_path: Path, mode: str, message: str
) -> None:
    app = moody(application, tmp_path, "split", app="trace")
    a = app.start("a")
    app.await_shared(a)
    with steady_producer(app, spacing_s=0.05):
        set_mode(tmp_path, mode)
        b = app.start("b")
        joining = time.time()
        app.until(lambda: MOODY in " ".join(a.ask("errors")), "the error to be known")
        app.until(lambda: b.state == "RUNNING", "b to be a member without tasks")
        settled = time.time()
        app.until(lambda: any(trace[0] > settled + 0.5 for trace in app.traces()), "records to flow")
    assert b.running == set()
    (error,) = set(a.ask("errors"))
    assert message in error
    assert error in a.log_text
    times = [trace[0] for trace in app.traces() if trace[0] > joining and trace[4] == 0]
    assert max(late - early for early, late in itertools.pairwise(times)) < 1.0
    assert a.state == "RUNNING"
    set_mode(tmp_path, "split")
    c = app.start("c")
    app.until(lambda: sum(map(len, (a.running, b.running, c.running))) == app.partitions, "all tasks to run")
    app.await_caught_up()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no.such.module:Assignor", "no.such.module:Assignor"),
        pytest.param("tests.support.broker.assignors:NoAssignor", "assignors:NoAssignor", marks=pytest.mark.weekly),
        pytest.param("tests.support.broker.assignors:Missing", "assignors:Missing", marks=pytest.mark.weekly),
    ],
)
def test_application_does_not_start_when_its_assignor_cannot_be_loaded(
    application: Callable[..., Application], value: str, message: str
) -> None:
    app = application(task_assignor_class=value)
    a = app.start("a")
    assert a.wait_end() == 1
    assert message in a.log_text
    assert "task.assignor.class" in a.log_text
