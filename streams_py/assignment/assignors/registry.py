"""Loading, creating and calling of configured task assignors.

``task.assignor.class`` takes a class, ``"package.module:Class"``, or the name of a built-in assignor: its Java class
name or a short name. Every error in user code becomes an AssignorError that names the class and says what to do. Only a
TaskAssignmentError, with which an assignor refuses on purpose, is passed on unchanged.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from streams_py.assignment.api import ApplicationState, TaskAssignment, TaskAssignor
from streams_py.assignment.assignors.answer import described, trusted_answer
from streams_py.assignment.assignors.fallback import FallbackPriorAssignor
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.static import StaticTaskAssignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor, StickyTaskAssignor
from streams_py.assignment.problem import BuiltInAssignor
from streams_py.errors import AssignorError, ConfigError, TaskAssignmentError

TASK_ASSIGNOR_CLASS: Final = "task.assignor.class"
INTERNAL_TASK_ASSIGNOR_CLASS: Final = "internal.task.assignor.class"

_INTERNAL: Final = "org.apache.kafka.streams.processor.internals.assignment."
_PUBLIC: Final = "org.apache.kafka.streams.processor.assignment.assignors."

_BUILT_IN: Final[Mapping[str, Callable[[], BuiltInAssignor]]] = {
    "high_availability": HighAvailabilityAssignor,
    "legacy_sticky": LegacyStickyAssignor,
    "fallback": FallbackPriorAssignor,
    _INTERNAL + "HighAvailabilityTaskAssignor": HighAvailabilityAssignor,
    _INTERNAL + "LegacyStickyTaskAssignor": LegacyStickyAssignor,
    _INTERNAL + "StickyTaskAssignor": LegacyStickyAssignor,  # its name before Kafka 4.0
    _INTERNAL + "FallbackPriorTaskAssignor": FallbackPriorAssignor,
}
_PUBLIC_CLASSES: Final[Mapping[str, type[TaskAssignor]]] = {
    "static": StaticTaskAssignor,
    "sticky": StickyTaskAssignor,
    _PUBLIC + "StickyTaskAssignor": StickyTaskAssignor,
}


@dataclass(frozen=True, slots=True)
class AssignorChoice:
    """The assignor of a configured value; exactly one of the two fields is set."""

    name: str
    built_in: Callable[[], BuiltInAssignor] | None = None
    task_assignor: type[TaskAssignor] | None = None


def assignor_name(assignor: object) -> str:
    """Return the name for messages: ``package.module:Class``, or the configured text."""
    if isinstance(assignor, TaskAssignor):
        assignor = type(assignor)
    return f"{assignor.__module__}:{assignor.__qualname__}" if isinstance(assignor, type) else str(assignor)


def choose_assignor(value: object) -> AssignorChoice:
    """Return the assignor of a ``task.assignor.class`` value.

    Raises:
        AssignorError: it cannot be imported, or it is not a TaskAssignor.
    """
    name = assignor_name(value)
    if isinstance(value, str):
        text = value.strip()
        if text in _PUBLIC_CLASSES:
            return AssignorChoice(name, task_assignor=_PUBLIC_CLASSES[text])
        if text in _BUILT_IN:
            return AssignorChoice(name, built_in=_BUILT_IN[text])
        value = _import(text)
    if value in _BUILT_IN.values():
        return AssignorChoice(name, built_in=next(made for made in _BUILT_IN.values() if made is value))
    if not isinstance(value, type) or not issubclass(value, TaskAssignor):
        raise AssignorError(
            f"{TASK_ASSIGNOR_CLASS}: {name} is not a subclass of streams_py.assignment.TaskAssignor; "
            "derive the class from it and implement assign"
        )
    if inspect.isabstract(value):
        missing = ", ".join(sorted(value.__abstractmethods__))
        raise AssignorError(f"{TASK_ASSIGNOR_CLASS}: {name} does not implement {missing}")
    return AssignorChoice(name, task_assignor=value)


def public_built_in(value: object) -> type[TaskAssignor] | None:
    """Return the public built-in assignor that the value names, or None; imports nothing."""
    if isinstance(value, str) and value.strip() in _PUBLIC_CLASSES:
        return _PUBLIC_CLASSES[value.strip()]
    ours = set(_PUBLIC_CLASSES.values())
    return next((made for made in ours if made is value or assignor_name(made) == value), None)


def built_in_assignor(value: object = None) -> BuiltInAssignor:
    """Return a new instance of the assignor that ``internal.task.assignor.class`` names.

    None stands for the high-availability assignor.
    """
    if value is None:
        return HighAvailabilityAssignor()
    text = str(value).strip()
    made = _BUILT_IN.get("legacy_sticky" if text == "sticky" else text)
    if made is None:
        raise ConfigError(
            f"{INTERNAL_TASK_ASSIGNOR_CLASS}={text!r} is not a built-in assignor; use one of "
            f"high_availability, sticky, fallback, or set {TASK_ASSIGNOR_CLASS} for your own class",
            key=INTERNAL_TASK_ASSIGNOR_CLASS,
        )
    return made()


def _import(text: str) -> object:
    module_name, colon, class_name = text.partition(":")
    if not colon or not module_name or not class_name:
        hint = "a Java class cannot run here; " if text.count(".") > 1 and text.rpartition(".")[2][:1].isupper() else ""
        raise AssignorError(
            f"{TASK_ASSIGNOR_CLASS}={text!r} is not a valid assignor: {hint}write 'package.module:Class', pass the "
            "class itself, or use a built-in one: high_availability, sticky, static, legacy_sticky, fallback"
        )
    try:
        found: object = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # importing runs user code
        raise AssignorError(
            f"{TASK_ASSIGNOR_CLASS}={text!r}: module {module_name} cannot be imported "
            f"({described(error)}); check the name, and that every instance has it on its Python path"
        ) from error
    for part in class_name.split("."):
        if not hasattr(found, part):
            raise AssignorError(f"{TASK_ASSIGNOR_CLASS}={text!r}: module {module_name} has no {class_name}")
        found = getattr(found, part)
    return found


def new_task_assignor(choice: type[TaskAssignor], configs: Mapping[str, object]) -> TaskAssignor:
    """Return a new, configured instance, as KIP-924 requires for every rebalance.

    Raises:
        AssignorError: the constructor or ``configure`` raised an exception.
    """
    name = assignor_name(choice)
    try:
        assignor = choice()
    except Exception as error:
        raise AssignorError(
            f"task assignor {name} cannot be created ({described(error)}); its constructor must take no arguments"
        ) from error
    try:
        assignor.configure(dict(configs))  # a copy, so that the assignor cannot change the application's configuration
    except Exception as error:
        raise AssignorError(f"task assignor {name} failed in configure ({described(error)})") from error
    return assignor


def call_assignor(assignor: TaskAssignor, application_state: ApplicationState) -> TaskAssignment:
    """Call an assignor and return a type-checked copy of its answer.

    The function :func:`~streams_py.assignment.validation.validate_task_assignment` checks whether the answer is
    *valid*.

    Raises:
        TaskAssignmentError: raised by the assignor itself.
        AssignorError: any other failure.
    """
    name = assignor_name(assignor)
    try:
        returned = assignor.assign(application_state)
    except TaskAssignmentError:
        raise
    except Exception as error:
        raise AssignorError(f"task assignor {name} failed in assign ({described(error)})") from error
    return trusted_answer(name, returned)
