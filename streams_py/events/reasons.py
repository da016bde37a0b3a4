"""The reason why a task is on a client, as one of a few codes.

Reasons are derived from the result, because recording them in the assignor would slow down the assign step. A custom
assignor may supply its own reasons with a method ``explain(task) -> str`` of at most 64 characters, which is called on
the emitter's thread.

==================  =======================================================================================
``kept``            the client ran the task as active before
``caught_up``       the client's lag was within ``acceptable.recovery.lag``
``moved``           another client ran the task, and this client had not caught up
``balanced``        no client ran the task
``standby_tags``    a standby placed by ``rack.aware.assignment.tags``
``standby_default`` a standby placed without tags
``warm_target``     a warm-up: the task will move to this client
``fallback``        lags were unknown, or the application's assignor failed: every client keeps its tasks
``custom``          assigned by the application's assignor, which gave no reason
==================  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from streams_protocol.types import ProcessId, TaskId
from streams_py.leader.observation import Decided, Gathered

_REASON_CHARS_MAX: Final = 64


class Reasons:
    """The reasons of one rebalance. ``is_custom``: whether a custom assignor was used; ``assignor``: its instance."""

    def __init__(self, facts: Gathered, decision: Decided, *, is_custom: bool, assignor: object) -> None:
        self._facts = facts
        self._decision = decision
        self._is_custom = is_custom
        self._assignor = assignor
        self._configs = facts.problem.configs
        self._had_owner = {task for history in facts.histories.values() for task in history.active}

    def of_client(
        self, process: ProcessId, active: Collection[TaskId], standby: Collection[TaskId], warmup: Collection[TaskId]
    ) -> dict[str, list[TaskId]]:
        """Return the tasks of a client by reason."""
        reasons: dict[str, list[TaskId]] = {}
        standby_code = "standby_tags" if self._configs.rack_aware_assignment_tags else "standby_default"
        for task in active:
            reasons.setdefault(self._active(process, task), []).append(task)
        for task in standby:
            reasons.setdefault(self._overall(task) or standby_code, []).append(task)
        for task in warmup:
            reasons.setdefault(self._overall(task) or "warm_target", []).append(task)
        return reasons

    def _active(self, process: ProcessId, task: TaskId) -> str:
        overall = self._overall(task)
        if overall is not None:
            return overall
        history = self._facts.histories[process]
        if task in history.active:
            return "kept"
        lag = history.lags.get(task)
        if lag is not None and 0 <= lag <= self._configs.acceptable_recovery_lag:
            return "caught_up"
        return "moved" if task in self._had_owner else "balanced"

    def _overall(self, task: TaskId) -> str | None:
        """Return a reason that applies to tasks of every role. None if a built-in assignor had all lags."""
        if self._decision.placements is None or (self._facts.ends.failed is not None and not self._is_custom):
            return "fallback"
        if not self._is_custom:
            return None
        explain = getattr(self._assignor, "explain", None)
        if callable(explain):
            try:
                reason = explain(task)
            except Exception:  # the application's code may raise anything; that must not affect events
                return "custom"
            if isinstance(reason, str) and 0 < len(reason) <= _REASON_CHARS_MAX:
                return reason
        return "custom"
