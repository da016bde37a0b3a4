"""What becomes of a group that goes on asking: does it come to rest, and after how many rebalances?

A decision is seldom carried out at once. A task that another thread owns is withheld until that one has given it up
(KIP-429); a task that is warmed up elsewhere moves when the copy has caught up, which a probing rebalance looks for
(KIP-441). So a decision leads to a new situation, about which the candidate is asked again:

* one second later when a task was withheld or the candidate wants another look at once, else after
  ``probing.rebalance.interval.ms``;
* copies have caught up by then, by so many records a second, and changelogs have grown, if records arrive;
* a copy that its client is not to have any more is still on its disk, until ``state.cleanup.delay.ms`` has gone by.

The group is at rest when nothing is withheld, nobody wants another look, and the decision is the one before it (for the
first round: what the clients had). When a candidate is not at rest after 50 rounds and its last decisions repeat, it is
going round in circles, and the length of the smallest one is reported. A length of 1 is a candidate that has decided,
but asks for another rebalance for ever. Without a circle it is still on its way: the high-availability assignor with a
small ``max.warmup.replicas`` needs a rebalance for every few tasks.

There are two kinds of circles. Most candidates that have one change their mind whenever they are asked, but leave the
group alone in between: such a group rests until something happens. A circle in which every decision leads to the next
rebalance is *endless*: the group never works in peace again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from streams_protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from streams_protocol.types import TaskId
from streams_py.backtest.candidates import Chosen
from streams_py.backtest.deciding import Answer, Followup, Placed, ask
from streams_py.backtest.inputs import ReplayClient, ReplayInput
from streams_py.backtest.situation import Situation
from streams_py.events.model import Consumer, OffsetSums, SubtopologySlice
from streams_py.leader.steps.decode import consumer_order
from streams_py.leader.steps.threads import distribute_client

__all__ = ["RoundSettings", "Settled", "Step", "Watch", "advance", "settle"]

_SOON_MS: Final = 1_000
_CLEANUP_MS: Final = 600_000  # Kafka Streams' default


class RoundSettings(NamedTuple):
    """``restore_rate`` and ``produce_rate`` in records a second for each task; ``rounds_max`` is when to give up."""

    restore_rate: int = 50_000
    produce_rate: int = 0
    rounds_max: int = 50


class Settled(NamedTuple):
    """``cycle`` is the length of the circle, None when there is none; ``endless`` whether the group is never left
    alone. ``problem`` is the answer of a later round with which nothing could be done."""

    rounds: int
    stable: bool
    cycle: int | None = None
    endless: bool = False
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
    """Carry the first decision out, ask again, and so on. ``watch`` hears of each decision and of what it leads to."""
    history: list[Mapping[str, Placed]] = []
    goes_on: list[bool] = []
    previous: Mapping[str, Placed] = {
        name: Placed(tuple(client.prev_active), tuple(client.prev_standby))
        for name, client in situation.clients.items()
    }
    answer = first
    for number in range(1, settings.rounds_max + 1):
        step = advance(situation, answer, settings)
        watch(situation, answer, step)
        if not step.withheld and answer.followup == Followup.NONE and _same(answer.placed, previous):
            return Settled(number, stable=True)
        history.append(answer.placed)
        goes_on.append(bool(step.withheld) or answer.followup != Followup.NONE)
        previous = answer.placed
        if number == settings.rounds_max:
            break
        situation = Situation(step.replay, chosen.candidate.overrides, situation.plan)
        answer = ask(chosen, situation, seed=seed + number, limit_s=limit_s, once=True)
        if answer.failure is not None:
            return Settled(number + 1, stable=False, problem=answer)
    cycle = _cycle(history)
    endless = cycle is not None and all(goes_on[len(goes_on) // 2 :])
    return Settled(settings.rounds_max, stable=False, cycle=cycle, endless=endless)


def _same(now: Mapping[str, Placed], before: Mapping[str, Placed]) -> bool:
    """Warm-ups and standbys are told apart by the decision only, so they count as one."""
    return all(
        of.active == before[name].active
        and sorted((*of.standby, *of.warmup)) == sorted((*before[name].standby, *before[name].warmup))
        for name, of in now.items()
        if name in before
    )


def _cycle(history: Sequence[Mapping[str, Placed]]) -> int | None:
    """The smallest length by which the second half of the decisions repeats itself."""
    tail = history[len(history) // 2 :]
    for length in range(1, len(tail) // 2 + 1):
        if all(tail[at] == tail[at - length] for at in range(length, len(tail))):
            return length
    return None


class Step(NamedTuple):
    """The situation after a decision, the tasks that were withheld in it, and how long it is until then."""

    replay: ReplayInput
    withheld: frozenset[TaskId]
    interval_ms: int


Watch = Callable[[Situation, Answer, Step], None]


def advance(situation: Situation, answer: Answer, settings: RoundSettings) -> Step:
    """What the clients report when they join again."""
    threads = _threads(situation, answer.placed)
    owner = {task: c.member for client in situation.clients.values() for c in client.consumers for task in c.owned}
    withheld = frozenset(task for task, member in threads.items() if owner.get(task, member) != member)
    soon = withheld or answer.followup == Followup.AT_ONCE
    interval_ms = _SOON_MS if soon else situation.configs.probing_rebalance_interval_ms
    ends = {task: _grown(end, settings, interval_ms) for task, end in situation.ends.items()}
    clients = [
        _rejoined(
            _Client(client, answer.placed.get(client.client, Placed())), threads, withheld, ends, settings, interval_ms
        )
        for client in situation.replay.clients
    ]
    subs = situation.replay.subs
    if settings.produce_rate:
        subs = [_grown_slice(piece, settings, interval_ms) for piece in subs]
    replay = ReplayInput(situation.replay.configs, situation.replay.lag_ok, subs, clients)
    return Step(replay, withheld, interval_ms)


def _threads(situation: Situation, placed: Mapping[str, Placed]) -> dict[TaskId, str]:
    """Consumer that each active task is meant for, by the leader's own procedure."""
    member_of: dict[TaskId, str] = {}
    table = situation.plan.table
    for name, of in placed.items():
        client = situation.clients[name]
        if len(client.consumers) == 1:
            member_of |= dict.fromkeys(of.active, client.consumers[0].member)
            continue
        lags = situation.lags[name]
        consumers = sorted((consumer.member for consumer in client.consumers), key=consumer_order)
        owned = {consumer.member: frozenset(consumer.owned) for consumer in client.consumers}
        elsewhere = {task for tasks in owned.values() for task in tasks}
        reported = {
            member: [t for t in lags if t in owned[member] or (n == 0 and t not in elsewhere)]
            for n, member in enumerate(consumers)
        }
        by_lag = {
            member: sorted(tasks, key=lambda task: (task not in owned[member], lags[task], task))  # used at once
            for member, tasks in reported.items()
        }
        active, _ = distribute_client(
            stateful=[task for task in of.active if table.is_stateful(task)],
            standby=sorted((*of.standby, *of.warmup)),
            stateless=[task for task in of.active if not table.is_stateful(task)],
            consumers=consumers,
            previous=by_lag.__getitem__,
        )
        member_of |= {task: member for member, tasks in active.items() for task in tasks}
    return member_of


@dataclass(frozen=True, slots=True)
class _Client:
    before: ReplayClient
    placed: Placed


def _rejoined(
    client: _Client,
    threads: Mapping[TaskId, str],
    withheld: frozenset[TaskId],
    ends: Mapping[TaskId, int],
    settings: RoundSettings,
    interval_ms: int,
) -> ReplayClient:
    before, placed = client.before, client.placed
    running = [task for task in placed.active if task not in withheld]
    copies = {*placed.standby, *placed.warmup, *(task for task in placed.active if task in withheld)}
    sums: dict[TaskId, int] = {}
    reported = dict(zip(before.sums.tasks, before.sums.v, strict=True))
    for task, value in reported.items():
        if value == LATEST_OFFSET:  # given up, or about to be: what is on the disk
            reported[task] = ends.get(task, UNKNOWN_OFFSET_SUM)
    for task in running:
        if task in ends:
            done = _restored(reported.get(task, 0), ends[task], settings, interval_ms)
            sums[task] = LATEST_OFFSET if done >= ends[task] else done
        elif task in reported:
            sums[task] = LATEST_OFFSET
    for task in sorted(copies & ends.keys()):
        if task in reported or task not in withheld:  # a withheld task is not opened before it is handed over
            sums[task] = _restored(reported.get(task, 0), ends[task], settings, interval_ms)
    if interval_ms < _CLEANUP_MS:
        for task, value in reported.items():
            if task in ends:
                sums.setdefault(task, value)
    owned: dict[str, list[TaskId]] = {consumer.member: [] for consumer in before.consumers}
    for task in running:
        owned[threads[task]].append(task)
    consumers = [Consumer(c.member, c.version, c.supported, sorted(owned[c.member])) for c in before.consumers]
    tasks = sorted(sums)
    mine = set(running)
    return replace(
        before,
        consumers=consumers,
        prev_active=tuple(sorted(mine)),
        prev_standby=tuple(task for task in tasks if task not in mine),
        sums=OffsetSums(tuple(tasks), tuple(sums[task] for task in tasks)),
    )


def _restored(done: int, end: int, settings: RoundSettings, interval_ms: int) -> int:
    if UNKNOWN_OFFSET_SUM in (done, end):
        return UNKNOWN_OFFSET_SUM
    return min(end, (0 if done > end else done) + settings.restore_rate * interval_ms // 1000)


def _grown(end: int, settings: RoundSettings, interval_ms: int) -> int:
    return end if end == UNKNOWN_OFFSET_SUM else end + settings.produce_rate * interval_ms // 1000


def _grown_slice(piece: SubtopologySlice, settings: RoundSettings, interval_ms: int) -> SubtopologySlice:
    if piece.end is None:
        return piece
    return replace(piece, end=tuple(_grown(end, settings, interval_ms) for end in piece.end))
