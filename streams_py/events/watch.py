"""Record a group leader's assign step: keep references, read a clock, and pass both to the emitter.

This code runs within the step, so it does nothing else. :class:`~streams_py.events.rebalance.RebalanceDraft` sorts
tasks, compares steps and creates JSON, on the emitter's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import assert_never

from streams_py.events.draft import Emit
from streams_py.events.observers import AssignObserver, Forming
from streams_py.events.rebalance import PreviousStep, RebalanceDraft
from streams_py.leader.effects import FailAssign, PublishAssignments
from streams_py.leader.observation import AssignStep, Decided, Fact, Gathered, RacksDescribed
from streams_py.leader.settings import LeaderSettings
from streams_py.ports import MemberSubscription

_log = logging.getLogger("streams_py.events")


class AssignWatch(AssignObserver):
    """The recorder of one stream thread's leader. ``monotonic_us``: a monotonic clock."""

    def __init__(
        self, emit: Emit, settings: LeaderSettings, *, group: str, forming: Forming, monotonic_us: Callable[[], int]
    ) -> None:
        self._emit = emit
        self._settings = settings
        self._group = group
        self._forming = forming
        self._monotonic_us = monotonic_us
        self._previous = PreviousStep()
        self._draft: RebalanceDraft | None = None
        self._step: AssignStep | None = None
        self._began_us = self._entered_us = 0
        self._named: tuple[int, str] = (-1, "")
        self._attempt = 0

    def began(self, members: Mapping[str, MemberSubscription]) -> None:
        """Start to record an assign step."""
        self._draft = RebalanceDraft(
            group=self._group, settings=self._settings, members=members, previous=self._previous
        )
        self._step = None
        self._began_us = self._entered_us = self._monotonic_us()

    def observe(self, fact: Fact) -> None:
        """Record a fact that the leader reports."""
        draft = self._draft
        if draft is None:
            return
        match fact:
            case AssignStep():
                self._measure(draft, fact)
            case Gathered():
                draft.facts = fact
            case RacksDescribed(topics):
                draft.described = topics
            case Decided():
                draft.decision = fact
            case _:
                assert_never(fact)

    def _measure(self, draft: RebalanceDraft, step: AssignStep | None) -> None:
        now_us = self._monotonic_us()
        if self._step is not None:
            name = self._step.value
            draft.duration_us[name] = draft.duration_us.get(name, 0) + now_us - self._entered_us
        self._step, self._entered_us = step, now_us

    def ended(self, outcome: PublishAssignments | FailAssign | BaseException, assignor: object = None) -> None:
        """Finish recording, and emit the event. Never raises.

        Args:
            outcome: The leader's last effect, or the exception that ended the step.
            assignor: The instance of the custom assignor, if one was used.
        """
        draft, self._draft = self._draft, None
        if draft is None:
            return
        try:
            self._measure(draft, None)
            draft.duration_us["total"] = self._entered_us - self._began_us
            draft.outcome, draft.assignor = outcome, assignor
            self._name(draft)
            self._emit(draft)
        except Exception:
            _log.exception("recording an assign step failed; the rebalance is not affected")

    def _name(self, draft: RebalanceDraft) -> None:
        named = self._forming() or (1 + max((m.generation for m in draft.members.values()), default=-1), "")
        self._attempt = self._attempt + 1 if named == self._named else 0
        self._named = named
        draft.generation, draft.leader_member, draft.attempt = *named, self._attempt
