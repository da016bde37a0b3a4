"""Whether a new version can continue with the state of an old one: results for changed programs, and the messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streams_py import StreamsBuilder, Topology, check_upgrade, serdes
from streams_py.errors import TopologyError
from streams_py.topology.declare.windows import TimeWindows
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.upgrade import Level, UpgradeReport, check_running
from tests.conformance.programs import program_of
from tests.conformance.upgrades import Pair, pairs

VECTORS = Path(__file__).parents[3] / "vectors" / "topology" / "describe.jsonl"


@pytest.fixture(scope="module")
def all_pairs() -> list[Pair]:
    return list(pairs())


def judged(found: list[tuple[Pair, UpgradeReport]]) -> tuple[list[str], list[str]]:
    """Return the ids of unsafe changes that were reported as safe, and of false alarms."""
    return (
        [pair.id for pair, report in found if report.safe and not pair.safe],
        [pair.id for pair, report in found if pair.safe and not report.safe],
    )


def test_changed_programs_are_judged_right(all_pairs: list[Pair]) -> None:
    assert len(all_pairs) >= 1000
    assert 0.3 < sum(pair.safe for pair in all_pairs) / len(all_pairs) < 0.7
    false_safe, false_alarms = judged([(pair, check_upgrade(pair.old, pair.new)) for pair in all_pairs])
    assert false_safe == []
    assert false_alarms == []


@pytest.mark.parametrize("text_of", ["old", "both"])
def test_changes_of_names_are_found_in_descriptions_too(all_pairs: list[Pair], text_of: str) -> None:
    about_names = [pair for pair in all_pairs if pair.names]
    assert len(about_names) >= 200
    reports = [
        (pair, check_upgrade(pair.old.describe(), pair.new.describe() if text_of == "both" else pair.new))
        for pair in about_names
    ]
    assert judged(reports) == ([], [])


def test_descriptions_by_java_are_safe_to_go_on_from() -> None:
    for line in VECTORS.read_text("utf-8").splitlines():
        case = json.loads(line)
        program = program_of(case["id"])
        new = program.make(program.optimization)
        report = check_upgrade(case["describe"], new)
        assert report.findings == (), case["id"]
        assert report.unknown


# -- messages ------------------------------------------------------------------------------------------------


def counting(*, before: bool = False, **options: Any) -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    stream = builder.stream("in")
    if before:
        stream = stream.filter(lambda key, value: value != "")
    stream.group_by(lambda key, value: value).count(**options).to_stream().to("out", value=serdes.INT64)
    return builder.build()


def findings(report: UpgradeReport, level: Level = Level.UNSAFE) -> dict[str, tuple[str, str | None]]:
    return {finding.subject: (finding.message, finding.fix) for finding in report.of(level)}


def test_shifted_numbers_are_told_with_the_line_that_keeps_them() -> None:
    report = check_upgrade(counting(), counting(before=True))
    assert not report.safe
    found = findings(report)
    store, topic = "KSTREAM-AGGREGATE-STATE-STORE-0000000002", "KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition"
    assert set(found) == {store, topic}
    message, fix = found[store]
    assert f"topic {store}-changelog is orphaned" in message
    assert "is called KSTREAM-AGGREGATE-STATE-STORE-0000000003" in message
    assert fix is not None
    assert fix.startswith(f'store="{store}" at ')
    assert f"{Path(__file__).name}:" in fix
    assert "NOT SAFE" in str(report)


def test_the_line_that_is_told_keeps_everything() -> None:
    kept = counting(before=True, store="KSTREAM-AGGREGATE-STATE-STORE-0000000002")
    report = check_upgrade(counting(), kept)
    assert report.safe_while_rolling
    assert report.findings == ()
    assert str(report) == "SAFE"


def two_counts(first: str, second: str) -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    stream = builder.stream("in")
    for wanted in (first, second):
        if wanted == "a":
            stream.filter(lambda key, value: value == "a").group_by_key().count()
        else:
            stream.filter(lambda key, value: value == "b").group_by_key().count()
    return builder.build()


def test_operators_that_change_places_are_known_by_their_functions() -> None:
    assert check_upgrade(two_counts("a", "b"), two_counts("a", "b")).findings == ()
    report = check_upgrade(two_counts("a", "b"), two_counts("b", "a"))
    assert len(report.of(Level.UNSAFE)) == 2
    assert "is swapped" in str(report)


def test_other_functions_at_the_same_place_are_no_danger() -> None:
    assert check_upgrade(two_counts("a", "b"), two_counts("a", "a")).safe


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ({"value": serdes.INT64}, {"value": serdes.INT32}, "store counts has another value serde"),
        ({"logging": True}, {"logging": False}, "store counts has another changelog"),
    ],
)
def test_another_content_of_a_store_is_told(old: dict[str, Any], new: dict[str, Any], message: str) -> None:
    def topology(options: dict[str, Any]) -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        grouped = builder.stream("in").group_by_key()
        grouped.aggregate(lambda: 0, lambda k, v, a: a + 1, materialized=Materialized("counts", **options))
        return builder.build()

    report = check_upgrade(topology(old), topology(new))
    assert message in findings(report)["counts"][0]


def windowed(size: int, grace: int) -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    windows = TimeWindows.of(size, grace=grace)
    builder.stream("in").group_by_key().windowed_by(windows).count(store="counts").to_stream()
    return builder.build()


def test_windows_of_another_size_are_told() -> None:
    assert "store counts has another window size" in str(check_upgrade(windowed(10_000, 0), windowed(20_000, 0)))


def test_another_grace_is_unsafe_only_when_files_are_laid_out_otherwise() -> None:
    report = check_upgrade(windowed(600_000, 0), windowed(600_000, 1))
    assert report.safe
    assert "retention" in findings(report, Level.WARNING)["counts"][0]
    report = check_upgrade(windowed(10_000, 0), windowed(10_000, 100_000_000))
    assert "other segments" in findings(report)["counts"][0]


def test_shifted_subtopologies_are_restored_but_are_not_for_a_rolling_bounce() -> None:
    def topology(*, more: bool) -> Topology:
        topology = Topology()
        if more:
            topology.add_source("more", "more").add_sink("more-out", "more-out", "more")
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        if more:
            builder.stream("more").to("more-out")
        builder.stream("in").group_by_key().count(store="counts")
        return builder.build()

    report = check_upgrade(topology(more=False), topology(more=True))
    assert report.safe
    assert not report.safe_while_rolling
    assert "moves from tasks 0_* to 1_*" in findings(report, Level.WARNING)["counts"][0]
    assert "stop all" in str(report)


def test_text_that_is_no_description_is_refused() -> None:
    with pytest.raises(TopologyError, match="not a description of a topology"):
        check_upgrade("", counting())
    with pytest.raises(TopologyError, match="line 2 does not belong to a topology's description: 'Hello'"):
        check_upgrade("Topologies:\nHello", counting())


# -- a running group -----------------------------------------------------------------------------------------


def test_topics_of_a_running_group_are_compared_with_what_the_new_version_needs() -> None:
    topics = {"in": 4, "out": 1, "other-app-x-changelog": 1}
    for part in ("repartition", "changelog"):
        topics[f"app-KSTREAM-AGGREGATE-STATE-STORE-0000000002-{part}"] = 4
    assert check_running(topics, counting(), "app").findings == ()
    report = check_running(topics, counting(before=True), "app")
    assert [finding.fix for finding in report.of(Level.UNSAFE)] == [
        'store="KSTREAM-AGGREGATE-STATE-STORE-0000000002" where this state is stored now',
        'name="KSTREAM-AGGREGATE-STATE-STORE-0000000002" at the operator that writes these records now',
    ]
    assert "is that its application.id" in str(check_running({"in": 1}, counting(), "app"))


def test_topics_of_another_application_are_not_orphaned() -> None:
    name = "KSTREAM-AGGREGATE-STATE-STORE-0000000007-changelog"
    topics = {"in": 4, "app-counts-changelog": 4, f"app-two-{name}": 4, "app-two-x-changelog": 4}
    report = check_running(topics, counting(store="counts"), "app", ("app", "app-two"))
    assert report.findings == ()
    stopped = check_running(topics, counting(store="counts"), "app", ("app",))
    assert [finding.subject for finding in stopped.findings] == ["two-x-changelog"]
    assert "also fits an application.id of app-two" in str(stopped)


def test_another_number_of_partitions_of_a_running_group_is_told() -> None:
    topics = {"in": 8, "app-counts-changelog": 4, "app-counts-repartition": 4}
    report = check_running(topics, counting(store="counts"), "app")
    assert sorted(finding.message for finding in report.of(Level.UNSAFE)) == [
        f"topic app-counts-{part} has 4 partitions, the new version needs 8: it does not start"
        for part in ("changelog", "repartition")
    ]


def test_missing_source_topic_of_a_running_group_is_told() -> None:
    report = check_running({"app-counts-changelog": 4}, counting(store="counts"), "app")
    assert "source topic in does not exist" in str(report)
