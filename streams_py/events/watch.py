"""Watches a group leader's assign step: keeps references, reads a clock, and hands both to the emitter.

Nothing else may happen here, because it happens inside the step: sorting tasks, comparing rounds and making JSON are
done by :class:`~streams_py.events.rebalance.RebalanceDraft` on the emitter's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from streams_py.events.contents import Described
from streams_py.events.draft import Draft
from streams_py.events.observers import Forming, RoundObserver
from streams_py.events.rebalance import PreviousRound, RebalanceDraft
from streams_py.leader.effects import FailAssign, PublishAssignments
from streams_py.leader.observation import AssignStep, Decided, Fact, Gathered, RacksDescribed
from streams_py.leader.settings import LeaderSettings
from streams_py.ports import MemberSubscription

__all__ = ["AssignWatch", "Emit"]

_log = logging.getLogger("streams_py.events")

Emit = Callable[[Draft], None]
Outcome = PublishAssignments | FailAssign | BaseException


@dataclass(slots=True)
class _Round:
    """What the watch has heard of the assign step under way."""

    members: Mapping[str, MemberSubscription]
    began_us: int
    step: AssignStep | None = None
    entered_us: int = 0
    duration_us: dict[str, int] = field(default_factory=dict)
    facts: Gathered | None = None
    described: Described = field(default_factory=dict)
    decision: Decided | None = None


class AssignWatch(RoundObserver):
    """Records what one stream thread's leader decides. ``monotonic_us`` is a clock that never goes back."""

    def __init__(
        self, emit: Emit, settings: LeaderSettings, *, group: str, forming: Forming, monotonic_us: Callable[[], int]
    ) -> None:
        self._emit = emit
        self._settings = settings
        self._group = group
        self._forming = forming
        self._monotonic_us = monotonic_us
        self._previous = PreviousRound()
        self._round: _Round | None = None
        self._named: tuple[int, str] = (-1, "")
        self._attempt = 0

    def began(self, members: Mapping[str, MemberSubscription]) -> None:
        """The leader is asked to assign."""
        now_us = self._monotonic_us()
        self._round = _Round(members, now_us, entered_us=now_us)

    def observe(self, fact: Fact) -> None:
        """As in the base class."""
        now = self._round
        if now is None:
            return
        match fact:
            case AssignStep():
                self._measure(now, fact)
            case Gathered():
                now.facts = fact
            case RacksDescribed(topics):
                now.described = topics
            case Decided():
                now.decision = fact
            case _:
                assert_never(fact)

    def _measure(self, now: _Round, step: AssignStep | None) -> None:
        now_us = self._monotonic_us()
        if now.step is not None:
            name = now.step.value
            now.duration_us[name] = now.duration_us.get(name, 0) + now_us - now.entered_us
        now.step, now.entered_us = step, now_us

    def ended(self, outcome: Outcome, assignor: object = None) -> None:
        """The step is over; the record is on its way. ``outcome``: the leader's last effect, or what was raised in
        between. ``assignor`` is the custom assignor's instance, if one was asked."""
        now, self._round = self._round, None
        if now is None:
            return
        try:
            self._hand_over(now, outcome, assignor)
        except Exception:
            _log.exception("an assign step could not be recorded; the rebalance is not affected")

    def _hand_over(
        self, now: _Round, outcome: PublishAssignments | FailAssign | BaseException, assignor: object
    ) -> None:
        self._measure(now, None)
        now.duration_us["total"] = now.entered_us - now.began_us
        named = self._forming() or (1 + max((m.generation for m in now.members.values()), default=-1), "")
        self._attempt = self._attempt + 1 if named == self._named else 0
        self._named = named
        self._emit(
            RebalanceDraft(
                group=self._group,
                generation=named[0],
                leader_member=named[1],
                attempt=self._attempt,
                settings=self._settings,
                members=now.members,
                facts=now.facts,
                described=now.described,
                decision=now.decision,
                outcome=outcome,
                assignor=assignor,
                duration_us=now.duration_us,
                previous=self._previous,
            )
        )
