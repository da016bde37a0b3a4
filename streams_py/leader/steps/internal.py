"""The built-in path: which assignor decides when the application brings none of its own.

Without end offsets the high-availability assignor would see every client as equally far behind and might move
everything; the fallback gives each task back to its previous owner and asks for another try. Only the sticky assignor
is used all the same. Kafka Streams' ``StreamsPartitionAssignor.assignTasksToClients``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.application_state import ProblemState
from streams_py.assignment.assignors.fallback import FallbackPriorAssignor
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.registry import (
    built_in_assignor,
    choose_assignor,
    new_task_assignor,
    public_built_in,
)
from streams_py.assignment.assignors.static import StaticTaskAssignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor, StickyTaskAssignor
from streams_py.assignment.explanation import Host, Rule, TaskExplanation
from streams_py.assignment.problem import AssignmentProblem, BuiltInAssignor, Decision, Placement
from streams_py.errors import AssignorError, ConfigError
from streams_py.leader.settings import LeaderSettings

__all__ = ["ReplayedAssignor", "internal_assignor", "uses_custom_assignor"]


def uses_custom_assignor(settings: LeaderSettings) -> bool:
    """True when ``task.assignor.class`` is set to something else than the name of an internal assignor."""
    return settings.task_assignor is not None and _built_in(settings.task_assignor) is None


def internal_assignor(settings: LeaderSettings, *, lags_known: bool) -> BuiltInAssignor:
    """Who decides. ConfigError when ``internal.task.assignor.class`` names nothing that exists."""
    assignor = _built_in(settings.task_assignor) or built_in_assignor(settings.internal_assignor)
    if not lags_known and not isinstance(assignor, LegacyStickyAssignor):
        assignor = FallbackPriorAssignor()
    elif isinstance(assignor, HighAvailabilityAssignor) and settings.reference_behaviour:
        assignor = HighAvailabilityAssignor(reference_behaviour=True)
    return assignor


def _built_in(configured: object) -> BuiltInAssignor | None:
    """The internal assignor that ``task.assignor.class`` names, if it does; imports nothing."""
    if configured is None:
        return None
    if isinstance(configured, str):
        if configured.strip() == "sticky":  # here the name of the public one
            return None
        try:
            return built_in_assignor(configured)
        except ConfigError:
            return None
    try:
        made = choose_assignor(configured).built_in
    except AssignorError:
        return None  # whoever runs it will say so
    return made() if made is not None else None


@dataclass(frozen=True, slots=True)
class ReplayedAssignor:
    """A public assignor of ours, to be asked again why it placed tasks as it did: for the leader's explanations."""

    configured: object
    configs: Mapping[str, object]
    state_of: Callable[[AssignmentProblem], ProblemState]
    placements: Mapping[ProcessId, Placement]
    """What it decided. It knew the racks of internal topics, which nobody looks up again only to explain."""

    @classmethod
    def if_ours(
        cls,
        settings: LeaderSettings,
        state_of: Callable[[AssignmentProblem], ProblemState],
        placements: Mapping[ProcessId, Placement],
    ) -> ReplayedAssignor | None:
        """None for an assignor of the application's own: it alone knows its reasons."""
        if public_built_in(settings.task_assignor) is None:
            return None
        return cls(settings.task_assignor, settings.original_configs, state_of, placements)

    def decide(self, problem: AssignmentProblem, *, explain: bool = False) -> Decision:
        """The decision as it was."""
        if not explain:
            return Decision(self.placements)
        found = public_built_in(self.configured)
        assert found is not None
        assignor = new_task_assignor(found, self.configs)
        assert isinstance(assignor, StickyTaskAssignor | StaticTaskAssignor)
        return Decision(
            self.placements,
            explanation=_as_placed(assignor.explanations(self.state_of(problem)), problem, self.placements),
        )


def _as_placed(
    explained: Mapping[TaskId, TaskExplanation], problem: AssignmentProblem, placements: Mapping[ProcessId, Placement]
) -> dict[TaskId, TaskExplanation]:
    """Where the decision differs from the one told, it was the racks."""
    clients = {client.process_id: client for client in problem.clients}

    def moved(task: TaskId, process_id: ProcessId) -> Host:
        client, place = clients[process_id], placements[process_id]
        lag = problem.lag(client, task) if task in problem.end_offset_sums else None
        return Host(process_id, Rule.RACKS, lag, (len(place.active) + len(place.standby)) / client.capacity)

    owner = {task: process_id for process_id, place in placements.items() for task in place.active}
    hosts: dict[TaskId, list[ProcessId]] = {}
    for process_id, place in sorted(placements.items(), key=lambda item: item[0]):
        for task in place.standby:
            hosts.setdefault(task, []).append(process_id)
    found = {}
    for task, explanation in explained.items():
        known = {host.process_id: host for host in (explanation.active, *explanation.standbys)}
        copies = [owner.get(task, explanation.active.process_id), *hosts.get(task, ())]
        if set(copies) != set(known) or copies[0] != explanation.active.process_id:
            first, *others = [known.get(client) or moved(task, client) for client in copies]
            explanation = replace(explanation, active=first, desired=first.process_id, standbys=tuple(others))
        found[task] = explanation
    return found
