"""Selection of the built-in assignor when the application does not define an assignor.

Without end offsets the high-availability assignor would see every client as equally far behind, and might move all
tasks. The fallback assignor returns each task to its previous owner and requests another rebalance. Only the sticky
assignor is used even without end offsets. Source: Kafka Streams' ``StreamsPartitionAssignor.assignTasksToClients``.
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


def uses_custom_assignor(settings: LeaderSettings) -> bool:
    """Whether ``task.assignor.class`` is set, and not to the name of an internal assignor."""
    return settings.task_assignor is not None and _built_in(settings.task_assignor) is None


def internal_assignor(settings: LeaderSettings, *, lags_known: bool) -> BuiltInAssignor:
    """Return the assignor that decides.

    Raises:
        ConfigError: ``internal.task.assignor.class`` is not the name of an internal assignor.
    """
    assignor = _built_in(settings.task_assignor) or built_in_assignor(settings.internal_assignor)
    if not lags_known and not isinstance(assignor, LegacyStickyAssignor):
        assignor = FallbackPriorAssignor()
    elif isinstance(assignor, HighAvailabilityAssignor) and settings.reference_behaviour:
        assignor = HighAvailabilityAssignor(reference_behaviour=True)
    return assignor


def _built_in(configured: object) -> BuiltInAssignor | None:
    """Return the internal assignor that ``task.assignor.class`` names, or None; imports nothing."""
    if configured is None:
        return None
    if isinstance(configured, str):
        if configured.strip() == "sticky":  # as task.assignor.class, this is the public assignor
            return None
        try:
            return built_in_assignor(configured)
        except ConfigError:
            return None
    try:
        made = choose_assignor(configured).built_in
    except AssignorError:
        return None  # the error is reported when the assignor is run
    return made() if made is not None else None


@dataclass(frozen=True, slots=True)
class ReplayedAssignor:
    """A public built-in assignor that can repeat and explain its decision."""

    configured: object
    configs: Mapping[str, object]
    state_of: Callable[[AssignmentProblem], ProblemState]
    placements: Mapping[ProcessId, Placement]
    """Its decision, made with racks of internal topics that are not described again."""

    @classmethod
    def if_ours(
        cls,
        settings: LeaderSettings,
        state_of: Callable[[AssignmentProblem], ProblemState],
        placements: Mapping[ProcessId, Placement],
    ) -> ReplayedAssignor | None:
        """Return None for the application's own assignor, which the leader cannot explain."""
        if public_built_in(settings.task_assignor) is None:
            return None
        return cls(settings.task_assignor, settings.original_configs, state_of, placements)

    def decide(self, problem: AssignmentProblem, *, explain: bool = False) -> Decision:
        """Return the same decision again."""
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
    """Correct the explanations to match the decision. A difference is caused by racks."""
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
