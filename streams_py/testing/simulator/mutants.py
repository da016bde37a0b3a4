"""Planted bugs (mutants): runs with them must fail, which shows that the checkers work.

Most mutants change the assignments of a correct leader. Others change, for example, which commits the coordinator
accepts, or when a consumer rejoins. Each breaks one promise and, where possible, no other, so that only the checker of
that promise can find it. Some are active only while faults are injected, because afterwards other checkers would also
report their consequences.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from streams_protocol import LATEST_SUPPORTED_VERSION, AssignmentInfo, encode_assignment_info, error_assignment, pair
from streams_protocol.types import TaskId, TopicPartition
from streams_py.ports import MemberAssignment, MemberSubscription
from streams_py.testing.simulator.releases import sent_assignment, understood


class When(Enum):
    """The time at which a planted bug is active."""

    ALWAYS = "always"
    CHAOS = "while faults are injected"
    ASSIGNOR_FAILED = "while faults are injected, when the application's assignor has failed"
    NOTHING_NEW = "in the rebalance without any change"


@dataclass(slots=True)
class _Sending:
    """Assignments that a correct leader is about to send, and the subscriptions that it received."""

    assignments: dict[str, MemberAssignment]
    infos: dict[str, AssignmentInfo]
    """Decoded assignments, only of members that receive tasks and no error code."""
    members: Mapping[str, MemberSubscription]
    rng: random.Random

    def claimed(self, name: str) -> frozenset[TopicPartition]:
        """Return the partitions that the member claims to own."""
        return frozenset(self.members[name].owned)

    def process(self, name: str) -> object:
        """Return the identity of the member's process."""
        info = understood(self.members[name].user_data, LATEST_SUPPORTED_VERSION)
        return name if info is None else info.process_id

    def pairs(self, name: str) -> list[tuple[TopicPartition, TaskId]]:
        """Return the member's partitions, each with its task."""
        return list(pair(self.assignments[name].partitions, self.infos[name].active_tasks))

    def write(self, name: str, info: AssignmentInfo) -> None:
        """Replace the member's user data."""
        self.infos[name] = info
        self.assignments[name] = self.assignments[name]._replace(user_data=encode_assignment_info(info))

    def write_pairs(self, name: str, pairs: list[tuple[TopicPartition, TaskId]]) -> None:
        """Replace the member's active tasks."""
        self.assignments[name] = MemberAssignment(tuple(tp for tp, _ in pairs), b"")
        self.write(name, replace(self.infos[name], active_tasks=tuple(task for _, task in pairs)))

    def take(self, name: str, task: TaskId) -> list[tuple[TopicPartition, TaskId]]:
        """Remove an active task from the member; return its partitions."""
        pairs = self.pairs(name)
        self.write_pairs(name, [each for each in pairs if each[1] != task])
        return [each for each in pairs if each[1] == task]

    def move(self, task: TaskId, donor: str, other: str) -> None:
        """Move an active task from one member to another."""
        self.write_pairs(other, sorted(self.pairs(other) + self.take(donor, task)))

    def active(self) -> Iterator[tuple[str, TaskId]]:
        """Yield all active tasks, starting with the member that has the most."""
        for name in sorted(self.infos, key=lambda name: (-len(self.infos[name].active_tasks), name)):
            for task in self.infos[name].active_tasks:
                yield name, task

    def others(self, name: str) -> list[str]:
        """Return the other members that receive tasks."""
        return sorted(self.infos.keys() - {name})


_Spoil = Callable[[_Sending], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug: the promise that it breaks, and its change of the assignments (None: the bug is elsewhere)."""

    promise: str
    spoil: _Spoil | None = None
    when: When = When.ALWAYS


def plant(
    mutant: str | None,
    assignments: Mapping[str, MemberAssignment],
    members: Mapping[str, MemberSubscription],
    rng: random.Random,
) -> Mapping[str, MemberAssignment]:
    """Return the assignments that a leader with that bug would send."""
    spoil = MUTANTS[mutant].spoil if mutant is not None else None
    if spoil is None:
        return assignments
    infos = {
        name: info
        for name, sent in assignments.items()
        if (info := sent_assignment(sent.user_data)) is not None and not info.error_code
    }
    sending = _Sending(dict(assignments), infos, members, rng)
    if infos:
        spoil(sending)
    return sending.assignments


# -- A1: one active of each task -----------------------------------------------------------------------------


def _lose_a_task(sending: _Sending) -> None:
    """Omit a task from the assignment of a member that did not own it before."""
    for name in sorted(sending.infos):
        claimed = sending.claimed(name)
        for tp, task in sending.pairs(name):
            if tp not in claimed:
                sending.take(name, task)
                return


def _task_twice(sending: _Sending) -> None:
    for donor, task in sending.active():
        for other in sending.others(donor)[:1]:
            own = [each for each in sending.pairs(donor) if each[1] == task]
            sending.write_pairs(other, sorted(sending.pairs(other) + own))
            return


# -- A2: standbys --------------------------------------------------------------------------------------------


def _standby_with_active(sending: _Sending) -> None:
    for name, task in sending.active():
        info = sending.infos[name]
        inputs = frozenset(tp for tp, each in sending.pairs(name) if each == task)
        sending.write(name, replace(info, standby_tasks={**info.standby_tasks, task: inputs}))
        return


def _standby_forgotten(sending: _Sending) -> None:
    """Remove one standby from all assignments and host maps."""
    for name in sorted(sending.infos):
        for task, inputs in sorted(sending.infos[name].standby_tasks.items()):
            for each, info in list(sending.infos.items()):
                standbys = {other: tps for other, tps in info.standby_tasks.items() if other != task}
                hosts = {host: tps - inputs for host, tps in info.standby_partitions_by_host.items()}
                sending.write(each, replace(info, standby_tasks=standbys, standby_partitions_by_host=hosts))
            return


# -- A3: one owner -------------------------------------------------------------------------------------------


def _hand_over_too_early(sending: _Sending) -> None:
    """Assign a task without standbys to another member in the same generation in which its owner loses it."""
    standbys = {task for info in sending.infos.values() for task in info.standby_tasks}
    for donor, task in sending.active():
        idle = [name for name in sending.others(donor) if not sending.infos[name].active_tasks]
        mine = {tp for tp, each in sending.pairs(donor) if each == task}
        if task not in standbys and idle and mine <= sending.claimed(donor):
            sending.move(task, donor, idle[0])
            return


# -- A5 to A8 --------------------------------------------------------------------------------------------------


def _never_at_rest(sending: _Sending) -> None:
    for name, info in list(sending.infos.items()):
        sending.write(name, replace(info, next_rebalance_ms=0))


def _chance_decides(sending: _Sending) -> None:
    """Move a task without an owner to another thread of the same client, at random."""
    for name in sorted(sending.infos):
        siblings = [other for other in sending.others(name) if sending.process(other) == sending.process(name)]
        for tp, task in sending.pairs(name):
            if siblings and tp not in sending.claimed(name) and sending.rng.random() < 0.5:
                sending.move(task, name, siblings[0])
                return


def _take_for_nothing(sending: _Sending) -> None:
    """Make one member that keeps all its partitions give up a task for one generation."""
    for name in sorted(sending.infos):
        tasks = sending.infos[name].active_tasks
        if tasks and frozenset(sending.assignments[name].partitions) == sending.claimed(name):
            sending.take(name, tasks[0])
            return


def _move_for_nothing(sending: _Sending) -> None:
    """In a stable group one member gives up a task, which the next assignment gives to the wrong member."""
    claims = {name: sending.claimed(name) for name in sending.infos}
    if all(frozenset(sending.assignments[name].partitions) == claims[name] for name in claims):
        _take_for_nothing(sending)
        return
    claimed = frozenset().union(*claims.values())
    names = sorted(sending.infos)
    for name, other in zip(names, names[1:] + names[:1], strict=True):
        for tp, task in sending.pairs(name):
            if tp not in claimed and name != other:
                sending.move(task, name, other)
                return


def _wrong_version(sending: _Sending) -> None:
    for name, info in list(sending.infos.items()):
        if info.version > 7:
            sending.write(name, replace(info, version=info.version - 1))


# -- L1, L2 ------------------------------------------------------------------------------------------------------


def _no_answer(sending: _Sending) -> None:
    for name in sending.assignments:
        sending.assignments[name] = MemberAssignment((), b"")


_SOME_ERROR: Final = 2


def _punish_the_neighbour(sending: _Sending) -> None:
    """If a member is unreadable, also send an error to another member, one that keeps its tasks."""
    if sending.infos.keys() == sending.assignments.keys():
        return
    for name, info in sorted(sending.infos.items()):
        if set(sending.assignments[name].partitions) == sending.claimed(name) and not info.standby_tasks:
            sending.assignments[name] = MemberAssignment((), encode_assignment_info(error_assignment(_SOME_ERROR)))
            return


ACCEPT_EVERY_COMMIT: Final = "accept every commit"
CRASH_ON_GARBAGE: Final = "crash on garbage"
LATE_TO_REJOIN: Final = "late to rejoin"
GIVE_UP_FOR_NOTHING: Final = "give up for nothing"
BELIEVE_EVERY_ANSWER: Final = "believe every answer"
CHECKPOINT_FIRST: Final = "checkpoint before the flush"

MUTANTS: Final[Mapping[str, Mutant]] = {
    "lose a task": Mutant("A1", _lose_a_task, When.CHAOS),
    "task twice": Mutant("A1", _task_twice),
    "standby with active": Mutant("A2", _standby_with_active),
    "standby forgotten": Mutant("A2", _standby_forgotten, When.CHAOS),
    "hand over too early": Mutant("A3", _hand_over_too_early, When.CHAOS),
    ACCEPT_EVERY_COMMIT: Mutant("A4"),
    "never at rest": Mutant("A5", _never_at_rest),
    "chance decides": Mutant("A6", _chance_decides, When.CHAOS),
    "move for nothing": Mutant("A7", _move_for_nothing, When.NOTHING_NEW),
    "wrong version": Mutant("A8", _wrong_version, When.CHAOS),
    "half an assignment": Mutant("A11", _take_for_nothing, When.ASSIGNOR_FAILED),
    "no answer": Mutant("L1", _no_answer),
    LATE_TO_REJOIN: Mutant("L1"),
    CRASH_ON_GARBAGE: Mutant("L2"),
    "punish the neighbour": Mutant("L2", _punish_the_neighbour, When.CHAOS),
    BELIEVE_EVERY_ANSWER: Mutant("S1"),
    CHECKPOINT_FIRST: Mutant("S1"),
    GIVE_UP_FOR_NOTHING: Mutant("I1"),
}
"""All planted bugs by name."""
