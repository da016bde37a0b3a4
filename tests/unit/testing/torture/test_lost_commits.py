"""Committed offsets of a restarted coordinator are compared with the offsets before."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams_py.testing.torture.lost_commits import LostCommits


class Group:
    """Returns its committed offsets, or raises as if no broker were available."""

    def __init__(self) -> None:
        self.committed: dict[int, int] | None = {0: 40, 1: 50}

    def ask(self) -> dict[tuple[str, int], int]:
        if self.committed is None:
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        return {("in", number): offset for number, offset in self.committed.items()}


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def commits(group: Group) -> Iterator[LostCommits]:
    commits = LostCommits(group.ask)
    assert looks(commits, 0, 4) == set()
    yield commits
    commits.close()


def looks(commits: LostCommits, since: int, until: int) -> set[str]:
    said = set()
    for now_s in range(since, until, 2):
        while commits._asked is not None and not commits._asked.done():  # the answer comes on another thread
            time.sleep(0.001)
        if (lost := commits.check(now_s)) is not None:
            said.add(lost)
    return said


@pytest.mark.parametrize("told", [{0: 30, 1: 50}, {1: 50}], ids=["older", "nothing"])
def test_older_answer_that_stays_is_a_loss(commits: LostCommits, group: Group, told: dict[int, int]) -> None:
    group.committed = told
    assert looks(commits, 4, 20) == set()
    (said,) = looks(commits, 20, 30)
    assert said == f"committed offsets of 1 partitions moved backwards: in-0 from 40 to {told.get(0, -1)}"
    group.committed = {0: 40, 1: 50}
    assert looks(commits, 30, 80) == set()


def test_loss_is_told_though_other_partitions_go_on(commits: LostCommits, group: Group) -> None:
    said = set()
    for now_s in range(4, 40, 2):
        group.committed = {0: 30, 1: 50 + now_s}
        said |= looks(commits, now_s, now_s + 2)
    assert said == {"committed offsets of 1 partitions moved backwards: in-0 from 40 to 30"}


def test_loss_is_told_though_a_member_continues_from_what_else_was_lost(commits: LostCommits, group: Group) -> None:
    said = set()
    for now_s in range(4, 40, 2):
        group.committed = {0: 30, 1: 2 + now_s // 2}
        said |= looks(commits, now_s, now_s + 2)
    assert said == {"committed offsets of 1 partitions moved backwards: in-0 from 40 to 30"}


def test_coordinator_that_continues_reading_has_lost_nothing(commits: LostCommits, group: Group) -> None:
    for now_s in range(4, 60, 2):
        group.committed = {0: now_s // 2, 1: 50}
        assert looks(commits, now_s, now_s + 2) == set()
    group.committed = {0: 41, 1: 51}
    assert looks(commits, 60, 100) == set()


def test_who_says_nothing_has_lost_nothing(commits: LostCommits, group: Group) -> None:
    group.committed = None
    assert looks(commits, 4, 100) == set()
