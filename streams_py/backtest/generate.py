"""Generates synthetic histories of a group with joins, losses and restarts, without a cluster.

The group starts without state. When it is at rest, and sometimes before, an event happens: an instance joins, leaves,
or restarts with its state, or copies fall behind. Then the group rebalances until it is at rest, as in
:mod:`~streams_py.backtest.rounds`, with the high-availability assignor. Each of its situations, with the decision, is a
line. The same numbers and seed give the same bytes.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.registry import assignor_name
from streams_py.backtest.candidates import CONFIG_KEYS, Candidate, choose
from streams_py.backtest.deciding import Answer, Followup, ask
from streams_py.backtest.inputs import ClientDecision, RecordedDecision, ReplayClient, ReplayInput
from streams_py.backtest.rounds import RoundSettings, advance
from streams_py.backtest.situation import Plan, Situation
from streams_py.backtest.what_if import apply_what_if
from streams_py.errors import ConfigError
from streams_py.events.model import Assignor, Consumer, OffsetSums, Racks, SubtopologySlice

__all__ = ["History", "generate"]

_VERSION: Final = 11
_SUBS_MAX: Final = 4
_REPLICAS: Final = 2
_HASTE: Final = 0.1
_ASSIGNOR: Final = Assignor(assignor_name(HighAvailabilityAssignor), None, custom=False)


@dataclass(frozen=True, slots=True)
class History:
    """The parameters of a history.

    ``tasks`` are distributed to up to four sub-topologies. The first one is stateless if there are several. Instances
    have ``threads`` threads and are distributed to ``zones`` (tag and rack ``zone``). ``records`` is the mean length of
    a changelog partition.
    """

    tasks: int = 100
    clients: int = 10
    threads: int = 2
    zones: Sequence[str] = ("a", "b", "c")
    standbys: int = 1
    warmups: int = 8
    records: int = 1_000_000
    acceptable_lag: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("tasks", "clients", "threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")


def generate(history: History, count: int) -> Iterator[str]:
    """Yield ``count`` situations, as canonical texts."""
    source = random.Random(history.seed)
    high_availability = choose(Candidate("ha", "builtin:high_availability"))
    replay = _cold(history, source)
    plan = Plan(replay.subs)
    settings = RoundSettings(produce_rate=source.randrange(1, 50))
    for number in range(count):
        situation = Situation(replay, plan=plan)
        answer = ask(high_availability, situation, seed=0, limit_s=0, once=True)
        yield replace(replay, decision=_recorded(answer)).canonical()
        step = advance(situation, answer, settings)
        replay = step.replay
        is_at_rest = not step.withheld and answer.followup == Followup.NONE
        if is_at_rest or (not step.withheld and source.random() < _HASTE):
            changed = apply_what_if(replay, _event(history, len(replay.clients), source), seed=number)
            replay = _renamed(changed, replay, number, source)


def _event(history: History, clients: int, source: random.Random) -> str:
    events = ["rolling(1)", f"lag_storm(p99={source.choice((1e3, 1e5, 1e6)):g})", "drop_state(share=0.05)"]
    if clients > max(1, history.clients // 2):
        events += ["remove_clients(1)"] * 3
    if clients < history.clients * 3 // 2 + 1:
        events += ["add_clients(1)"] * 3
    return source.choice(events)


def _renamed(replay: ReplayInput, before: ReplayInput, number: int, source: random.Random) -> ReplayInput:
    """Give new instances unique ids and member names, because ``add_clients`` repeats its names.

    A restarted instance keeps its id, which is on its disk, and gets new members.
    """
    ran = {client.client for client in before.clients if client.prev_active}
    clients = []
    for client in replay.clients:
        is_new = client.consumers[0].member.startswith("new-")
        if is_new or (client.client in ran and not client.prev_active):
            name = _process(source) if is_new else client.client
            consumers = [
                replace(consumer, member=f"{name}-StreamThread-{thread}-consumer-{number}")
                for thread, consumer in enumerate(client.consumers, 1)
            ]
            client = replace(client, client=name, consumers=consumers)
        clients.append(client)
    return replace(replay, clients=sorted(clients, key=lambda client: client.client))


def _process(source: random.Random) -> str:
    return str(uuid.UUID(int=source.getrandbits(128), version=4))


def _cold(history: History, source: random.Random) -> ReplayInput:
    clients = []
    for number in range(history.clients):
        name = _process(source)
        zone = history.zones[number % len(history.zones)] if history.zones else None
        consumers = [
            Consumer(f"{name}-StreamThread-{thread}-consumer", _VERSION, _VERSION, ())
            for thread in range(1, history.threads + 1)
        ]
        tags = {} if zone is None else {"zone": zone}
        clients.append(ReplayClient(name, None, zone, tags, consumers, (), (), OffsetSums((), ())))
    return ReplayInput(
        configs=dict.fromkeys(CONFIG_KEYS)
        | {
            "acceptable.recovery.lag": history.acceptable_lag,
            "max.warmup.replicas": history.warmups,
            "num.standby.replicas": history.standbys,
            "probing.rebalance.interval.ms": 600_000,
            "rack.aware.assignment.strategy": "none",
            "rack.aware.assignment.tags": ["zone"] if history.zones else [],
        },
        lag_ok=True,
        subs=_subs(history, source),
        clients=sorted(clients, key=lambda client: client.client),
    )


def _subs(history: History, source: random.Random) -> list[SubtopologySlice]:
    count = min(_SUBS_MAX, history.tasks)
    subs = []
    for sub in range(count):
        partitions = history.tasks // count + (sub < history.tasks % count)
        is_stateful = sub > 0 or count == 1
        ends = [round(history.records * source.lognormvariate(0, 0.5)) for _ in range(partitions)]
        topics = [f"input-{sub}", *([f"app-store-{sub}-changelog"] if is_stateful else [])]
        subs.append(
            SubtopologySlice(
                sub=str(sub),
                first=0,
                count=partitions,
                stateful=is_stateful,
                logged=is_stateful,
                stores=[f"store-{sub}"] if is_stateful else [],
                sources=topics[:1],
                changelogs=topics[1:],
                end=ends if is_stateful else None,
                racks=_racks(history, topics, partitions, source),
            )
        )
    return subs


def _racks(history: History, topics: Sequence[str], partitions: int, source: random.Random) -> Racks | None:
    if not history.zones:
        return None
    names = sorted(set(history.zones))
    replicas = min(_REPLICAS, len(names))
    places = range(len(names))
    return Racks(
        names, {topic: [sorted(source.sample(places, replicas)) for _ in range(partitions)] for topic in topics}
    )


def _recorded(answer: Answer) -> RecordedDecision:
    return RecordedDecision(_ASSIGNOR, {name: ClientDecision(*placed) for name, placed in answer.placed.items()})
