"""Explanation of a placement: the facts that decided where a task is, one value per task.

Assignors record explanations only on request (``decide(problem, explain=True)``). A built-in assignor records what it
compared: the rule that chose each host, the known lags, the load and the limits. ``str(explanation)`` returns it as
sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from streams_protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from streams_protocol.types import ProcessId, TaskId

_LAGS_SHOWN: Final = 10


class Rule(Enum):
    """The rule that put a copy of a task on a client. The value completes "... because"."""

    EVEN_SHARE = "the even distribution over clients and threads gives it this task"
    CAUGHT_UP_STANDBY = "it was chosen as a standby, is caught up, and so swaps roles with the desired client"
    CAUGHT_UP = "it is the least loaded client that is caught up"
    NEAREST = "no client is caught up, and it is the closest to being caught up"
    FEWEST_ACTIVES = "the task has no state and this client has the fewest active tasks per thread"
    PREVIOUS_OWNER = "it ran the task before"
    FORMER_STANDBY = "it was a standby of the task before"
    LEAST_LOADED = (
        "it is the least loaded client, or the least loaded one whose tasks do not share a client with this task yet"
    )
    LISTED_OWNER = "it lists the task and ran it before"
    LISTED_STANDBY = "it lists the task and was a standby of it before"
    LISTED = "of the clients that list the task it had the fewest active tasks per thread"
    LISTED_LATER = "it ran the task before, and keeps it until the client that lists it has caught up"
    UNLISTED_OWNER = "no client lists the task, and this one ran it before and is within its fair share"
    UNLISTED = "no client lists the task, and this one was below its fair share"
    BACKUP = "it lists the task or has no list, and is the backup"
    RACKS = "the rack optimiser moved the task there"
    STANDBY_BY_LOAD = "it was among the least loaded clients without a copy when standbys were placed"
    STANDBY_BY_TAGS = (
        "it was among the least loaded of the clients that differ most from the other copies in their tags"
    )
    STANDBY_MOVED = "it is closer to being caught up than the client that the standby is meant for"
    WARMING_UP = "it is the desired client, is not caught up, and warms up now"
    CHANGED_ROLES = "it is the desired client, and its standby becomes the active task when it is caught up"


@dataclass(frozen=True, slots=True)
class Host:
    """A client with a copy of the task.

    ``lag`` is in records (None for stateless tasks), ``load`` in tasks per thread.
    """

    process_id: ProcessId
    rule: Rule
    lag: int | None
    load: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings that limited the decision, and the number of warm-ups placed. Lags in records."""

    acceptable_recovery_lag: int
    max_warmup_replicas: int
    warmups_placed: int
    num_standby_replicas: int


@dataclass(frozen=True, slots=True)
class TaskExplanation:
    """The explanation of one task.

    Attributes:
        desired: the client that shall run the task in the end.
        waiting: clients that need a copy but get none, because the warm-up budget is used up.
        reported: all reported lags, smallest first; None for rules that ignore lags.
        other_lag: the lag of every other client; None for rules that ignore lags.
    """

    task: TaskId
    active: Host
    desired: ProcessId
    limits: Limits
    standbys: tuple[Host, ...] = ()
    waiting: tuple[ProcessId, ...] = ()
    reported: tuple[tuple[ProcessId, int], ...] | None = None
    other_lag: int | None = None
    remarks: tuple[str, ...] = ()
    """Warnings about this task in the log."""

    def __str__(self) -> str:
        lines = [f"{self.task} is active on {_host(self.active)}"]
        if self.desired != self.active.process_id:
            lines.append(f"  it is meant for {self.desired}, which has to catch up first")
        lines += [f"  standby on {_host(host)}" for host in self.standbys]
        limits = self.limits
        lasting = sum(host.rule is not Rule.WARMING_UP for host in self.standbys)
        if self.active.lag is not None and lasting < limits.num_standby_replicas:
            lines.append(
                f"  {lasting} of {limits.num_standby_replicas} standby replicas (num.standby.replicas): "
                "no other client may have a standby now"
            )
        lines += [f"  {remark}" for remark in self.remarks]
        if self.waiting:
            lines.append(
                f"  no copy yet on {', '.join(map(str, self.waiting))}: {limits.warmups_placed} of "
                f"{limits.max_warmup_replicas} warm-up replicas (max.warmup.replicas) are in use; "
                "a later rebalance places it"
            )
        if self.reported is not None:
            shown = [f"client {process_id}: {_lag(lag)}" for process_id, lag in self.reported[:_LAGS_SHOWN]]
            if len(self.reported) > _LAGS_SHOWN:
                shown.append(f"{len(self.reported) - _LAGS_SHOWN} more")
            known = ", ".join(shown) or "none"
            lines.append(
                f"  lags reported, in records: {known}; every other client {_lag(self.other_lag)}; "
                f"caught up means at most {limits.acceptable_recovery_lag} (acceptable.recovery.lag)"
            )
        return "\n".join(lines)


def _host(host: Host) -> str:
    facts = f"{host.load:.2f} tasks per thread"
    if host.lag is not None:
        facts += "; running it" if host.lag == LATEST_OFFSET else f"; lag {_lag(host.lag)}"
    return f"{host.process_id} ({facts}), because {host.rule.value}"


def _lag(lag: int | None) -> str:
    return {LATEST_OFFSET: "running it", UNKNOWN_OFFSET_SUM: "unknown", None: "unknown"}.get(lag, str(lag))
