"""Planted bugs: runs that must fail, to show that the checkers look.

Each canary spoils what a correct leader sends (or, for one, what the coordinator accepts) in a way that breaks one
promise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from streams_protocol import AssignmentInfo, DecodeError, decode_assignment_info, encode_assignment_info, pair
from streams_protocol.types import TaskId
from streams_py.ports import MemberAssignment, MemberSubscription

__all__ = ["CANARIES", "plant"]

Assignments = dict[str, MemberAssignment]
Infos = dict[str, AssignmentInfo]
_Spoil = Callable[[Assignments, Infos, Mapping[str, MemberSubscription], random.Random], None]


def plant(
    canary: str | None,
    assignments: Mapping[str, MemberAssignment],
    members: Mapping[str, MemberSubscription],
    rng: random.Random,
) -> Mapping[str, MemberAssignment]:
    """The assignments as a leader with that bug would send them."""
    spoil = _SPOILERS.get(canary or "")
    if spoil is None:
        return assignments
    infos: Infos = {}
    for name, sent in assignments.items():
        try:
            info = decode_assignment_info(sent.user_data)
        except DecodeError:
            continue
        if not info.error_code:
            infos[name] = info
    spoiled = dict(assignments)
    if infos:
        spoil(spoiled, infos, members, rng)
    return spoiled


def _write(assignments: Assignments, name: str, info: AssignmentInfo) -> None:
    assignments[name] = assignments[name]._replace(user_data=encode_assignment_info(info))


def _without(assignments: Assignments, infos: Infos, name: str, task: TaskId) -> MemberAssignment:
    kept = [(tp, t) for tp, t in pair(assignments[name].partitions, infos[name].active_tasks) if t != task]
    info = replace(infos[name], active_tasks=tuple(t for _, t in kept))
    return MemberAssignment(tuple(tp for tp, _ in kept), encode_assignment_info(info))


def _with(assignments: Assignments, infos: Infos, name: str, task: TaskId, donor: str) -> MemberAssignment:
    mine = list(pair(assignments[name].partitions, infos[name].active_tasks))
    mine += [(tp, t) for tp, t in pair(assignments[donor].partitions, infos[donor].active_tasks) if t == task]
    mine.sort()
    info = replace(infos[name], active_tasks=tuple(t for _, t in mine))
    return MemberAssignment(tuple(tp for tp, _ in mine), encode_assignment_info(info))


def _busiest(infos: Infos) -> str | None:
    name = max(sorted(infos), key=lambda name: len(infos[name].active_tasks))
    return name if infos[name].active_tasks else None


def _lose_a_task(assignments: Assignments, infos: Infos, members: Mapping[str, object], rng: random.Random) -> None:
    """A task is forgotten, for members that did not have it before."""
    for name in sorted(infos):
        claimed = set(members[name].owned)  # type: ignore[attr-defined]  # subscriptions
        for tp, task in pair(assignments[name].partitions, infos[name].active_tasks):
            if tp not in claimed:
                assignments[name] = _without(assignments, infos, name, task)
                return


def _task_twice(assignments: Assignments, infos: Infos, members: Mapping[str, object], rng: random.Random) -> None:
    donor = _busiest(infos)
    other = next((name for name in sorted(infos) if name != donor), None)
    if donor and other:
        assignments[other] = _with(assignments, infos, other, infos[donor].active_tasks[0], donor)


def _hand_over_at_once(
    assignments: Assignments, infos: Infos, members: Mapping[str, object], rng: random.Random
) -> None:
    donor = _busiest(infos)
    other = next((name for name in sorted(infos) if name != donor), None)
    if donor and other and rng.random() < 0.5:
        task = infos[donor].active_tasks[0]
        taken = _with(assignments, infos, other, task, donor)
        assignments[donor] = _without(assignments, infos, donor, task)
        assignments[other] = taken


def _standby_beside_active(
    assignments: Assignments, infos: Infos, members: Mapping[str, object], rng: random.Random
) -> None:
    name = _busiest(infos)
    if name:
        task = infos[name].active_tasks[0]
        inputs = frozenset(tp for tp, t in pair(assignments[name].partitions, infos[name].active_tasks) if t == task)
        _write(assignments, name, replace(infos[name], standby_tasks={**infos[name].standby_tasks, task: inputs}))


def _never_at_rest(assignments: Assignments, infos: Infos, members: Mapping[str, object], rng: random.Random) -> None:
    for name, info in infos.items():
        _write(assignments, name, replace(info, next_rebalance_ms=0))


def _chance(assignments: Assignments, infos: Infos, members: Mapping[str, object], rng: random.Random) -> None:
    name = min(infos)
    _write(assignments, name, replace(infos[name], next_rebalance_ms=2**62 + rng.randrange(10**9)))


def _take_for_nothing(
    assignments: Assignments, infos: Infos, members: Mapping[str, object], rng: random.Random
) -> None:
    """Now and then a member has to give up a task for one generation."""
    for name in sorted(infos):
        claimed = set(members[name].owned)  # type: ignore[attr-defined]  # subscriptions
        tasks = infos[name].active_tasks
        if tasks and set(assignments[name].partitions) == claimed:
            assignments[name] = _without(assignments, infos, name, tasks[0])
            return


def _move_for_nothing(
    assignments: Assignments, infos: Infos, members: Mapping[str, object], rng: random.Random
) -> None:
    """When all is at rest somebody has to give up a task; what nobody has goes to another member than it should."""
    claims = {name: frozenset(members[name].owned) for name in infos}  # type: ignore[attr-defined]  # subscriptions
    if all(frozenset(assignments[name].partitions) == claims[name] for name in infos):
        _take_for_nothing(assignments, infos, members, rng)
        return
    claimed = frozenset().union(*claims.values())
    names = sorted(infos)
    for name, other in zip(names, names[1:] + names[:1], strict=True):
        for tp, task in pair(assignments[name].partitions, infos[name].active_tasks):
            if tp not in claimed and name != other:
                taken = _with(assignments, infos, other, task, name)
                assignments[name] = _without(assignments, infos, name, task)
                assignments[other] = taken
                return


def _wrong_version(assignments: Assignments, infos: Infos, members: Mapping[str, object], rng: random.Random) -> None:
    for name, info in infos.items():
        if info.version > 7:
            _write(assignments, name, replace(info, version=info.version - 1))


def _half_an_assignment(
    assignments: Assignments, infos: Infos, members: Mapping[str, object], rng: random.Random
) -> None:
    _take_for_nothing(assignments, infos, members, rng)


def _no_answer(assignments: Assignments, infos: Infos, members: Mapping[str, object], rng: random.Random) -> None:
    for name in list(assignments):
        assignments[name] = MemberAssignment((), b"")


_SPOILERS: Final[Mapping[str, _Spoil]] = {
    "lose a task": _lose_a_task,
    "task twice": _task_twice,
    "standby beside active": _standby_beside_active,
    "hand over at once": _hand_over_at_once,
    "never at rest": _never_at_rest,
    "chance decides": _chance,
    "move for nothing": _move_for_nothing,
    "wrong version": _wrong_version,
    "half an assignment": _half_an_assignment,
    "no answer": _no_answer,
}

CANARIES: Final[Mapping[str, str]] = {
    "lose a task": "A1",
    "task twice": "A1",
    "standby beside active": "A2",
    "hand over at once": "A3",
    "accept every commit": "A4",
    "never at rest": "A5",
    "chance decides": "A6",
    "move for nothing": "A7",
    "wrong version": "A8",
    "half an assignment": "A11",
    "no answer": "L1",
    "crash on garbage": "L2",
}
"""Planted bugs, and the promise that each one breaks."""
