"""Internal topics whose cleanup policy differs from what stores and tasks require."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from streams_py.errors import BrokerUnavailableError
from streams_py.ports import AdminError, AdminErrorKind, TopicCleanup
from streams_py.runtime.group.classic.topic_cleanup import Required, mismatch, required_cleanup
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.physical.metadata import InternalTopicKind
from tests.support.runtime.world import Steps, World, counting

CHANGELOG = "app-counts-changelog"
WEEK_MS = 604_800_000
COMPACTED = {"cleanup.policy": "compact"}
EXPIRING = {"cleanup.policy": "compact,delete", "retention.ms": "90000"}
UNREPLACED = {"cleanup.policy": "delete", "retention.ms": "90000"}
REPARTITION = {"cleanup.policy": "delete", "retention.ms": "-1"}


def cleanup(policy: str, retention_ms: int = WEEK_MS, retention_bytes: int = -1) -> TopicCleanup:
    return TopicCleanup(frozenset(filter(None, policy.split(","))), retention_ms, retention_bytes)


def said(config: Mapping[str, str], found: TopicCleanup) -> str | None:
    is_repartition = config is REPARTITION
    kind = InternalTopicKind.REPARTITION if is_repartition else InternalTopicKind.CHANGELOG
    return mismatch("t", Required(kind, config), found)


@pytest.mark.parametrize(
    ("config", "found", "parts"),
    [
        (COMPACTED, cleanup("delete"), ["cleanup.policy=delete", f"retention.ms={WEEK_MS}", "misses the keys"]),
        (COMPACTED, cleanup("compact,delete"), ["cleanup.policy=compact,delete", "misses the keys"]),
        (COMPACTED, cleanup("delete", -1, 500), ["retention.bytes=500", "misses the keys"]),
        (COMPACTED, cleanup("delete", -1), ["cleanup.policy=delete, but", "grows"]),
        (COMPACTED, cleanup(""), ["cleanup.policy=, but", "grows"]),
        (EXPIRING, cleanup("compact"), ["policy=[compact,delete]", "expired records"]),
        (EXPIRING, cleanup("delete", 90_000), ["=[compact,delete]", "keeps every update"]),
        (EXPIRING, cleanup("compact,delete", 89_999), ["requires retention.ms=90000", "still needs"]),
        (EXPIRING, cleanup("compact,delete", -1, 7), ["requires retention.bytes=-1", "still needs"]),
        (UNREPLACED, cleanup("compact"), ["cleanup.policy=delete", "records that the store"]),
        (UNREPLACED, cleanup("compact,delete"), ["compaction removes records that the store"]),
        (UNREPLACED, cleanup("delete", 1), ["requires retention.ms=90000"]),
        (REPARTITION, cleanup("compact"), ["repartition topic t", "before they are processed", "without a key"]),
        (REPARTITION, cleanup("delete"), ["requires retention.ms=-1", "before they are processed"]),
    ],
)
def test_topic_with_another_cleanup_is_named_with_value_and_remedy(
    config: Mapping[str, str], found: TopicCleanup, parts: list[str]
) -> None:
    text = said(config, found)
    assert text is not None
    for part in (*parts, "topic t has", "kafka-configs --alter --entity-type topics --entity-name t --add-config"):
        assert part in text


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (COMPACTED, cleanup("compact")),
        (COMPACTED, cleanup("compact,delete", -1)),
        (EXPIRING, cleanup("compact,delete", 90_000)),
        (EXPIRING, cleanup("compact,delete", -1)),
        ({**EXPIRING, "retention.bytes": "100"}, cleanup("compact,delete", -1, 100)),
        ({"cleanup.policy": "delete", "retention.ms": "soon"}, cleanup("delete", 1)),
        (UNREPLACED, cleanup("delete", 90_001)),
        ({**COMPACTED, "cleanup.policy": "delete, compact", "retention.ms": "5"}, cleanup("delete,compact", 5)),
        (REPARTITION, cleanup("delete", -1)),
    ],
)
def test_topic_with_the_required_cleanup_or_a_more_lasting_one_is_fine(
    config: Mapping[str, str], found: TopicCleanup
) -> None:
    assert said(config, found) is None


def test_source_topic_that_serves_as_changelog_must_be_compacted() -> None:
    builder = StreamsBuilder()
    builder.table("people", materialized=Materialized("people"))
    topology = builder.build({"topology.optimization": "all"})
    required = required_cleanup(topology.metadata("app", {}, available_topics=["people"]))
    text = mismatch("people", required["people"], cleanup("delete"))
    assert text is not None
    assert "source topic people has cleanup.policy=delete" in text
    assert "the changelog of a table (topology.optimization), but requires cleanup.policy=compact" in text


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING and r.name == "streams_py.leader"]


@pytest.fixture
def steps(tmp_path: Path) -> Steps:
    return Steps(World(**{"in": 2}), counting(), tmp_path)


def lead(steps: Steps) -> None:
    steps.membership.lead()
    steps.instance.group._cleanup.wait()  # the check has a thread of its own


def test_leader_warns_once_of_a_changelog_that_brokers_delete(steps: Steps, caplog: pytest.LogCaptureFixture) -> None:
    steps.world.cleanup[CHANGELOG] = cleanup("delete")
    lead(steps)
    [text] = warnings(caplog)
    assert f"changelog topic {CHANGELOG} has cleanup.policy=delete" in text
    lead(steps)
    assert len(warnings(caplog)) == 1
    assert steps.world.cleanup_requests == [[CHANGELOG]]


def test_start_continues_when_configurations_may_not_be_read(steps: Steps, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "streams_py.leader")
    steps.world.cleanup[CHANGELOG] = AdminError(AdminErrorKind.NOT_ALLOWED, "no right DESCRIBE_CONFIGS on topic it")
    lead(steps)
    steps.turn(4)
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RUNNING"}
    assert warnings(caplog) == []
    assert "cleanup.policy of 1 internal topics is not checked: no right DESCRIBE_CONFIGS" in caplog.text
    lead(steps)
    assert len(steps.world.cleanup_requests) == 1


@pytest.mark.parametrize("is_silent", [False, True])
def test_next_rebalance_asks_again_when_nobody_could_say(
    steps: Steps, is_silent: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_silent:

        def silent(topics: object) -> object:
            raise BrokerUnavailableError("no answer")

        monkeypatch.setattr(steps.instance.admin, "cleanup", silent)
    else:
        steps.world.cleanup[CHANGELOG] = AdminError(AdminErrorKind.TIMED_OUT, "later")
    lead(steps)
    monkeypatch.undo()
    steps.world.cleanup[CHANGELOG] = cleanup("delete")
    assert warnings(caplog) == []
    lead(steps)
    assert len(warnings(caplog)) == 1
