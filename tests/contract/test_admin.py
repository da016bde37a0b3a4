"""What every Admin does."""

from __future__ import annotations

import pytest

from streams_py.ports import EMBEDDED_CLUSTER_ID, AdminError, AdminErrorKind, TopicCleanup, TopicSpec
from tests.support.contract.port_kit import ALL, Opened, part, until

pytestmark = pytest.mark.parametrize("cluster", ALL, indirect=True)


def kind(answer: object) -> AdminErrorKind:
    assert isinstance(answer, AdminError), answer
    return answer.kind


def test_cluster_has_an_id_that_stays(opened: Opened) -> None:
    cluster_id = opened.admin().cluster_id()
    assert cluster_id
    assert opened.admin().cluster_id() == cluster_id
    assert cluster_id.startswith(EMBEDDED_CLUSTER_ID) is (opened.kind == "embedded")


def test_topics_are_described_with_their_partitions(opened: Opened) -> None:
    topic, admin = opened.topic(3), opened.admin()
    described = admin.describe_topics([topic])[topic]
    assert not isinstance(described, AdminError)
    assert [(info.topic, info.partition) for info in described] == [(topic, 0), (topic, 1), (topic, 2)]
    assert all(info.leader is not None and info.replicas for info in described)
    assert topic in admin.describe_topics()


def test_missing_topic_is_an_answer_and_does_not_appear_by_being_asked_for(opened: Opened) -> None:
    admin = opened.admin()
    for _ in range(2):
        assert kind(admin.describe_topics(["not-there"])["not-there"]) is AdminErrorKind.UNKNOWN_TOPIC
    assert "not-there" not in admin.describe_topics()


def test_topic_is_created_once(opened: Opened) -> None:
    admin, name = opened.admin(), f"{opened.topic()}-created"
    assert admin.create_topics([TopicSpec(name, 5)]) == {name: None}
    until(lambda: not isinstance(admin.describe_topics([name])[name], AdminError), "the topic")
    assert kind(admin.create_topics([TopicSpec(name, 5)])[name]) is AdminErrorKind.ALREADY_EXISTS
    described = admin.describe_topics([name])[name]
    assert len(described) == 5  # type: ignore[arg-type]  # checked above


def test_end_and_first_offsets_are_listed(opened: Opened) -> None:
    topic, admin = opened.topic(), opened.admin()
    opened.fill(topic, 7)
    assert admin.list_offsets([part(topic), part(topic, 1)]) == {part(topic): 7, part(topic, 1): 0}
    assert admin.list_offsets([part(topic)], earliest=True) == {part(topic): 0}
    assert admin.list_offsets([]) == {}


def test_partition_that_is_not_there_is_an_answer_of_its_own(opened: Opened) -> None:
    topic, admin = opened.topic(), opened.admin()
    answers = admin.list_offsets([part(topic), part(topic, 77)])
    assert answers[part(topic)] == 0
    assert kind(answers[part(topic, 77)]) is AdminErrorKind.UNKNOWN_TOPIC


def test_group_that_has_committed_nothing_has_no_offsets(opened: Opened) -> None:
    topic, admin = opened.topic(), opened.admin()
    assert admin.committed_offsets("unused-group", [part(topic)]) == {part(topic): None}
    assert admin.committed_offsets("unused-group", []) == {}


def test_records_are_deleted_up_to_an_offset(opened: Opened) -> None:
    topic, admin = opened.topic(), opened.admin()
    opened.fill(topic, 9)
    admin.delete_records({part(topic): 4})
    admin.delete_records({})
    until(lambda: admin.list_offsets([part(topic)], earliest=True) == {part(topic): 4}, "deletion")
    assert admin.list_offsets([part(topic)]) == {part(topic): 9}


def test_topic_that_is_compacted_says_how_long_it_keeps_deletions(opened: Opened) -> None:
    plain, admin = opened.topic(), opened.admin()
    name = f"{plain}-compacted"
    admin.create_topics([TopicSpec(name, 1, config={"cleanup.policy": "compact", "delete.retention.ms": "1000"})])
    until(lambda: not isinstance(admin.describe_topics([name])[name], AdminError), "the topic")
    kept_ms = 1_000 if opened.kind == "kafka" else None  # the others compact nothing
    assert admin.delete_retention_ms([plain, name]) == {plain: None, name: kept_ms}
    assert admin.delete_retention_ms([]) == {}


def test_cleanup_of_a_topic_is_what_it_was_created_with(opened: Opened) -> None:
    plain, admin = opened.topic(), opened.admin()
    name = f"{plain}-cleaned"
    config = {"cleanup.policy": "compact,delete", "retention.ms": "5000", "retention.bytes": "600"}
    admin.create_topics([TopicSpec(name, 1, config=config)])
    until(lambda: not isinstance(admin.describe_topics([name])[name], AdminError), "the topic")
    found = admin.cleanup([plain, name])
    if opened.kind == "kafka":
        assert found[name] == TopicCleanup(frozenset({"compact", "delete"}), 5_000, 600)
        assert found[plain] == TopicCleanup(frozenset({"delete"}), -1, -1)
    else:
        assert {kind(answer) for answer in found.values()} == {AdminErrorKind.UNSUPPORTED}
    assert admin.cleanup([]) == {}
