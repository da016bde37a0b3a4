"""Draining clients: no new tasks, and a task leaves when its new client has caught up.

A client reports that it is draining with a client tag (:data:`DRAINING_TAG`). Tags are the only part of the protocol in
which a member may send additional data; Java leaders ignore tags that they do not know. Any built-in assignor then
decides for the remaining clients. Tasks without state leave a draining client immediately. A task with state leaves it
when the new client is within ``acceptable.recovery.lag``. Until then the task stays, and the new client warms it up,
with at most ``max.warmup.replicas`` warm-ups at a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from streams_protocol import LATEST_OFFSET
from streams_protocol.types import TaskId
from streams_py.assignment.problem import AssignmentProblem, BuiltInAssignor, ClientInput, Decision, Placement

DRAINING_TAG: Final = "streams-py.draining"
_YES: Final = "true"


def is_draining(client: ClientInput) -> bool:
    """Whether the client requests to hand its tasks over."""
    return client.tags.get(DRAINING_TAG) == _YES


class DrainingAssignor:
    """Lets another assignor decide without the draining clients."""

    def __init__(self, inner: BuiltInAssignor) -> None:
        self._inner = inner

    def decide(self, problem: AssignmentProblem, *, explain: bool = False) -> Decision:
        """Decide as in ``BuiltInAssignor``. If all clients are draining, the tag has no effect."""
        leaving = sorted(filter(is_draining, problem.clients), key=lambda client: client.process_id)
        staying = [client for client in problem.clients if not is_draining(client)]
        if not leaving or not staying:
            return self._inner.decide(problem, explain=explain)
        decision = self._inner.decide(replace(problem, clients=staying), explain=explain)
        placements = {
            process_id: Placement(list(placement.active), list(placement.standby))
            for process_id, placement in decision.placements.items()
        }
        owners = {task: client for client in staying for task in placements[client.process_id].active}
        warmups = list(decision.warmups)
        kept = False
        for client in leaving:
            place = placements[client.process_id] = Placement([], [])
            for task in client.previous_active:
                owner = owners.get(task)
                if owner is None or not _may_stay(problem, client, owner, task):
                    continue
                kept = True
                del owners[task]  # another draining client may claim it, too
                place.active.append(task)
                placements[owner.process_id].active.remove(task)
                if len(warmups) < problem.configs.max_warmup_replicas:
                    placements[owner.process_id].standby.append(task)
                    warmups.append((task, owner.process_id))
        for placement in placements.values():
            placement.standby.sort()
        return replace(decision, placements=placements, warmups=tuple(warmups), probing=decision.probing or kept)


def _may_stay(problem: AssignmentProblem, client: ClientInput, owner: ClientInput, task: TaskId) -> bool:
    """Whether the task has state, complete on the draining client but not on its new client."""
    if task not in problem.end_offset_sums:
        return False
    return _has_caught_up(problem, client, task) and not _has_caught_up(problem, owner, task)


def _has_caught_up(problem: AssignmentProblem, client: ClientInput, task: TaskId) -> bool:
    lag = problem.lag(client, task)
    return lag == LATEST_OFFSET or 0 <= lag <= problem.configs.acceptable_recovery_lag
