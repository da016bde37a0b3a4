"""The group of one candidate, while the recorded outside events happen to it.

The candidate has placed other tasks and copies than the record tells of. What happens to an instance happens to
whatever it has there: who is gone takes everything along, and has it still when it returns; who starts anew has its
disk; a share of copies is lost or falls behind. Where the record has the same copy, it is that copy's fate. For any
other one, the fates of the same instance's copies are drawn from, else of all: by a number made from the event, the
instance and the task, so that two candidates with the same copy share its fate.

An event finds the group at rest, with every copy complete, also where the recorded group was still on its way: when
it was is not in a recorded situation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from streams_protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from streams_protocol.types import TaskId
from streams_py.backtest.inputs import ReplayClient, ReplayInput, tasks_of
from streams_py.backtest.loop.outside import LOST, OutsideEvent
from streams_py.backtest.situation import ends_of
from streams_py.events.model import Consumer, OffsetSums

__all__ = ["World"]

_Sums = dict[TaskId, int]


class World:
    """``replay`` is the group as it would report itself now. ``seed`` makes the draws those of this segment."""

    def __init__(self, start: ReplayInput, seed: str) -> None:
        self.replay = replace(start, decision=None, text=None)
        self._seed = seed
        self._disks: dict[str, _Sums] = {}
        self._number = 0

    def strike(self, event: OutsideEvent) -> ReplayInput:
        """The situation that the event makes of this group."""
        self._number += 1
        before, ends = ends_of(self.replay.subs), ends_of(event.subs)
        tasks = frozenset(tasks_of(event.subs))
        clients = {client.client: client for client in self.replay.clients}
        for name in event.gone:
            left = clients.pop(name, None)
            if left is not None:
                self._disks[name] = _stopped(left, before, frozenset())
        new: set[str] = set()
        for name, client in list(clients.items()):
            clients[name] = _carried(client, tasks, before, ends)
        for arrived in event.came:
            name = arrived.client
            if name in clients:
                clients[name] = _with_members(clients[name], arrived, ends)
            else:
                clients[name] = _holding(arrived, self._found(arrived, ends), frozenset())
                new.add(name)
        fates = _Fates(event, f"{self._seed}:{self._number}")
        for name, client in clients.items():
            if name not in new:
                clients[name] = fates.befall(client)
        if not clients:  # the record went on with others: cannot be, unless it is damaged
            clients = {client.client: client for client in self.replay.clients}
        self.replay = ReplayInput(event.configs, True, event.subs, sorted(clients.values(), key=lambda c: c.client))
        return self.replay

    def _found(self, arrived: ReplayClient, ends: Mapping[TaskId, int]) -> _Sums:
        """What is on the disk of a client that joins: what this group left there, if the record says that it kept its
        disk; what the record says, if it was never here."""
        reported = {
            task: ends[task] if value == LATEST_OFFSET else value
            for task, value in zip(arrived.sums.tasks, arrived.sums.v, strict=True)
            if task in ends
        }
        left = self._disks.pop(arrived.client, None)
        if left is None:
            return reported
        return {task: _within(value, ends[task]) for task, value in left.items() if task in ends} if reported else {}


class _Fates:
    """What becomes of each copy in an event; the same for every candidate."""

    def __init__(self, event: OutsideEvent, seed: str) -> None:
        self._seed = seed
        self._known = {
            (name, task): by for name, of in event.copies.items() for task, by in zip(of.tasks, of.v, strict=True)
        }
        self._of_client = {name: tuple(of.v) for name, of in event.copies.items()}
        self._of_all = tuple(by for name in sorted(event.copies) for by in event.copies[name].v)

    def befall(self, client: ReplayClient) -> ReplayClient:
        if not self._of_all:
            return client
        sums: _Sums = {}
        for task, value in zip(client.sums.tasks, client.sums.v, strict=True):
            by = 0 if value == LATEST_OFFSET else self._of(client.client, task)
            if by != LOST:
                sums[task] = value if value in (LATEST_OFFSET, UNKNOWN_OFFSET_SUM) else max(value - by, 0)
        return _holding(client, sums, frozenset(client.prev_active))

    def _of(self, name: str, task: TaskId) -> int:
        known = self._known.get((name, task))
        if known is not None:
            return known
        drawn_from = self._of_client.get(name) or self._of_all
        digest = hashlib.sha256(f"{self._seed}\0{name}\0{task}".encode()).digest()
        return drawn_from[int.from_bytes(digest[:8], "big") % len(drawn_from)]


def _stopped(client: ReplayClient, ends: Mapping[TaskId, int], running: frozenset[TaskId]) -> _Sums:
    """What it has on its disk; what was running there, but for ``running``, up to the end."""
    return {
        task: ends[task] if value == LATEST_OFFSET and task not in running else value
        for task, value in zip(client.sums.tasks, client.sums.v, strict=True)
        if task in ends
    }


def _carried(
    client: ReplayClient, tasks: frozenset[TaskId], before: Mapping[TaskId, int], ends: Mapping[TaskId, int]
) -> ReplayClient:
    """Changelogs have grown, and copies have kept up with them. Tasks that do not exist any more are gone."""
    sums: _Sums = {}
    for task, value in zip(client.sums.tasks, client.sums.v, strict=True):
        if task not in tasks:
            continue
        if task in ends and task in before and value >= 0 and UNKNOWN_OFFSET_SUM not in (before[task], ends[task]):
            value = max(ends[task] - max(before[task] - value, 0), 0)
        sums[task] = value
    consumers = [
        replace(consumer, owned=tuple(t for t in consumer.owned if t in tasks)) for consumer in client.consumers
    ]
    active = tuple(task for task in client.prev_active if task in tasks)
    return _holding(replace(client, consumers=consumers, prev_active=active), sums, frozenset(active))


def _with_members(client: ReplayClient, arrived: ReplayClient, ends: Mapping[TaskId, int]) -> ReplayClient:
    """Other members, tags or rack: a member that was there before still owns what it owned."""
    owned = {consumer.member: consumer.owned for consumer in client.consumers}
    consumers: Sequence[Consumer] = [
        replace(consumer, owned=tuple(owned.get(consumer.member, ()))) for consumer in arrived.consumers
    ]
    active = frozenset(task for consumer in consumers for task in consumer.owned)
    sums = _stopped(client, ends, active)
    moved = replace(arrived, consumers=consumers, prev_active=tuple(sorted(active)))
    return _holding(moved, sums, active)


def _within(value: int, end: int) -> int:
    return value if UNKNOWN_OFFSET_SUM in (value, end) else min(value, end)


def _holding(client: ReplayClient, sums: Mapping[TaskId, int], active: frozenset[TaskId]) -> ReplayClient:
    tasks = tuple(sorted(sums))
    return replace(
        client,
        sums=OffsetSums(tasks, tuple(sums[task] for task in tasks)),
        prev_standby=tuple(task for task in tasks if task not in active),
    )
