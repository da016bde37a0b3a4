"""Assignors that explain their decisions, by their names in configurations and records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol, TypeAlias, runtime_checkable

from streams_protocol.types import TaskId
from streams_py.assignment.api import ApplicationState
from streams_py.assignment.assignors.fallback import FallbackPriorAssignor
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.registry import assignor_name, choose_assignor, public_built_in
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor
from streams_py.assignment.explanation import TaskExplanation
from streams_py.assignment.problem import AssignmentProblem, BuiltInAssignor
from streams_py.errors import StreamsError

Explanations: TypeAlias = dict[TaskId, TaskExplanation]
Explainer: TypeAlias = Callable[[AssignmentProblem, ApplicationState], Explanations]
"""Decides a problem, given in both forms, and returns the explanation of every task."""

_BY_CLASS: Final[Mapping[str, Callable[[], BuiltInAssignor]]] = {
    assignor_name(kind): kind for kind in (HighAvailabilityAssignor, LegacyStickyAssignor, FallbackPriorAssignor)
}


@runtime_checkable
class _HasExplanations(Protocol):
    def explanations(self, application_state: ApplicationState) -> Mapping[TaskId, TaskExplanation]: ...


def explainer_named(name: str, configs: Mapping[str, object]) -> Explainer:
    """Return the explainer of an assignor.

    Args:
        name: ``package.module:Class``, or a name from configurations.
        configs: Settings for the assignor's ``configure``.

    Raises:
        ValueError: The assignor gives no explanations.
    """
    public = public_built_in(name)
    if public is not None:
        assignor = public()
        assignor.configure(configs)
        if isinstance(assignor, _HasExplanations):
            tells = assignor.explanations
            return lambda problem, state: dict(tells(state))
    built_in = _BY_CLASS.get(name)
    if built_in is None:
        with suppress(StreamsError):
            built_in = choose_assignor(name).built_in
    if built_in is None:
        raise ValueError(
            f"{name} gives no explanations; use high_availability, sticky, static, legacy_sticky or fallback"
        )
    made = built_in()
    return lambda problem, state: dict(made.decide(problem, explain=True).explanation)
