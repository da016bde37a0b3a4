"""Recorded situations: their text. Deciding one again gives the recorded decision."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.custom_assignor import HeavyOnLarge
from streams_protocol import DecodeError
from streams_py.assignment import ApplicationState, TaskAssignment
from streams_py.assignment.assignors.sticky import StickyTaskAssignor
from streams_py.backtest.deciding import ask, recorded_answer
from streams_py.backtest.inputs import ReplayInput, read_input, tasks_of
from streams_py.backtest.situation import Situation
from streams_py.backtest.sources import Skipped, inputs_in_file
from streams_py.ports import MemberSubscription
from streams_py.telemetry.replay import canonical_input
from streams_py.topology.physical.metadata import TopologyMetadata
from tests.support.backtest.golden import golden_texts
from tests.support.backtest.kit import A, B, chosen, client, replay, sub
from tests.support.events.kit import Recorder
from tests.support.leader.kit import FakeCluster, member
from tests.support.leader.kit import sub as subtopology


def test_canonical_text_is_kept_when_read_and_written() -> None:
    texts = golden_texts()
    assert len(texts) == 5
    for text in texts:
        read = read_input(text)
        assert replace(read, text=None).canonical() == text
        assert read_input(text) == read


def test_hash_is_equal_when_situations_are() -> None:
    one, other = replay(client(A, "0:0-3")), replay(client(A, "0:0-3"))
    assert one.hash() == other.hash()
    assert one.hash() != replay(client(A, "0:0-2")).hash()


def broken(change: Callable[[dict[str, Any]], object]) -> str:
    value = json.loads(replay(client(A, "0:0-3"), client(B)).canonical())
    change(value)
    return json.dumps(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"v":2}',
        broken(lambda value: value["clients"].clear()),
        broken(lambda value: value["clients"].append(value["clients"][0])),
        broken(lambda value: value["clients"][0]["consumers"].clear()),
        broken(lambda value: value["clients"][0]["sums"]["v"].append(1)),
        broken(lambda value: value["subs"][0].update(sub="name__0")),
        broken(lambda value: value["subs"][0]["end"].pop()),
        broken(lambda value: value.pop("configs")),
    ],
)
def test_reading_is_refused_with_a_remedy_when_the_text_is_no_input(text: str) -> None:
    with pytest.raises(DecodeError):
        read_input(text)


# -- what was decided is decided again ---------------------------------------------------------------------------------

_TOPOLOGY = TopologyMetadata(
    {
        0: subtopology("in", sinks="app-r"),
        1: subtopology("app-r", stores="counts totals", repartitions={"app-r": None}),
        2: subtopology("in2", unlogged="seen"),
        3: subtopology("in3", stores="table", source_changelogs="in3"),
    }
)
_STATEFUL = [f"1_{n}" for n in range(6)] + [f"3_{n}" for n in range(3)]
_PARTITIONS = {"in": 6, "in2": 2, "in3": 3}


def random_group(source: random.Random) -> dict[str, MemberSubscription]:
    """Members whose owned tasks do not overlap, with offset sums of running tasks, copies and leftovers."""
    processes = source.randrange(1, 6)
    members = {}
    partitions = [f"{topic}-{p}" for topic, count in (_PARTITIONS | {"app-r": 6}).items() for p in range(count)]
    names = [(p, t) for p in range(1, processes + 1) for t in range(source.randrange(1, 3))]
    owner = {partition: source.choice([*names, None]) for partition in partitions}
    task_of = {"in": 0, "app-r": 1, "in2": 2, "in3": 3}
    zoned, racked = source.random() < 0.7, source.random() < 0.8
    for process, thread in names:
        owned = [partition for partition, who in owner.items() if who == (process, thread)]
        running = {f"{task_of[p.rpartition('-')[0]]}_{p.rpartition('-')[2]}": -2 for p in owned}
        sums = {t: v for t, v in running.items() if t in _STATEFUL}
        for task in source.sample(_STATEFUL, source.randrange(0, 5)):
            sums.setdefault(task, source.choice((0, 10, 990, 1_000, 2_000, 100_000, -3)))
        members[f"m-{source.randrange(1_000)}-{process}-{thread}"] = member(
            process,
            owned=" ".join(owned),
            sums=sums,
            tags={"zone": "abc"[process % 3], "size": source.choice(("small", "large"))} if zoned else {},
            rack=f"r{process % 3}" if racked else None,
            endpoint=f"host:{process}" if source.random() < 0.5 else None,
        )
    return members


def recorded(source: random.Random, assignor: Any = None, **settings: Any) -> ReplayInput:
    """One assign step of the leader, as assignment events record it."""
    if assignor is not None:
        settings |= {"task_assignor": type(assignor)}
    recorder = Recorder(
        num_standby_replicas=source.randrange(3),
        acceptable_recovery_lag=source.choice((0, 100, 10_000)),
        max_warmup_replicas=source.randrange(1, 5),
        rack_aware_assignment_tags=source.choice(((), ("zone",))),
        # The record does not contain the racks that a class looks up, so the class is told not to use racks.
        rack_aware_assignment_strategy="none"
        if assignor is not None
        else source.choice(("none", "min_traffic", "balance_subtopology")),
        **settings,
    )

    def run(state: ApplicationState) -> TaskAssignment:
        answer: TaskAssignment = assignor.assign(state)
        return answer

    cluster = FakeCluster(
        dict(_PARTITIONS),
        source.choice((0, 1_000, 50_000)),
        racks=("r0", "r1", "r2"),
        assignor=run if assignor else None,
    )
    whole = recorder.assign(random_group(source), _TOPOLOGY, cluster, assignor).whole
    return read_input(canonical_input(whole))


def decided_again(situation: ReplayInput, candidate: str, **overrides: object) -> Mapping[str, Any]:
    text = candidate + "".join(f";{key}={value}" for key, value in overrides.items())
    answer = ask(chosen(text), Situation(situation, overrides), seed=0, limit_s=0, once=True)
    assert answer.failure is None, answer.failure
    return answer.placed


def with_one_kind_of_copies(placed: Mapping[str, Any]) -> dict[str, Any]:
    return {name: (of.active, sorted((*of.standby, *of.warmup))) for name, of in placed.items()}


@pytest.mark.parametrize("count", [200, pytest.param(1_000, marks=pytest.mark.weekly)])
def test_decision_equals_the_recorded_one_when_the_same_assignor_decides_again(count: int) -> None:
    source = random.Random(441)
    for number in range(count):
        kind = ("ha", "internal sticky", "sticky", "heavy")[number % 4]
        if kind == "ha":
            situation, candidate = recorded(source), "builtin:high_availability"
        elif kind == "internal sticky":
            situation, candidate = recorded(source, internal_assignor="sticky"), "builtin:legacy_sticky"
        elif kind == "sticky":
            situation, candidate = recorded(source, StickyTaskAssignor()), "builtin:sticky"
        else:
            heavy = HeavyOnLarge()
            heavy.configure({"app.heavy": "1"})
            situation, candidate = recorded(source, heavy), "examples.custom_assignor:HeavyOnLarge;app.heavy=1"
        assert situation.decision is not None
        before = recorded_answer(situation.decision).placed
        again = decided_again(situation, candidate)
        if kind == "ha":
            assert again == before, number
        else:
            assert with_one_kind_of_copies(again) == with_one_kind_of_copies(before), (number, kind)


def test_decision_is_the_fallback_when_the_lags_were_not_known() -> None:
    situation = replace(replay(client(A, "0:0-3"), client(B)), lag_ok=False, subs=[sub(ends=[-3] * 4)])
    assert [len(of.active) for of in decided_again(situation, "builtin:high_availability").values()] == [4, 0]
    assert [len(of.active) for of in decided_again(situation, "builtin:legacy_sticky").values()] == [2, 2]


_ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["\ud800", "\u00b2", "1" * 5000]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
def test_any_text_is_a_situation_or_refused_with_one_error(data: st.DataObject) -> None:
    value: Any = json.loads(golden_texts()[0])
    place, key = value, data.draw(st.sampled_from(sorted(value)))
    while data.draw(st.booleans()) and isinstance(place[key], dict | list) and place[key]:
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[key] = data.draw(_ANY)
    text = json.dumps(value)
    try:
        read = read_input(text)
    except DecodeError as error:
        str(error).encode(errors="surrogatepass")
    else:
        list(itertools.islice(tasks_of(read.subs), 100))


@given(st.binary() | st.text(st.sampled_from('{}[]":,0123456789.eE+-NaInfity \\vsubclient')).map(str.encode))
def test_any_file_gives_situations_or_counts_what_it_skips(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "inputs.jsonl"
        path.write_bytes(data)
        skipped = Skipped()
        found = list(inputs_in_file(path, skipped))
        assert skipped.lines or found or not data.strip() or b"{" in data


@pytest.mark.parametrize("name", ["\u00b2", "1" * 5000, "-1", "+1", "1__2", "\u0663", ""])
def test_a_subtopology_that_is_not_a_number_is_refused(name: str) -> None:
    value = json.loads(golden_texts()[0])
    value["subs"][0]["sub"] = name
    with pytest.raises(DecodeError, match="a number"):
        read_input(json.dumps(value))
