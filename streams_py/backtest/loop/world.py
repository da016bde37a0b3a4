"""The simulated group of one candidate, to which the recorded outside events are applied.

The candidate has placed other tasks and copies than the recorded decision. An event affects the copies that the
candidate has placed on an instance. An instance that leaves takes its copies with it, and still has them when it
returns. A restarted instance has its disk. A share of copies is lost or falls behind: if the record has the same copy,
the loss or lag of that copy applies. Otherwise one is drawn from the copies of the same instance, or from all copies.
The draw is a hash of the event, the instance and the task, so two candidates with the same copy get the same result.

Every event is applied to a group at rest with complete copies, even if the recorded group was not at rest: a recorded
situation does not contain its time.
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

_Sums = dict[TaskId, int]


class CandidateGroup:
    """A simulated group. ``replay`` is its present situation. ``seed`` makes the draws specific to this segment."""

    def __init__(self, start: ReplayInput, seed: str) -> None:
        self.replay = replace(start, decision=None, text=None)
        self._seed = seed
        self._disks: dict[str, _Sums] = {}
        self._number = 0

    def apply(self, event: OutsideEvent) -> ReplayInput:
        """Apply an event and return the resulting situation."""
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
        losses = _CopyLosses(event, f"{self._seed}:{self._number}")
        for name, client in clients.items():
            if name not in new:
                clients[name] = losses.apply_to(client)
        if not clients:  # possible only if the record is damaged: the recorded group had other clients
            clients = {client.client: client for client in self.replay.clients}
        self.replay = ReplayInput(event.configs, True, event.subs, sorted(clients.values(), key=lambda c: c.client))
        return self.replay

    def _found(self, arrived: ReplayClient, ends: Mapping[TaskId, int]) -> _Sums:
        """Return the copies on the disk of a client that joins.

        If it was in this group before, these are its copies at that time, or none if the record shows a new disk.
        Otherwise these are the recorded copies.
        """
        reported = {
            task: ends[task] if value == LATEST_OFFSET else value
            for task, value in zip(arrived.sums.tasks, arrived.sums.v, strict=True)
            if task in ends
        }
        left = self._disks.pop(arrived.client, None)
        if left is None:
            return reported
        return {task: _within(value, ends[task]) for task, value in left.items() if task in ends} if reported else {}


class _CopyLosses:
    """The losses and lags of copies in an event. They are the same for every candidate."""

    def __init__(self, event: OutsideEvent, seed: str) -> None:
        self._seed = seed
        self._known = {
            (name, task): by for name, of in event.copies.items() for task, by in zip(of.tasks, of.v, strict=True)
        }
        self._of_client = {name: tuple(of.v) for name, of in event.copies.items()}
        self._of_all = tuple(by for name in sorted(event.copies) for by in event.copies[name].v)

    def apply_to(self, client: ReplayClient) -> ReplayClient:
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
    """Return the copies on a client's disk. Tasks that have stopped (not in ``running``) are complete."""
    return {
        task: ends[task] if value == LATEST_OFFSET and task not in running else value
        for task, value in zip(client.sums.tasks, client.sums.v, strict=True)
        if task in ends
    }


def _carried(
    client: ReplayClient, tasks: frozenset[TaskId], before: Mapping[TaskId, int], ends: Mapping[TaskId, int]
) -> ReplayClient:
    """Move copies along with the growth of their changelogs, and remove tasks that no longer exist."""
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
    """Replace members, tags and rack of a client. A member that stays keeps the tasks that it owns."""
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
