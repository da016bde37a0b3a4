"""Topics that would delete what a history writes to them, by age or by size, are named before anything is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streams_py import StreamsBuilder, TimeWindows, serdes
from streams_py.adapters.confluent.answers import TopicRetention
from streams_py.errors import ConfigError
from streams_py.history.bootstrap import BootstrapPlan
from streams_py.history.bootstrap_planning import BootstrapAllowances, make_plan
from streams_py.history.retention import check_retention, check_retention_of, check_state_retention
from tests.support.history.bootstrap import APP, CHANGELOG, CONFIG, Cluster, planned

RANGES = [("lines", 0, 2, 5), ("lines", 1, 0, 0)]
SINKS = {"totals": 2, "others": 1}


def test_outputs_that_their_topic_deletes_because_of_their_age_are_refused() -> None:
    cluster = Cluster()
    cluster.kept = {"totals": TopicRetention(3_000, -1)}
    check_retention(cluster, SINKS, RANGES, now_ms=5_000)
    with pytest.raises(
        ConfigError, match=r"totals keeps records for 0:00:03 \(its retention.ms = 3000\).*lines-0 has old"
    ):
        check_retention(cluster, SINKS, RANGES, now_ms=5_001)
    check_retention(cluster, {"others": 1}, RANGES, now_ms=1_000_000)
    with pytest.raises(
        ConfigError, match=r"older .*raise retention.ms until consumers have read them, or pass --accept-retent"
    ):
        check_retention(cluster, SINKS, RANGES, now_ms=1_000_000)


def test_outputs_as_large_as_what_is_read_are_refused_where_their_topic_keeps_less() -> None:
    cluster = Cluster()
    for least in (500, -1):  # 2 partitions of 500 bytes, or no limit
        cluster.kept = {"totals": TopicRetention(-1, least)}
        check_retention(cluster, SINKS, RANGES, now_ms=1_000_000)
    cluster.kept = {"totals": TopicRetention(-1, 499)}
    with pytest.raises(ConfigError) as refused:
        check_retention(cluster, SINKS, RANGES, now_ms=1_000_000)
    said = str(refused.value)
    assert "topic totals keeps 499 bytes of each of its 2 partitions (its retention.bytes = 499)" in said
    assert "the input partitions take 1,000 bytes" in said
    assert said.endswith("raise retention.bytes (-1 = no limit), or pass --accept-retention")
    cluster.size = None
    with pytest.raises(
        ConfigError, match=r"retention.bytes = 499.*the size of the input partitions is unknown: .*DESCRIBE"
    ):
        check_retention(cluster, SINKS, RANGES, now_ms=1_000_000)
    cluster.kept = {}
    check_retention(cluster, SINKS, RANGES, now_ms=1_000_000)


def test_outputs_of_archives_are_refused_for_their_age_and_for_their_size() -> None:
    kept = {"totals": TopicRetention(3_000, 400), "others": TopicRetention(-1, -1)}
    oldest = {"others": 9_000, "lines": 2_000}
    check_retention_of(kept, SINKS, oldest, 800, now_ms=5_000)
    with pytest.raises(ConfigError, match=r"totals keeps .*but the archive of lines has older.*--accept-retention"):
        check_retention_of(kept, SINKS, {**oldest, "lines": 1_999}, 800, now_ms=5_000)
    with pytest.raises(
        ConfigError, match=r"retention.bytes = 400\), but the archives have 801 bytes .*--accept-retention"
    ):
        check_retention_of(kept, SINKS, oldest, 801, now_ms=5_000)


def windowed(**config: str) -> BootstrapPlan:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("lines").group_by_key().windowed_by(TimeWindows.of(50)).count(store="counts")
    settings: Any = {**CONFIG, **{f"topic.{key.replace('_', '.')}": value for key, value in config.items()}}
    return make_plan("app:topology", builder.build(), APP, settings, Cluster(), BootstrapAllowances())[0]


def test_changelog_of_windows_that_is_to_delete_by_size_is_refused() -> None:
    cluster = Cluster()
    check_state_retention(cluster, windowed(), now_ms=10**13)
    check_state_retention(cluster, windowed(retention_bytes="500"), now_ms=10**13)
    with pytest.raises(
        ConfigError, match=f"topic {CHANGELOG} keeps 499 bytes of each of its 2 part.*--accept-retention"
    ):
        check_state_retention(cluster, windowed(retention_bytes="499"), now_ms=10**13)


def test_changelog_that_is_there_counts_as_it_is_unless_it_is_made_again() -> None:
    cluster, plan = Cluster(), windowed(retention_bytes="1")
    cluster.topics[CHANGELOG] = 2
    cluster.kept = {CHANGELOG: TopicRetention(1, -1)}
    check_state_retention(cluster, plan, now_ms=10**13)  # by age windows go anyway
    with pytest.raises(ConfigError, match=r"keeps 1 bytes"):
        check_state_retention(cluster, replace(plan, replace=True), now_ms=10**13)


@pytest.mark.parametrize(
    ("kept", "said"),
    [(TopicRetention(3_000, -1), "retention.ms = 3000"), (TopicRetention(-1, 499), "retention.bytes = 499")],
)
def test_changelog_that_deletes_although_it_should_not_is_refused(kept: TopicRetention, said: str) -> None:
    cluster = Cluster()
    plan = planned(cluster)
    cluster.kept = {CHANGELOG: kept}
    check_state_retention(cluster, plan, now_ms=1_000_000)  # it is not there
    cluster.topics[CHANGELOG] = 2
    with pytest.raises(ConfigError, match=f"topic {CHANGELOG} keeps .*{said}"):
        check_state_retention(cluster, plan, now_ms=1_000_000)
    check_state_retention(cluster, replace(plan, replace=True), now_ms=1_000_000)
