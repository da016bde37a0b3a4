"""Edge cases of windows in stream joins: late and out-of-order records, partners at the limits of the window, and a
stream joined with itself.

Kafka Streams differs in most of them; see ``test_reference_behaviour``.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.serdes import STRING
from streams_py.testing.driver import TopologyTestDriver
from streams_py.testing.in_process import InProcessTasks
from streams_py.testing.memory_clients import ManualClock
from streams_py.topology.declare.windows import JoinWindows, SessionWindows, SlidingWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology
from tests.support.topology.driver_parts import tasks_of
from tests.support.topology.whole_topology import WholeTopology

FRESH = {"statestore.cache.max.bytes": 0}
Given = tuple[str, "str | None", "str | None", int]
KINDS = ("join", "left_join", "outer_join")


def joining(how: str, windows: JoinWindows) -> Topology:
    builder = StreamsBuilder(key=STRING, value=STRING)
    left, right = builder.stream("L"), builder.stream("R")
    getattr(left, how)(right, lambda one, other: f"{one}+{other}", windows).to("out")
    return builder.build()


def run(how: str, windows: JoinWindows, *records: Given) -> tuple[list[list[str]], float]:
    """Return the results of each record, and the number of dropped records."""
    steps = []
    with TopologyTestDriver(joining(how, windows), FRESH) as driver:
        inputs = {side: driver.input_topic(side, key=STRING, value=STRING) for side in "LR"}
        out = driver.output_topic("out", key=STRING, value=STRING)
        for side, key, value, timestamp_ms in records:
            inputs[side].send(key, value, timestamp_ms=timestamp_ms)
            steps.append([f"{record.value}@{record.timestamp}" for record in out.read_all()])
        dropped = sum(task.dropped_records for task in tasks_of(driver))
    return steps, dropped


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("late_ms", [22, 1000, 59_000, 61_000, 130_000])
def test_late_record_is_dropped_and_counted_once(how: str, late_ms: int) -> None:
    steps, dropped = run(
        how, JoinWindows.of(10, grace=1), ("R", "k", "r", 0), ("R", "x", "-", late_ms), ("L", "k", "l", 5)
    )
    assert steps[2] == []
    assert dropped == 1


@pytest.mark.parametrize("how", KINDS)
def test_record_at_the_end_of_its_grace_is_joined(how: str) -> None:
    steps, dropped = run(how, JoinWindows.of(10, grace=1), ("R", "k", "r", 5), ("R", "x", "-", 16), ("L", "k", "l", 5))
    assert "l+r@5" in steps[2] or how == "outer_join"
    assert dropped == 0


def test_late_record_is_no_partner_of_later_ones() -> None:
    steps, dropped = run("join", JoinWindows.of(10), ("R", "x", "-", 16), ("L", "k", "late", 5), ("R", "k", "r", 15))
    assert (steps, dropped) == ([[], [], []], 1)


@pytest.mark.parametrize(
    ("how", "records"),
    [
        ("left_join", [("R", "x", "-", 60), ("L", "k", "l", 20), ("R", "k", "r", 25)]),
        ("outer_join", [("L", "x", "-", 60), ("L", "k", "l", 20), ("R", "k", "r", 25)]),
        ("outer_join", [("L", "x", "-", 60), ("R", "k", "r", 20), ("L", "k", "l", 25)]),
    ],
)
def test_record_out_of_order_waits_until_its_window_is_closed(how: str, records: list[Given]) -> None:
    steps, _ = run(how, JoinWindows.of(10, grace=100), *records)
    assert steps == [[], [], ["l+r@25"]]


def test_record_out_of_order_has_its_result_alone_once_when_its_window_is_closed() -> None:
    steps, _ = run(
        "left_join",
        JoinWindows.of(10, grace=100),
        ("R", "x", "-", 60), ("L", "k", "l", 20), ("R", "x", "-", 130), ("R", "x", "-", 131), ("R", "k", "late", 25),
    )  # fmt: skip
    assert steps == [[], [], [], ["l+None@20"], []]


def test_partner_of_a_record_that_was_sent_alone_does_not_join_it() -> None:
    """The right record is not late itself, but the window of the left record is closed."""
    steps, _ = run("left_join", JoinWindows.of(10), ("L", "k", "l", 0), ("L", "x", "-", 15), ("R", "k", "r", 10))
    assert steps == [[], ["l+None@0"], []]


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("grace", [0, 1])
def test_window_of_no_width_joins_records_of_one_time(how: str, grace: int) -> None:
    steps, _ = run(how, JoinWindows.of(0, grace=grace), ("L", "k", "l", 5), ("R", "k", "r", 5), ("R", "k", "s", 6))
    assert steps[:2] == [[], ["l+r@5"]]


@pytest.mark.parametrize("how", ["join", "left_join"])
@pytest.mark.parametrize("grace", [0, 5])
def test_partner_as_far_back_as_the_window_goes_is_kept(how: str, grace: int) -> None:
    windows = JoinWindows.of(10, grace=grace)
    steps, dropped = run(how, windows, ("R", "k", "r", 90), ("R", "x", "-", 110 + grace), ("L", "k", "l", 100))
    assert steps[2] == ["l+r@100"]
    assert dropped == 0


@pytest.mark.parametrize("how", KINDS)
def test_window_that_is_over_before_the_record_joins_only_what_is_in_it(how: str) -> None:
    windows = JoinWindows.of(10, before=10, after=-5)
    steps, _ = run(how, windows, ("R", "k", "r", 0), ("L", "k", "l", 3), ("L", "k", "m", 5))
    assert [line for step in steps for line in step if "None" not in line] == ["m+r@5"]


def test_window_after_the_record_reaches_back_from_the_other_side() -> None:
    windows = JoinWindows.of(10, before=-5, after=10)
    steps, _ = run("join", windows, ("L", "k", "l", 100), ("L", "x", "-", 107), ("R", "k", "r", 107))
    assert steps == [[], [], ["l+r@107"]]


@pytest.mark.parametrize("seed", range(40))
def test_pairs_are_those_of_the_definition(seed: int) -> None:
    """Two records are joined exactly if they are within the window, neither was late for its own window, and the window
    of the stored one is not closed.
    """
    draw = random.Random(seed)
    how = draw.choice(KINDS)
    before, after, grace = draw.randint(-4, 9), draw.randint(-4, 9), draw.choice([0, 0, 3, 15])
    if before + after < 0:
        before = -after
    windows = JoinWindows.of(1, grace=grace, before=before, after=after)
    records = [(draw.choice("LR"), "k", f"v{at}", draw.randint(0, 40)) for at in range(40)]
    open_ms = {"L": max(after, 0) + grace, "R": max(before, 0) + grace}
    kept = {"join": "", "left_join": "L", "outer_join": "LR"}[how]
    stream_ms, alive, expected = -1, list[Given](), list[str]()
    for record in records:
        side, _, value, at = record
        stream_ms = max(stream_ms, at)
        if at + open_ms[side] < stream_ms:
            continue
        for other_side, _, other, other_at in alive:
            if other_side == side or (other_side in kept and other_at + open_ms[other_side] < stream_ms):
                continue
            (left, left_at), (right, right_at) = ((value, at), (other, other_at))[:: 1 if side == "L" else -1]
            if left_at - before <= right_at <= left_at + after:
                expected.append(f"{left}+{right}@{max(at, other_at)}")
        alive.append(record)
    steps, _ = run(how, windows, *records)
    joined = [line for step in steps for line in step]
    assert sorted(line for line in joined if "None" not in line) == sorted(expected)
    alone = {line.partition("@")[0].replace("None", "").strip("+") for line in joined if "None" in line}
    paired = {part for line in expected for part in line.partition("@")[0].split("+")}
    assert not alone & paired


# -- a stream with itself ------------------------------------------------------------------------------------


def of_itself(how: str, windows: JoinWindows, records: list[Any], optimization: str) -> list[Any]:
    builder = StreamsBuilder(key=STRING, value=STRING)
    stream = builder.stream("in")
    getattr(stream, how)(stream, lambda one, other: f"{one}{other}", windows).to("out")
    with TopologyTestDriver(builder.build({"topology.optimization": optimization}), FRESH) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for key, value, timestamp_ms in records:
            source.send(key, value, timestamp_ms=timestamp_ms)
        out = driver.output_topic("out", key=STRING, value=STRING).read_all()
    return [(record.key, record.value, record.timestamp) for record in out]


@pytest.mark.parametrize("seed", range(60))
def test_self_join_has_the_same_results_with_and_without_optimisation(seed: int) -> None:
    draw = random.Random(seed)
    before, after = draw.choice([(5, 5), (0, 0), (-2, 6), (6, -2), (0, 5), (5, 0), (3, 9)])
    windows = JoinWindows.of(5, before=before, after=after, grace=draw.choice([0, 2, 20]))
    records = [
        (draw.choice(["k", "k", "x", None]), draw.choice(["a", "b", None]), draw.randint(0, 30)) for _ in range(30)
    ]
    for how in KINDS:
        expected = of_itself(how, windows, records, "none")
        assert of_itself(how, windows, records, "single.store.self.join") == expected


def test_self_join_does_not_join_a_record_with_itself_outside_of_the_window() -> None:
    records = [("k", "a", 0), ("k", "b", 7), ("k", "c", 30)]
    for optimization in ("none", "all"):
        assert of_itself("join", JoinWindows.of(10, before=-5, after=10), records, optimization) == [("k", "ab", 7)]


# -- windows of no width elsewhere ---------------------------------------------------------------------------


@pytest.mark.parametrize("windows", [SlidingWindows.of(0), SessionWindows.of(0), SlidingWindows.of(0, grace=3)])
def test_windows_of_no_width_count_records_of_one_time(windows: Any) -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    table = builder.stream("in").group_by_key().windowed_by(windows).count()
    table.to_stream().map(lambda key, total: (key.key, str(total)), key=STRING, value=STRING).to("out")
    with TopologyTestDriver(builder.build(), FRESH) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for _ in range(3):
            source.send("k", "v", timestamp_ms=5)
        totals = [
            total for total in driver.output_topic("out", key=STRING, value=STRING).read_values() if total != "None"
        ]
    assert totals == ["1", "2", "3"]


def test_late_record_begins_the_open_window_behind_its_predecessor() -> None:
    """The predecessor is found through the window that ends with it. This is the oldest window that is looked up."""
    builder = StreamsBuilder(key=STRING, value=STRING)
    table = builder.stream("in").group_by_key().windowed_by(SlidingWindows.of(10, grace=20)).reduce(lambda a, b: a + b)
    table.to_stream().map(lambda key, value: (f"{key.start}", value), key=STRING, value=STRING).to("out")
    with TopologyTestDriver(builder.build(), FRESH) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for key, value, timestamp_ms in (("k", "a", 109), ("x", "-", 139), ("x", "-", 140), ("k", "b", 115)):
            source.send(key, value, timestamp_ms=timestamp_ms)
        out = driver.output_topic("out", key=STRING, value=STRING).read_pairs()
    assert out[-1] == ("110", "b")


# -- conformance runs ----------------------------------------------------------------------------------------


def as_kafka_streams(topology: Topology, *records: Given) -> list[str]:
    sent: list[str] = []
    settings = TaskSettings(
        application_id="app", default_key_serde=STRING, default_value_serde=STRING, emit_interval_ms=0,
        reference_behaviour=True,
    )  # fmt: skip
    tasks = InProcessTasks(
        WholeTopology.units_of(topology),
        settings,
        clock=ManualClock(0),
        on_sent=lambda record: sent.append(record.value().decode()) if record.topic() == "out" else None,
    )
    for side, key, value, timestamp_ms in records:
        tasks.write(side, (key or "").encode(), (value or "").encode(), timestamp_ms, None, 0)
        tasks.drain(commit=True)
    return sent


@pytest.mark.parametrize(
    ("how", "windows", "records", "expected"),
    [
        ("join", JoinWindows.of(10), [("R", "k", "r", 0), ("L", "x", "-", 1000), ("L", "k", "l", 5)], ["l+r"]),
        (
            "left_join",
            JoinWindows.of(10, grace=100),
            [("R", "x", "-", 60), ("L", "k", "l", 20), ("R", "k", "r", 25)],
            ["l+None", "l+r"],
        ),
        ("join", JoinWindows.of(0), [("L", "k", "l", 5), ("R", "k", "r", 5)], []),
    ],
)
def test_reference_behaviour(how: str, windows: JoinWindows, records: list[Given], expected: list[str]) -> None:
    assert as_kafka_streams(joining(how, windows), *records) == expected


def test_changelogs_are_kept_as_in_kafka_streams() -> None:
    for windows, retention_ms in ((JoinWindows.of(10, grace=5), 25), (JoinWindows.of(9, before=-3, after=9), 6)):
        metadata = joining("join", windows).metadata("app", {})
        topics = [topic for sub in metadata.subtopologies.values() for topic in sub.changelogs.values()]
        assert {topic.config["retention.ms"] for topic in topics} == {str(retention_ms + 86_400_000)}
