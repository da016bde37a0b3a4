"""Properties of every round of every group, with random workers, lists, faults and connectors."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams_py.connect.assignment.cooperative import Round
from streams_py.connect.assignment.jobs import NOTHING, Jobs, union
from tests.support.connect.trace import D, Group

NAMES = "abcd"
WORKERS = tuple(f"w{number}" for number in range(8))

seeds = st.integers(0, 2**32 - 1)


def some_list(chance: random.Random, group: Group) -> Jobs | None:
    """None, an empty list, or some jobs, of which some do not exist."""
    if chance.random() < 0.4:
        return None
    known = [*sorted(group.all_jobs.connectors), *NAMES]
    tasks = sorted(group.all_jobs.tasks)
    return Jobs.of(
        chance.sample(known, chance.randint(0, 2)), chance.sample(tasks, min(len(tasks), chance.randint(0, 4)))
    )


@dataclass(frozen=True)
class Event:
    """A change between two rounds. It is the same for every group that it is applied to."""

    name: str
    play: Callable[[Group], None]
    delivered: bool = True


def events(chance: random.Random, group: Group, *, lists: bool) -> Iterator[Event]:
    """Yield actions endlessly. Only reads ``group``."""
    while True:
        kind = chance.choice("join join leave stale configure clock leader lost".split())
        absent = [name for name in WORKERS if name not in group.held]
        present = sorted(group.held)
        if kind in ("join", "stale") and absent:
            name, listed = chance.choice(absent), some_list(chance, group) if lists else None
            report = NOTHING
            if kind == "stale" and present:
                report = group.held[chance.choice(present)]

            def join(to: Group, name: str = name, listed: Jobs | None = listed, report: Jobs = report) -> None:
                to.held[name], to.listed[name] = report, listed

            yield Event(kind, join)
        elif kind == "leave" and len(present) > 1:
            gone = chance.choice(present)
            yield Event(kind, lambda to, gone=gone: to.leave(gone))  # type: ignore[misc]
        elif kind == "configure":
            name, count = chance.choice(NAMES), chance.choice([None, 0, 1, 2, 3, 5])

            def configure(to: Group, name: str = name, count: int | None = count) -> None:
                to.configured.pop(name, None)
                if count is not None:
                    to.configured[name] = count

            yield Event(kind, configure)
        elif kind == "clock":
            step = chance.choice([1, 1_000, D // 2, D])

            def wait(to: Group, step: int = step) -> None:
                to.now += step

            yield Event(kind, wait)
        elif kind == "leader":
            yield Event(kind, Group.new_leader)
        elif kind == "lost":
            yield Event(kind, lambda to: None, delivered=False)


def started(chance: random.Random, *, lists: bool, static: bool = True) -> Group:
    group = Group({name: chance.randint(0, 4) for name in NAMES[: chance.randint(0, 4)]}, static=static)
    for name in WORKERS[: chance.randint(1, 3)]:
        group.held[name], group.listed[name] = NOTHING, some_list(chance, group) if lists else None
    return group


def check_round(group: Group, done: Round, before: dict[str, Jobs]) -> None:
    """Check the state after a delivered round in which lists apply."""
    active = union(before.values())
    listed = {name: jobs for name, jobs in group.listed.items() if jobs is not None}
    for name, jobs in listed.items():
        assert not group.held[name] - jobs, "a static worker runs only what it lists"
    static_jobs = union(listed.values()) & group.all_jobs
    owned, revoked = union(group.held.values()), union(done.revoked.values())
    assert not static_jobs - owned - revoked, "a static job with a lister is owned, or revoked in this round"
    assert not union(done.new.values()) & active


def check_settled(group: Group) -> None:
    listed = {name: jobs for name, jobs in group.listed.items() if jobs is not None}
    wildcard = [name for name in group.held if name not in listed]
    static_jobs = union(listed.values()) & group.all_jobs
    held = list(group.held.values())
    assert sum(map(len, union(held))) == sum(len(part) for jobs in held for part in jobs), "one owner each"
    for name in wildcard:
        assert not group.held[name] & static_jobs
    if wildcard:
        assert union(held) == group.all_jobs
        for kind in (0, 1):
            counts = [len(group.held[name][kind]) for name in wildcard]
            assert max(counts) - min(counts) <= 1, "wildcard jobs are even over wildcard workers"
    else:
        assert union(held) == static_jobs


@settings(max_examples=60)
@given(seeds)
def test_every_round_keeps_the_promises_of_static_placement_and_the_group_settles(seed: int) -> None:
    chance = random.Random(seed)
    group = started(chance, lists=True)
    source = events(chance, group, lists=True)
    for _ in range(15):
        event = next(source)
        event.play(group)
        before = dict(group.held)
        done = group.round(delivered=event.delivered)
        if event.delivered:
            check_round(group, done, before)
    assert group.settle() <= 6
    check_settled(group)


@settings(max_examples=40)
@given(seeds)
def test_without_lists_the_static_protocol_decides_as_the_sessioned_one(seed: int) -> None:
    chance = random.Random(seed)
    ours = started(chance, lists=False)
    theirs = Group(ours.configured, static=False)
    theirs.held, theirs.listed = dict(ours.held), dict(ours.listed)
    source = events(chance, ours, lists=False)
    for _ in range(20):
        event = next(source)
        event.play(ours)
        event.play(theirs)
        assert ours.round(delivered=event.delivered) == theirs.round(delivered=event.delivered)


@settings(max_examples=40)
@given(seeds)
def test_one_member_without_the_static_protocol_makes_all_lists_count_for_nothing(seed: int) -> None:
    chance = random.Random(seed)
    ours = started(chance, lists=True, static=False)
    theirs = Group(ours.configured, static=False)
    theirs.held, theirs.listed = dict(ours.held), dict.fromkeys(ours.held)
    for _ in range(5):
        assert ours.round().owned == theirs.round().owned


@settings(max_examples=40)
@given(seeds)
def test_unknown_jobs_in_lists_change_nothing(seed: int) -> None:
    chance = random.Random(seed)
    ours = started(chance, lists=True)
    theirs = Group(ours.configured, static=True)
    unknown = Jobs.of(["nope"], [])
    theirs.held = dict(ours.held)
    theirs.listed = {name: None if jobs is None else jobs | unknown for name, jobs in ours.listed.items()}
    for _ in range(4):
        assert ours.round() == theirs.round()


@settings(max_examples=40)
@given(seeds)
def test_the_order_in_which_members_are_given_does_not_matter(seed: int) -> None:
    chance = random.Random(seed)
    ours = started(chance, lists=True)
    theirs = Group(dict(reversed(ours.configured.items())), static=True)
    theirs.held = dict(reversed(ours.held.items()))
    theirs.listed = dict(reversed(ours.listed.items()))
    for _ in range(4):
        assert ours.round() == theirs.round()


@pytest.mark.parametrize("workers", [2, 7])
def test_each_worker_can_have_exactly_one_job(workers: int) -> None:
    group = Group(dict.fromkeys((f"c{number}" for number in range(workers)), 0), static=True)
    for number in range(workers):
        group.listed[f"w{number}"], group.held[f"w{number}"] = Jobs.of([f"c{number}"]), NOTHING
    group.settle()
    assert {name: set(jobs.connectors) for name, jobs in group.held.items()} == {
        f"w{number}": {f"c{number}"} for number in range(workers)
    }
