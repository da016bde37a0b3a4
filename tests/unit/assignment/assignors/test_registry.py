"""Assignors by name, and user code that fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from streams_protocol.types import TaskId
from streams_py.assignment.api import (
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    TaskType,
)
from streams_py.assignment.application_state import ProblemState
from streams_py.assignment.assignors.fallback import FallbackPriorAssignor
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.registry import (
    assignor_name,
    built_in_assignor,
    call_assignor,
    choose_assignor,
    new_task_assignor,
    public_built_in,
)
from streams_py.assignment.assignors.static import StaticTaskAssignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor, StickyTaskAssignor
from streams_py.assignment.problem import AssignmentProblem, ClientInput
from streams_py.errors import AssignorError, ConfigError, TaskAssignmentError
from tests.support.assignment.scenario_language import process_id

INTERNAL = "org.apache.kafka.streams.processor.internals.assignment."
PUBLIC = "org.apache.kafka.streams.processor.assignment.assignors."
STATE = ProblemState(AssignmentProblem([ClientInput(process_id(1))], [TaskId(0, 0)], {}))


class Everything(TaskAssignor):
    """Returns what the test requires."""

    answer: Callable[[], object] = staticmethod(lambda: TaskAssignment([]))
    configs: Mapping[str, object] = MappingProxyType({})

    def configure(self, configs: Mapping[str, object]) -> None:
        self.configs = configs

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return self.answer()  # type: ignore[return-value]  # nonsense on purpose


class Unfinished(TaskAssignor):
    """An assignor without ``assign``."""


class NeedsArguments(Everything):
    def __init__(self, size: int) -> None:
        self.size = size


class FailsToConfigure(Everything):
    def configure(self, configs: Mapping[str, object]) -> None:
        raise KeyError("my.key")


HERE = f"{__name__}:"


def test_task_assignor_class_takes_a_class_or_its_path() -> None:
    assert choose_assignor(Everything).task_assignor is Everything
    chosen = choose_assignor("streams_py.assignment.assignors.sticky:StickyTaskAssignor")
    assert chosen.task_assignor is StickyTaskAssignor
    assert chosen.built_in is None


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("high_availability", HighAvailabilityAssignor),
        ("legacy_sticky", LegacyStickyAssignor),
        ("fallback", FallbackPriorAssignor),
        (INTERNAL + "HighAvailabilityTaskAssignor", HighAvailabilityAssignor),
        (INTERNAL + "LegacyStickyTaskAssignor", LegacyStickyAssignor),
        (INTERNAL + "FallbackPriorTaskAssignor", FallbackPriorAssignor),
    ],
)
def test_built_in_assignors_have_names(name: str, made: type[object]) -> None:
    chosen = choose_assignor(name)
    assert chosen.built_in is not None
    assert type(chosen.built_in()) is made
    assert isinstance(built_in_assignor(name), made)


@pytest.mark.parametrize("name", ["sticky", PUBLIC + "StickyTaskAssignor"])
def test_public_sticky_has_names(name: str) -> None:
    assert choose_assignor(name).task_assignor is StickyTaskAssignor


def test_internal_default_is_high_availability_and_sticky_the_internal_one() -> None:
    assert isinstance(built_in_assignor(), HighAvailabilityAssignor)
    assert isinstance(built_in_assignor("sticky"), LegacyStickyAssignor)
    with pytest.raises(ConfigError, match=r"internal\.task\.assignor\.class='x'"):
        built_in_assignor("x")


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("no_such_module:Class", "module no_such_module cannot be imported"),
        ("streams_py.assignment.api:Missing", "has no Missing"),
        ("streams_py.assignment.api:AssignmentError", "not a subclass"),
        ("just_a_word", "package.module:Class"),
        ("com.example.MyAssignor", "Java class cannot run here"),
        (object, "not a subclass"),
        (42, "not a subclass"),
        (Unfinished, "does not implement assign"),
    ],
)
def test_unusable_assignor_is_named(value: object, complaint: str) -> None:
    with pytest.raises(AssignorError, match=complaint) as caught:
        choose_assignor(value)
    assert (value if isinstance(value, str) else assignor_name(value)) in str(caught.value)


def test_new_instance_is_configured_with_the_users_map() -> None:  # LC-05
    configs = {"my.key": object()}
    assignor = new_task_assignor(Everything, configs)
    assert isinstance(assignor, Everything)
    assert assignor.configs == configs
    assert assignor.configs is not configs  # changes to its own configuration affect no other assignor
    assert new_task_assignor(Everything, configs) is not assignor


@pytest.mark.parametrize(
    ("chosen", "complaint"), [(NeedsArguments, "must take no arguments"), (FailsToConfigure, "failed in configure")]
)
def test_assignor_that_cannot_be_made_is_named(chosen: type[TaskAssignor], complaint: str) -> None:
    with pytest.raises(AssignorError, match=complaint) as caught:
        new_task_assignor(chosen, {})
    assert HERE + chosen.__name__ in str(caught.value)
    assert caught.value.__cause__ is not None


class BadRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


ROLE_AS_TEXT: Any = "ACTIVE"


def wrapped(value: Any) -> TaskAssignment:
    return TaskAssignment(value)


def with_task(key: TaskId, value: object) -> TaskAssignment:
    entry = KafkaStreamsAssignment(process_id(1))
    entry._tasks[key] = value  # type: ignore[assignment]  # nonsense on purpose
    return TaskAssignment([entry])


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (None, "must return a TaskAssignment"),
        ({"P1": ["0_0"]}, "must return a TaskAssignment"),
        (BadRepr(), "without a usable repr"),
        (wrapped(7), "TaskAssignment of a int"),
        (wrapped("text"), "TaskAssignment of a str"),
        (wrapped(["text"]), "with a str"),
        (with_task(TaskId(0, 0), "0_0"), "use AssignedTask"),
        (with_task(TaskId(0, 1), AssignedTask(TaskId(0, 0), TaskType.ACTIVE)), "use AssignedTask"),
        (with_task(TaskId(0, 0), AssignedTask(TaskId(0, 0), ROLE_AS_TEXT)), "use AssignedTask"),
    ],
)
def test_nonsense_is_an_error_that_names_the_class(answer: object, complaint: str) -> None:
    assignor = Everything()
    assignor.answer = lambda: answer
    with pytest.raises(AssignorError, match=complaint) as caught:
        call_assignor(assignor, STATE)
    assert f"{HERE}Everything" in str(caught.value)


def test_good_answer_passes_through() -> None:
    assignor = Everything()
    good = TaskAssignment([KafkaStreamsAssignment(process_id(1), [AssignedTask(TaskId(0, 0), TaskType.ACTIVE)])])
    assignor.answer = lambda: good
    [entry] = call_assignor(assignor, STATE).assignment
    assert (entry.process_id, dict(entry.tasks)) == (process_id(1), dict(next(iter(good.assignment)).tasks))


def test_answer_cannot_be_changed_after_it_was_given() -> None:
    assignor = Everything()
    kept = KafkaStreamsAssignment(process_id(1), [AssignedTask(TaskId(0, 0), TaskType.ACTIVE)])
    assignor.answer = lambda: TaskAssignment([kept])
    [entry] = call_assignor(assignor, STATE).assignment
    kept.remove_task(AssignedTask(TaskId(0, 0), TaskType.ACTIVE))
    assert list(entry.tasks) == [TaskId(0, 0)]


def test_raising_assignor_becomes_an_assignor_error() -> None:
    assignor = Everything()
    empty: dict[str, object] = {}
    assignor.answer = lambda: empty["missing"]
    with pytest.raises(AssignorError, match="failed in assign \\(KeyError: 'missing'\\)") as caught:
        call_assignor(assignor, STATE)
    assert isinstance(caught.value.__cause__, KeyError)


def test_refusal_by_task_assignment_error_passes_through() -> None:  # LC-04
    def refuse() -> object:
        raise TaskAssignmentError("not now")

    assignor = Everything()
    assignor.answer = refuse
    with pytest.raises(TaskAssignmentError, match="not now"):
        call_assignor(assignor, STATE)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("sticky", StickyTaskAssignor),
        (" static ", StaticTaskAssignor),
        (StickyTaskAssignor, StickyTaskAssignor),
        ("org.apache.kafka.streams.processor.assignment.assignors.StickyTaskAssignor", StickyTaskAssignor),
        ("streams_py.assignment.assignors.sticky:StickyTaskAssignor", StickyTaskAssignor),
        ("high_availability", None),
        ("no_such_module:Class", None),
        (Everything, None),
        (None, None),
    ],
)
def test_public_assignor_of_ours_is_known_without_an_import(value: object, found: type[TaskAssignor] | None) -> None:
    assert public_built_in(value) is found
