"""What a coordinator that is started again tells of commits is compared with what it told before."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from streams_py.testing.torture.lost_commits import LostCommits


class Admin:
    """Answers with what the group has committed, or not at all."""

    def __init__(self) -> None:
        self.committed: dict[int, int] | None = {0: 40, 1: 50}
        self.is_slow = False

    def list_consumer_group_offsets(self, asked: list[ConsumerGroupTopicPartitions], **_: Any) -> dict[str, Any]:
        answer: Future[ConsumerGroupTopicPartitions] = Future()
        if self.committed is None:
            answer.set_exception(KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN)))
        elif not self.is_slow:
            found = [TopicPartition("in", number, offset) for number, offset in self.committed.items()]
            answer.set_result(ConsumerGroupTopicPartitions("app", found))
        return {asked[0].group_id: answer}


@pytest.fixture
def admin() -> Admin:
    return Admin()


@pytest.fixture
def commits(admin: Admin) -> LostCommits:
    looking: Any = admin
    commits = LostCommits(looking, "app")
    assert looks(commits, 0, 4) == set()
    return commits


def looks(commits: LostCommits, since: int, until: int) -> set[str]:
    return {said for now_s in range(since, until, 2) if (said := commits.look(now_s)) is not None}


@pytest.mark.parametrize("told", [{0: 30, 1: 50}, {1: 50}], ids=["older", "nothing"])
def test_older_answer_that_stays_is_a_loss(commits: LostCommits, admin: Admin, told: dict[int, int]) -> None:
    admin.committed = told
    assert looks(commits, 4, 20) == set()
    (said,) = looks(commits, 20, 30)
    assert said == f"committed offsets of 1 partitions went back: in-0 from 40 to {told.get(0, -1)}"
    admin.committed = {0: 40, 1: 50}
    assert looks(commits, 30, 80) == set()


def test_loss_is_told_though_other_partitions_go_on(commits: LostCommits, admin: Admin) -> None:
    said = set()
    for now_s in range(4, 40, 2):
        admin.committed = {0: 30, 1: 50 + now_s}
        said |= looks(commits, now_s, now_s + 2)
    assert said == {"committed offsets of 1 partitions went back: in-0 from 40 to 30"}


def test_coordinator_that_goes_on_reading_has_lost_nothing(commits: LostCommits, admin: Admin) -> None:
    for now_s in range(4, 60, 2):
        admin.committed = {0: now_s // 2, 1: 50}
        assert looks(commits, now_s, now_s + 2) == set()
    admin.committed = {0: 41, 1: 51}
    assert looks(commits, 60, 100) == set()


@pytest.mark.parametrize("silence", ["nobody there", "slow"])
def test_who_says_nothing_has_lost_nothing(commits: LostCommits, admin: Admin, silence: str) -> None:
    admin.committed, admin.is_slow = (None, False) if silence == "nobody there" else ({0: 1}, True)
    assert looks(commits, 4, 100) == set()
