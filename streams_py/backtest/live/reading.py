"""Reads the present situation of a running group, as if it rebalanced now.

The situation is the same that a leader would record (:mod:`~streams_py.inspection.question`). It consists of the
subscriptions that members would send if they joined again now, and of the offsets and topics of the cluster. Reading it
does not join the group and changes nothing. The present assignment counts as the recorded decision. A member that waits
for another one to revoke a task does not have this task.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from streams_protocol.types import TaskId
from streams_py.backtest.inputs import ClientDecision, RecordedDecision, ReplayClient, ReplayInput, check_input
from streams_py.events.contents import clients_of, slices_of
from streams_py.events.model import Assignor, ClientPart
from streams_py.events.reasons import Reasons
from streams_py.events.rebalance import recorded_configs
from streams_py.inspection.deciding import decide
from streams_py.inspection.gather import Cluster
from streams_py.inspection.labels import labels_of, last_rebalance
from streams_py.inspection.question import last_question, leader_settings, next_question, observed_configs, topology_of
from streams_py.inspection.reasons import read_group_at_rest
from streams_py.inspection.view import CopyKind, GroupView

_RUNNING_GROUP: Final = Assignor("the running group", None, custom=True)


@dataclass(frozen=True, slots=True)
class Present:
    """The present situation of a group.

    Attributes:
        group: the group.
        situation: the situation.
        labels: client -> a letter.
        members: client -> its client id and host.
        assumed: sentences about facts that are not visible from outside and are assumed.
    """

    group: str
    situation: ReplayInput
    labels: Mapping[str, str]
    members: Mapping[str, str]
    assumed: tuple[str, ...]


def present_situation(cluster: Cluster, group: str, *, configs: Mapping[str, object]) -> Present:
    """Read the present situation of a group, within a few seconds.

    Args:
        cluster: the cluster.
        group: the group.
        configs: known settings of the group, by Kafka's keys. Other settings are derived from the group if possible.
            Otherwise they have Kafka's defaults.

    Raises:
        StreamsError: the group does not exist, has no members, or does not come to rest.
    """
    reading = read_group_at_rest(cluster, group)
    view = reading.view
    observed = observed_configs(view)
    settings = leader_settings(view, {**observed, **configs}, None)
    topology, assumed = topology_of(reading)
    now_ms = time.time_ns() // 1_000_000
    last = decide(cluster.admin, group, last_question(reading, topology, now_ms), settings)
    question = next_question(reading, topology, now_ms, last.gathered.ends.sums)
    answer = decide(cluster.admin, group, question, settings)
    facts, decided = answer.gathered, answer.decided
    reasons = Reasons(facts, decided, is_custom=True, assignor=None)
    parts = clients_of("", facts, decided, answer.assignments, reasons, future=settings.future_process_id)
    situation = ReplayInput(
        recorded_configs(settings.assignment),
        facts.ends.failed is None,
        slices_of(facts, {}),
        [_client(part) for part in parts],
        RecordedDecision(_RUNNING_GROUP, _held(view)),
    )
    check_input(situation)
    letters = labels_of(view).processes
    known = [member for member in view.members if member.subscription is not None]
    shown = ", ".join(f"{key}={_text(value)}" for key, value in observed.items() if key not in configs)
    told = (f"derived from the tasks of the members: {shown}",) if shown else ()
    return Present(
        group,
        situation,
        {str(member.process): letters[member.process] for member in known},
        {str(member.process): f"{member.client_id} at {member.host}" for member in known},
        (*told, *_about_copies(view, now_ms), *assumed, *dict.fromkeys(answer.warnings)),
    )


def _about_copies(view: GroupView, now_ms: int) -> tuple[str, ...]:
    if not any(task.copies for task in view.tasks):
        return ()
    return (f"copies have the lags of {last_rebalance(view, now_ms)}; they may need less time now",)


def _client(part: ClientPart) -> ReplayClient:
    return ReplayClient(
        part.client, part.host, part.rack, part.tags, part.consumers, part.prev_active, part.prev_standby, part.sums
    )


def _held(view: GroupView) -> dict[str, ClientDecision]:
    """Return the tasks that each client runs, and its copies."""
    process = {member.member_id: member.process for member in view.members if member.subscription is not None}
    held: dict[str, tuple[list[TaskId], list[TaskId], list[TaskId]]] = {name: ([], [], []) for name in process.values()}
    for task in sorted(view.tasks, key=lambda task: task.id):
        if task.owner in process:
            held[process[task.owner]][0].append(task.id)
        for copy in task.copies:
            if copy.member_id in process:
                held[process[copy.member_id]][1 if copy.kind is CopyKind.STANDBY else 2].append(task.id)
    return {name: ClientDecision(tasks[0], tasks[1], tasks[2]) for name, tasks in held.items()}


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
