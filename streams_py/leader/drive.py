"""Run one assign step from beginning to end, for callers that may block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from streams_py.errors import IllegalStateError
from streams_py.leader.effects import Effect, FailAssign, PublishAssignments
from streams_py.leader.events import AssignRequested, Event
from streams_py.leader.leader import GroupLeader

Execute = Callable[[Effect], Event | None]
"""Carries out one effect and returns its answer; None for effects without an answer."""


def run_assign(leader: GroupLeader, request: AssignRequested, execute: Execute) -> PublishAssignments | FailAssign:
    """Run one assign step and return its last effect.

    Passes every effect but the last to ``execute``, in order. Exceptions of ``execute`` propagate; the leader can then
    take the next request.
    """
    effects: deque[Effect] = deque(leader.handle(request))
    while effects:
        effect = effects.popleft()
        if isinstance(effect, PublishAssignments | FailAssign):
            return effect
        answer = execute(effect)
        if answer is not None:
            effects.extend(leader.handle(answer))
    raise IllegalStateError("the leader waits for an answer that the executor did not give")
