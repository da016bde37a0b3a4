"""User code on a separate thread: every step of an assignor may raise any error, and may never return."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from streams_py.assignment.api import (
    ApplicationState,
    AssignmentError,
    GroupAssignment,
    GroupSubscription,
    TaskAssignment,
    TaskAssignor,
)
from streams_py.errors import AssignorError, TaskAssignmentError
from streams_py.leader.effects import NotifyAssignor
from streams_py.runtime.group.classic.assignor_runner import AssignorRunner

STATE: Any = object()
NOTICE = NotifyAssignor(GroupAssignment(), GroupSubscription(), AssignmentError.NONE)
MINUTE_MS = 60_000  # never reached in a test


class Mine(TaskAssignor):
    """Does what the test sets, in the step that the test sets."""

    at: ClassVar[str] = ""
    act: ClassVar[Any] = staticmethod(lambda: None)
    calls: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self._reach("constructor")

    def configure(self, configs: Mapping[str, object]) -> None:
        self._reach("configure")

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        self._reach("assign")
        return TaskAssignment([])

    def on_assignment_computed(
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        self._reach("callback")

    def _reach(self, step: str) -> None:
        type(self).calls.append(step)
        if step == self.at:
            type(self).act()


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> type[Mine]:
    monkeypatch.setattr(Mine, "calls", [])
    return Mine


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Release all hanging calls."""
    event = threading.Event()
    yield event
    event.set()


def misbehave(monkeypatch: pytest.MonkeyPatch, step: str, act: Any) -> None:
    monkeypatch.setattr(Mine, "at", step)
    monkeypatch.setattr(Mine, "act", staticmethod(act))


def raising(error: BaseException) -> Any:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), ValueError("boo")])
@pytest.mark.parametrize("step", ["constructor", "configure", "assign"])
def test_whatever_a_step_raises_is_an_error_that_names_the_assignor_and_has_its_cause(
    mine: type[Mine], monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    misbehave(monkeypatch, step, raising(error))
    with pytest.raises(AssignorError, match=type(error).__name__) as caught:
        AssignorRunner(timeout_ms=MINUTE_MS).ask(mine, {}, STATE)
    assert f"{__name__}:Mine" in str(caught.value)
    assert step in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("step", ["constructor", "configure", "assign"])
def test_step_that_never_returns_is_named_and_no_second_one_started(
    mine: type[Mine], monkeypatch: pytest.MonkeyPatch, release: threading.Event, step: str
) -> None:
    misbehave(monkeypatch, step, release.wait)
    runner = AssignorRunner(timeout_ms=100)
    with pytest.raises(AssignorError, match=rf"did not return in time from .*{step}.* \(waited 100 ms\)"):
        runner.ask(mine, {}, STATE)
    reached = list(mine.calls)
    with pytest.raises(AssignorError, match="an earlier call has not returned yet"):
        runner.ask(mine, {}, STATE)
    assert mine.calls == reached


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sys; sys.exit(4)", "SystemExit: 4"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_import_that_raises_is_an_error_that_names_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    (tmp_path / "spoiled_assignors.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AssignorError, match=words) as caught:
        AssignorRunner(timeout_ms=MINUTE_MS).ask("spoiled_assignors:Mine", {}, STATE)
    assert "spoiled_assignors" in str(caught.value)
    assert "import" in str(caught.value)


def test_import_that_never_ends_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    (tmp_path / "endless_assignors.py").write_text("import sys\nsys.modules['endless_release'].wait()")
    monkeypatch.setitem(sys.modules, "endless_release", release)  # type: ignore[arg-type]  # only wait is asked of it
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AssignorError, match="endless_assignors:Mine did not return in time from being imported"):
        AssignorRunner(timeout_ms=100).ask("endless_assignors:Mine", {}, STATE)


def test_refusal_keeps_the_assignors_words(mine: type[Mine], monkeypatch: pytest.MonkeyPatch) -> None:
    misbehave(monkeypatch, "assign", raising(TaskAssignmentError("not today")))
    with pytest.raises(TaskAssignmentError, match=r"test_assignor_runner:Mine refused: not today"):
        AssignorRunner(timeout_ms=MINUTE_MS).ask(mine, {}, STATE)


def test_callback_that_never_returns_keeps_nobody_from_assigning(
    mine: type[Mine], monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    misbehave(monkeypatch, "callback", release.wait)
    runner = AssignorRunner(timeout_ms=MINUTE_MS, notify_timeout_ms=50)
    for words in ("waited 50 ms", "an earlier call has not returned yet"):
        assert runner.ask(mine, {}, STATE).assignment == []
        with pytest.raises(AssignorError, match=rf"from on_assignment_computed \({words}.*remains valid"):
            runner.notify(NOTICE)
    assert mine.calls.count("callback") == 1


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("boo")])
def test_whatever_a_callback_raises_is_an_error_that_names_the_assignor(
    mine: type[Mine], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    misbehave(monkeypatch, "callback", raising(error))
    runner = AssignorRunner(timeout_ms=MINUTE_MS)
    runner.ask(mine, {}, STATE)
    with pytest.raises(AssignorError, match=f"on_assignment_computed .*{type(error).__name__}"):
        runner.notify(NOTICE)


def test_nobody_is_told_when_the_assignor_could_not_be_made(mine: type[Mine], monkeypatch: pytest.MonkeyPatch) -> None:
    runner = AssignorRunner(timeout_ms=MINUTE_MS)
    runner.ask(mine, {}, STATE)
    misbehave(monkeypatch, "constructor", raising(ValueError("boo")))
    with pytest.raises(AssignorError):
        runner.ask(mine, {}, STATE)
    runner.notify(NOTICE)
    assert "callback" not in mine.calls
