"""Why a task is where it is, as one of a few codes.

Derived from the outcome, because an assignor that tells its explanation takes longer, inside the assign step. A custom
assignor may answer for itself, with a method ``explain(task) -> str`` of at most 64 characters; it is called on the
emitter's thread.

==================  =======================================================================================
``kept``            the client ran the task as active before
``caught_up``       it was behind by ``acceptable.recovery.lag`` at most
``moved``           another client ran it, this one was not caught up
``balanced``        nobody ran it
``standby_tags``    a standby placed by ``rack.aware.assignment.tags``
``standby_default`` a standby placed without tags
``warm_target``     a warm-up: the task is meant for this client
``fallback``        lags were not known, or the application's assignor failed: everybody keeps what they have
``custom``          the application's assignor, which did not explain
==================  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from streams_protocol.types import ProcessId, TaskId
from streams_py.leader.observation import Decided, Gathered

__all__ = ["Reasons"]

_REASON_CHARS_MAX: Final = 64


class Reasons:
    """The reasons of one rebalance. ``assignor`` is the custom assignor's instance, ``is_custom`` whether one was
    asked."""

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
        """Tasks of a client by reason."""
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
        """What holds for every role; None when a built-in assignor decided with all it needs."""
        if self._decision.placements is None or (self._facts.ends.failed is not None and not self._is_custom):
            return "fallback"
        if not self._is_custom:
            return None
        explain = getattr(self._assignor, "explain", None)
        if callable(explain):
            try:
                reason = explain(task)
            except Exception:  # the application's code; its error changes nothing here
                return "custom"
            if isinstance(reason, str) and 0 < len(reason) <= _REASON_CHARS_MAX:
                return reason
        return "custom"
