"""The built-in path: which assignor decides when the application brings none of its own.

Without end offsets the high-availability assignor would see every client as equally far behind and might move
everything; the fallback gives each task back to its previous owner and asks for another try. Only the sticky assignor
is used all the same. Kafka Streams' ``StreamsPartitionAssignor.assignTasksToClients``.
"""

from __future__ import annotations

from streams_py.assignment.assignors.fallback import FallbackPriorAssignor
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.registry import built_in_assignor, choose_assignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor
from streams_py.assignment.problem import BuiltInAssignor
from streams_py.errors import AssignorError, ConfigError
from streams_py.leader.settings import LeaderSettings

__all__ = ["internal_assignor", "uses_custom_assignor"]


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
