"""Topics that the leader watches: new topics, also those that its own assignment creates, and patterns."""

from __future__ import annotations

import time

import pytest

from streams_protocol.types import TopicPartition

pytestmark = pytest.mark.broker


def test_no_second_rebalance_when_the_assignment_itself_creates_a_topic(group, until):
    member, thread = group.join(start=False, metadata_max_age_ms=200)
    created = f"{group.topic}-repartition"
    thread.before_assign = lambda: group.broker.create_topic(created, 2)
    thread.partitions = [*group.partitions, TopicPartition(created, 0), TopicPartition(created, 1)]
    member.start()
    member.subscribe(frozenset({group.topic, created}))
    until(lambda: thread.rounds == 1, "the assignment")
    watched_until = time.monotonic() + 1.0  # several refreshes of the metadata
    until(lambda: time.monotonic() > watched_until, "a while")
    assert member.group_metadata().generation == 1
    assert len(thread.owned) == 8


def test_leader_assigns_again_when_a_missing_source_topic_appears(group, until):
    member, thread = group.join(start=False, metadata_max_age_ms=200)
    late = f"{group.topic}-late"
    member.start()
    member.subscribe(frozenset({group.topic, late}))
    until(lambda: thread.rounds == 1, "the assignment without the topic")
    group.broker.create_topic(late, 1)
    until(lambda: thread.rounds == 2, "the assignment with the topic")


def test_pattern_matches_whole_names_and_takes_up_new_topics(group, until):
    member, thread = group.join(start=False, metadata_max_age_ms=200)
    asked: list[frozenset[str]] = []
    inner = thread.subscription_user_data
    thread.subscription_user_data = lambda topics, *of: asked.append(topics) or inner(topics, *of)
    group.broker.create_topic(f"{group.topic}-b-tail", 1)
    member.start()
    member.subscribe(frozenset(), pattern=f"{group.topic}(-b)?")
    until(lambda: thread.rounds, "the first assignment")
    until(lambda: asked[-1] == {group.topic}, "the one topic that matches")
    group.broker.create_topic(f"{group.topic}-b", 1)
    until(lambda: asked[-1] == {group.topic, f"{group.topic}-b"}, "the new topic")
