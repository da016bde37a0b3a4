"""Topics that one answer about the cluster leaves out: kept until a second answer leaves them out too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from kafka.consumer.subscription_state import SubscriptionState
from kafka.net.compat import KafkaNetClient

from streams_py.adapters.kafka_python.classic.coordinator import StreamsCoordinator
from streams_py.adapters.kafka_python.classic.options import MemberOptions


class Watcher:
    """A member that has joined, led its group and assigned, and the answers that its client gets about the cluster."""

    def __init__(self, topics: set[str], pattern: str | None, **there: int) -> None:
        self.client = KafkaNetClient(bootstrap_servers="127.0.0.1:1")
        self.asked_again = 0
        self.coordinator = StreamsCoordinator(
            self.client,
            SubscriptionState("none"),
            SimpleNamespace(),
            SimpleNamespace(wake=lambda: None),
            MemberOptions(cooperative=True, revocation_commit_timeout_ms=500),
            group_id="g",
            enable_auto_commit=False,
            api_version=(4, 0),
        )
        self.coordinator.set_subscription(topics, pattern)
        self.hear(**there)
        self.settle()

    def settle(self) -> None:
        coordinator = self.coordinator
        coordinator._joined_subscription = set(coordinator._subscription.subscription)  # as after a join
        coordinator._assignment_snapshot = coordinator._metadata_snapshot  # as after it has assigned
        coordinator.rejoin_needed = False
        assert not coordinator.need_rejoin()

    def hear(self, **partitions: int) -> None:
        """An answer: topic -> number of partitions."""

        def ask_again() -> None:
            self.asked_again += 1

        cluster = SimpleNamespace(
            unauthorized_topics=set(),
            topics=lambda exclude_internal_topics: set(partitions),
            partitions_for_topic=lambda topic: set(range(partitions[topic])) if topic in partitions else None,
            brokers=lambda: (),
            request_update=ask_again,
        )
        self.coordinator._handle_metadata_update(cluster)  # what the client calls with an answer

    @property
    def subscription(self) -> set[str]:
        return self.coordinator._subscription.subscription  # the coordinator does not show it

    def wants_to_rejoin(self) -> bool:
        return self.coordinator.need_rejoin()


@pytest.fixture
def watcher() -> Iterator[Callable[..., Watcher]]:
    made: list[Watcher] = []

    def make(topics: set[str] | None = None, pattern: str | None = None, **there: int) -> Watcher:
        made.append(Watcher(topics or set(), pattern, **there))
        return made[-1]

    yield make
    for one in made:
        one.client.close()


def test_topics_of_a_pattern_stay_when_one_answer_leaves_them_out(watcher: Callable[..., Watcher]) -> None:
    member = watcher(pattern="t-.*", **{"t-a": 2, "t-b": 1, "other": 1})
    member.hear(other=1)
    assert member.subscription == {"t-a", "t-b"}
    assert not member.wants_to_rejoin()
    assert member.asked_again == 1
    member.hear(**{"t-a": 2, "t-b": 1})
    assert not member.wants_to_rejoin()
    member.hear(**{"t-a": 2})  # it was back: this is a first time again
    assert member.subscription == {"t-a", "t-b"}
    assert not member.wants_to_rejoin()


def test_topics_of_a_pattern_are_given_up_when_a_second_answer_leaves_them_out(watcher: Callable[..., Watcher]) -> None:
    member = watcher(pattern="t-.*", **{"t-a": 2, "t-b": 1})
    member.hear(**{"t-a": 2})
    member.hear(**{"t-a": 2})
    assert member.subscription == {"t-a"}
    assert member.wants_to_rejoin()


def test_new_topic_of_a_pattern_is_taken_up_by_the_answer_that_leaves_another_out(
    watcher: Callable[..., Watcher],
) -> None:
    member = watcher(pattern="t-.*", **{"t-a": 2})
    member.hear(**{"t-new": 1})
    assert member.subscription == {"t-a", "t-new"}


@pytest.mark.parametrize("left", [{}, {"t": 0}, {"t": 2}], ids=["topic", "all-partitions", "one-partition"])
def test_named_topic_is_watched_on_until_a_second_answer_leaves_it_out(
    watcher: Callable[..., Watcher], left: dict[str, int]
) -> None:
    member = watcher({"t"}, t=3)
    member.hear(**left)
    assert not member.wants_to_rejoin()
    assert member.asked_again == 1
    member.hear(**left)
    assert member.wants_to_rejoin()


def test_partition_that_is_added_is_a_reason_to_rejoin_at_once(watcher: Callable[..., Watcher]) -> None:
    member = watcher({"t"}, t=3)
    member.hear(t=4)
    assert member.wants_to_rejoin()
    assert member.asked_again == 0


def test_topics_of_a_former_subscription_are_not_missed(watcher: Callable[..., Watcher]) -> None:
    member = watcher({"t", "gone"}, t=1, gone=1)
    member.coordinator.set_subscription({"t"}, None)
    member.hear(t=1)
    assert member.asked_again == 0
