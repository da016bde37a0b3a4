"""Follows a group through further rebalances: does it come to rest, and after how many rebalances?

A decision is rarely carried out immediately. A task that another thread owns is withheld until that thread has revoked
it (KIP-429). A task that is warmed up on another client moves when the copy has caught up, which a probing rebalance
checks (KIP-441). So a decision leads to a new situation, which the candidate decides again:

* The next rebalance follows after one second if a task was withheld or the candidate requests an immediate follow-up
  rebalance. Otherwise it follows after ``probing.rebalance.interval.ms``.
* Until then, copies are restored at ``restore_rate``, and changelogs grow at ``produce_rate``.
* A copy that its client should no longer have stays on disk until ``state.cleanup.delay.ms`` has elapsed.

The group is at rest when no task is withheld, no follow-up rebalance is requested, and the decision equals the previous
one (in the first round: the tasks that the clients had). A candidate that is not at rest after 50 rounds may repeat a
circle of decisions; see :mod:`streams_py.member.group_model.rest`. Without a circle it has not finished: the
high-availability assignor with a small ``max.warmup.replicas`` needs a rebalance for every few tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from streams_protocol import UNKNOWN_OFFSET_SUM
from streams_protocol.types import TaskId
from streams_py.backtest.candidates import Chosen
from streams_py.backtest.deciding import Answer, Followup, Placed, ask
from streams_py.backtest.inputs import ReplayClient, ReplayInput
from streams_py.backtest.situation import Situation
from streams_py.events.model import Consumer, OffsetSums, SubtopologySlice
from streams_py.leader.steps.threads import distribute_client, tasks_by_lag
from streams_py.member.group_model.copies import Copies
from streams_py.member.group_model.rest import Rest, Round, follow

_SOON_MS: Final = 1_000
_CLEANUP_MS: Final = 600_000  # Kafka Streams' default


class RoundSettings(NamedTuple):
    """Settings of the rounds.

    Attributes:
        restore_rate: records per second that each task restores.
        produce_rate: records per second that arrive for each task.
        rounds_max: number of rounds after which the simulation stops.
    """

    restore_rate: int = 50_000
    produce_rate: int = 0
    rounds_max: int = 50


class Settled(NamedTuple):
    """Whether the group came to rest. ``problem`` is the answer of a later round that was a failure."""

    rest: Rest
    problem: Answer | None = None


def settle(
    chosen: Chosen,
    situation: Situation,
    first: Answer,
    *,
    seed: int,
    limit_s: float,
    settings: RoundSettings = RoundSettings(),  # noqa: B008  # immutable
    watch: Watch = lambda _situation, _answer, _step: None,
) -> Settled:
    """Carry out the first decision, ask the candidate again, and so on.

    ``watch`` is called with each decision and the step to which it leads.
    """
    answer = first

    def rounds() -> Iterator[Round]:
        nonlocal situation, answer
        number = 0
        previous: Mapping[str, Placed] = {
            name: Placed(tuple(client.prev_active), tuple(client.prev_standby))
            for name, client in situation.clients.items()
        }
        while answer.failure is None:
            number += 1
            step = advance(situation, answer, settings)
            watch(situation, answer, step)
            continues = bool(step.withheld) or answer.followup != Followup.NONE
            yield Round(answer.placed, continues, changed=not _same(answer.placed, previous))
            previous = answer.placed
            situation = Situation(step.replay, chosen.candidate.overrides, situation.plan)
            answer = ask(chosen, situation, seed=seed + number, limit_s=limit_s, once=True)

    rest = follow(rounds(), settings.rounds_max)
    if answer.failure is not None:
        return Settled(rest._replace(rounds=rest.rounds + 1), answer)
    return Settled(rest)


def _same(now: Mapping[str, Placed], before: Mapping[str, Placed]) -> bool:
    """Whether two assignments are equal. Only decisions distinguish warm-ups from standbys, so they count as one."""
    return all(
        of.active == before[name].active
        and sorted((*of.standby, *of.warmup)) == sorted((*before[name].standby, *before[name].warmup))
        for name, of in now.items()
        if name in before
    )


class Step(NamedTuple):
    """The situation after a decision, the tasks that were withheld, and the time until this situation."""

    replay: ReplayInput
    withheld: frozenset[TaskId]
    interval_ms: int


Watch = Callable[[Situation, Answer, Step], None]


def advance(situation: Situation, answer: Answer, settings: RoundSettings) -> Step:
    """Return the situation in which the clients join again."""
    threads = _threads(situation, answer.placed)
    owner = {task: c.member for client in situation.clients.values() for c in client.consumers for task in c.owned}
    withheld = frozenset(task for task, member in threads.items() if owner.get(task, member) != member)
    soon = withheld or answer.followup == Followup.AT_ONCE
    interval_ms = _SOON_MS if soon else situation.configs.probing_rebalance_interval_ms
    ends = {task: _grown(end, settings, interval_ms) for task, end in situation.ends.items()}
    restore_records = settings.restore_rate * interval_ms // 1000
    clients = []
    for client in situation.replay.clients:
        placed = answer.placed.get(client.client, Placed())
        running = [task for task in placed.active if task not in withheld]
        copies = Copies.reported(dict(zip(client.sums.tasks, client.sums.v, strict=True)), ends)
        had = frozenset(copies)
        work = [
            task
            for task in {*placed.active, *placed.standby, *placed.warmup} & ends.keys()
            if task in had or task not in withheld  # a withheld task is not opened until it is handed over
        ]
        copies.restore(work, ends, restore_records)
        copies.keep({*(ends if interval_ms < _CLEANUP_MS else work), *running})
        sums = copies.report(sorted(copies), running=_restored(running, copies, ends))
        clients.append(_rejoined(client, running, threads, sums))
    subs = situation.replay.subs
    if settings.produce_rate:
        subs = [_grown_slice(piece, settings, interval_ms) for piece in subs]
    replay = ReplayInput(situation.replay.configs, situation.replay.lag_ok, subs, clients)
    return Step(replay, withheld, interval_ms)


def _threads(situation: Situation, placed: Mapping[str, Placed]) -> dict[TaskId, str]:
    """Return the consumer that each active task is assigned to, by the leader's own procedure."""
    member_of: dict[TaskId, str] = {}
    table = situation.plan.table
    for name, of in placed.items():
        client = situation.clients[name]
        if len(client.consumers) == 1:
            member_of |= dict.fromkeys(of.active, client.consumers[0].member)
            continue
        lags, reported = situation.lags[name], situation.reported_by(client)
        by_lag = {
            consumer.member: tasks_by_lag(
                (task for task in reported[consumer.member] if task in lags), lags, frozenset(consumer.owned)
            )
            for consumer in client.consumers
        }
        active, _ = distribute_client(
            stateful=[task for task in of.active if table.is_stateful(task)],
            standby=sorted((*of.standby, *of.warmup)),
            stateless=[task for task in of.active if not table.is_stateful(task)],
            consumers=list(reported),
            previous=by_lag.__getitem__,
        )
        member_of |= {task: member for member, tasks in active.items() for task in tasks}
    return member_of


def _restored(running: Sequence[TaskId], copies: Copies, ends: Mapping[TaskId, int]) -> frozenset[TaskId]:
    """Return the active tasks whose state is complete, or that have no state."""
    return frozenset(task for task in running if task not in ends or copies[task] >= ends[task])


def _rejoined(
    before: ReplayClient, running: Sequence[TaskId], threads: Mapping[TaskId, str], sums: Mapping[TaskId, int]
) -> ReplayClient:
    owned: dict[str, list[TaskId]] = {consumer.member: [] for consumer in before.consumers}
    for task in running:
        owned[threads[task]].append(task)
    consumers = [Consumer(c.member, c.version, c.supported, sorted(owned[c.member])) for c in before.consumers]
    mine = set(running)
    return replace(
        before,
        consumers=consumers,
        prev_active=tuple(sorted(mine)),
        prev_standby=tuple(task for task in sums if task not in mine),
        sums=OffsetSums(tuple(sums), tuple(sums.values())),
    )


def _grown(end: int, settings: RoundSettings, interval_ms: int) -> int:
    return end if end == UNKNOWN_OFFSET_SUM else end + settings.produce_rate * interval_ms // 1000


def _grown_slice(piece: SubtopologySlice, settings: RoundSettings, interval_ms: int) -> SubtopologySlice:
    if piece.end is None:
        return piece
    return replace(piece, end=tuple(_grown(end, settings, interval_ms) for end in piece.end))
