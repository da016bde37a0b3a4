"""Outside events are distinguished from the assignor's own changes, and applied to another group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from streams_protocol import LATEST_OFFSET, DecodeError
from streams_protocol.types import TaskId
from streams_py.backtest.candidates import CONFIG_KEYS, Chosen, choose_recorded
from streams_py.backtest.generate import History, generate
from streams_py.backtest.inputs import ClientDecision, RecordedDecision, ReplayClient, ReplayInput, read_input
from streams_py.backtest.kernel import EVENTS, Bench, Orders, Row
from streams_py.backtest.loop.outside import LOST, SITUATIONS, OutsideEvent, Segments, outside_event, read_segment
from streams_py.backtest.loop.replaying import replay_segment
from streams_py.backtest.loop.world import CandidateGroup
from streams_py.backtest.rounds import RoundSettings
from streams_py.events.model import Assignor, Consumer
from streams_py.events.taskset import parse_task_set
from tests.support.backtest import assignors
from tests.support.backtest.kit import A, B, C, chosen, client, mine, replay, sub

LONG = 1_000_000


def decided(of: ReplayInput, **given: str) -> ReplayInput:
    """``A="0:0-1 / 0:2"``: actives and standbys of a client."""
    names = {"A": A, "B": B, "C": C}
    clients = {}
    for short, text in given.items():
        active, _, standby = text.partition("/")
        clients[names[short]] = ClientDecision(parse_task_set(active.strip()), parse_task_set(standby.strip()), ())
    return replace(of, decision=RecordedDecision(Assignor("x", None, custom=False), clients))


def renamed(of: ReplayClient, suffix: str) -> ReplayClient:
    """Replace the members by members without tasks. The state of the former tasks is on disk."""
    consumers = [Consumer(f"{c.member}{suffix}", c.version, c.supported, ()) for c in of.consumers]
    sums = replace(of.sums, v=[LONG if value == LATEST_OFFSET else value for value in of.sums.v])
    return replace(of, consumers=consumers, prev_active=(), prev_standby=of.sums.tasks, sums=sums)


def event(before: ReplayInput, after: ReplayInput) -> OutsideEvent:
    found = outside_event(before, after)
    assert found is not None
    return found


def sums_of(of: ReplayInput, name: str) -> dict[TaskId, int]:
    (found,) = [one for one in of.clients if one.client == name]
    return dict(zip(found.sums.tasks, found.sums.v, strict=True))


SUBS = [sub(ends=(LONG,) * 4)]
TWO = decided(
    replay(client(A, "0:0-1", {"0:2-3": LONG}), client(B, "0:2-3", {"0:0-1": LONG}), subs=SUBS),
    A="0:0-1 / 0:2-3",
    B="0:2-3 / 0:0-1",
)


# -- telling apart -----------------------------------------------------------------------------------------------------


def test_nothing_happened_when_tasks_moved_and_changelogs_grew() -> None:
    """The assignor's decisions, and new records: copies are a little behind, leftovers are far behind."""
    moved = replay(
        client(A, "0:0-1", {"0:2": LONG}), client(B, "0:2", {"0:0-1": LONG + 40}), subs=[sub(ends=(LONG + 50,) * 4)]
    )
    given = decided(TWO, A="0:0-1", B="0:2-3")  # A is not to keep its copies: it may have dropped one
    assert outside_event(given, moved) is not None  # B lost 0_3, which it was to keep
    assert outside_event(decided(TWO, A="0:0-1", B="0:2 / 0:0-1"), moved) is None


def test_who_came_and_went_is_told_when_clients_differ() -> None:
    after = replay(client(A, "0:0-1", {"0:2-3": LONG}), client(C, sums={"0:1": 5}), subs=SUBS)
    found = event(TWO, after)
    assert found.gone == [B]
    assert [(one.client, one.sums.v) for one in found.came] == [(C, [5])]


def test_restart_and_lost_thread_are_told_when_members_differ() -> None:
    two_threads = replay(client(A, "0:0-3", threads=2), subs=SUBS)
    (whole,) = two_threads.clients
    assert [one.client for one in event(two_threads, replace(two_threads, clients=[renamed(whole, "'")])).came] == [A]
    fewer = replace(whole, consumers=whole.consumers[:1])
    (came,) = event(two_threads, replace(two_threads, clients=[fewer])).came
    assert [consumer.owned for consumer in came.consumers] == [()]


def test_lost_and_lagging_copies_are_told_when_they_were_to_be_kept() -> None:
    after = replay(client(A, "0:0-1", {"0:2": LONG - 500}), client(B, "0:2-3", {"0:0-1": LONG - 20}), subs=SUBS)
    found = event(TWO, after)
    assert (found.gone, list(found.came)) == ([], [])
    assert dict(zip(found.copies[A].tasks, found.copies[A].v, strict=True)) == {TaskId(0, 2): 500, TaskId(0, 3): LOST}
    assert list(found.copies[B].v) == [20, 20]  # how the others fared belongs to it
    beyond = replay(client(A, "0:0-1", {"0:2": LONG + 1, "0:3": LONG}), client(B, "0:2-3", {"0:0-1": LONG}), subs=SUBS)
    assert list(event(TWO, beyond).copies[A].v) == [LONG, 0]  # its copy is not of this changelog
    nothing = replay(client(A, "0:0-1", {"0:2-3": LONG - 100}), client(B, "0:2-3", {"0:0-1": LONG}), subs=SUBS)
    assert outside_event(TWO, nothing) is None  # within acceptable.recovery.lag


def test_settings_and_topics_are_told_when_they_change() -> None:
    assert (
        event(TWO, replace(TWO, configs={**TWO.configs, "num.standby.replicas": 2})).configs["num.standby.replicas"]
        == 2
    )
    assert len(event(TWO, replace(TWO, subs=[sub(ends=(LONG,) * 8)])).subs[0].end or ()) == 8


# -- the same to another group -----------------------------------------------------------------------------------------


def struck(group: ReplayInput, *events: OutsideEvent) -> ReplayInput:
    world = CandidateGroup(group, "seed")
    for one in events:
        world.apply(one)
    return world.replay


OTHER = replay(client(A, "0:0,2", {"0:1": LONG}), client(B, "0:1,3", {"0:0": LONG}), subs=SUBS)


def test_client_takes_its_state_along_and_has_it_when_it_returns() -> None:
    left = event(TWO, replace(TWO, clients=TWO.clients[:1]))
    grown = replace(TWO, clients=TWO.clients[:1], subs=[sub(ends=(LONG + 900,) * 4)])
    back = event(grown, replace(TWO, clients=[TWO.clients[0], renamed(TWO.clients[1], "'")], subs=grown.subs))
    without = struck(OTHER, left)
    assert [one.client for one in without.clients] == [A]
    again = struck(OTHER, left, back)
    assert sums_of(again, B) == {TaskId(0, 0): LONG, TaskId(0, 1): LONG, TaskId(0, 3): LONG}  # what it had here
    assert not again.clients[1].prev_active
    assert [one.member for one in again.clients[1].consumers] == [f"{B}-0'"]
    empty = replace(back, came=[replace(back.came[0], sums=replace(back.came[0].sums, tasks=(), v=()))])
    assert sums_of(struck(OTHER, left, empty), B) == {}  # its disk was gone


def test_restarted_client_owns_nothing_and_has_everything_on_disk() -> None:
    found = struck(OTHER, event(TWO, replace(TWO, clients=[renamed(TWO.clients[0], "'"), TWO.clients[1]])))
    assert not found.clients[0].prev_active
    assert sums_of(found, A) == {TaskId(0, number): LONG for number in (0, 1, 2)}
    assert list(found.clients[1].prev_active) == [TaskId(0, 1), TaskId(0, 3)]


def test_copies_share_the_recorded_fate_or_draw_one_when_there_is_none() -> None:
    after = replay(client(A, "0:0-1", {"0:2-3": LONG - 7_000}), client(B, "0:2-3", {"0:0-1": LONG}), subs=SUBS)
    found = struck(OTHER, event(TWO, after))
    assert sums_of(found, A)[TaskId(0, 1)] == LONG - 7_000  # it has another copy, all of A's fell behind
    assert sums_of(found, B)[TaskId(0, 0)] == LONG
    assert sums_of(found, A)[TaskId(0, 0)] == LATEST_OFFSET


def test_copies_keep_their_distance_when_changelogs_grow() -> None:
    behind = replay(client(A, "0:0-3"), client(B, sums={"0:0": LONG - 30, "0:1": LONG}), subs=SUBS)
    grown = event(
        TWO, replace(TWO, configs={**TWO.configs, "max.warmup.replicas": 9}, subs=[sub(ends=(LONG + 50,) * 4)])
    )
    assert sums_of(struck(behind, grown), B) == {TaskId(0, 0): LONG + 20, TaskId(0, 1): LONG + 50}


# -- segments ----------------------------------------------------------------------------------------------------------


def segments_of(texts: list[str]) -> list[str]:
    segments = Segments()
    return [made for text in texts for made in segments.add(text)] + list(segments.finish())


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return list(generate(History(tasks=8, clients=3, threads=1, records=100_000), SITUATIONS + 20))


def test_history_is_cut_by_its_length_when_it_is_long(texts: list[str]) -> None:
    one, two = segments_of(texts)
    assert [one, *segments_of(texts[SITUATIONS:])] == [one, two]
    assert read_segment(one).start == read_input(texts[0])
    assert read_segment(one).canonical() == one
    assert segments_of(texts[:1]) == []


def test_generated_history_has_all_kinds_of_events(texts: list[str]) -> None:
    events = read_segment(segments_of(texts)[0]).events
    assert any(one.gone for one in events)
    assert any(one.came for one in events)
    assert any(LOST in of.v or max(of.v) > 10_000 for one in events for of in one.copies.values())


def test_segment_is_refused_when_it_is_damaged(texts: list[str]) -> None:
    text = segments_of(texts)[0]
    for bad in (
        text[:-1],
        text.replace('"events"', '"other"'),
        text.replace('"consumers":[{', '"consumers":[],"c":[{'),
    ):
        with pytest.raises(DecodeError):
            read_segment(bad)
        assert list(Bench(Orders([chosen("sticky").candidate])).rows(bad, input_hash="ab" * 32)) == []


# -- lived through -----------------------------------------------------------------------------------------------------


def rows_of(texts: list[str], who: Chosen) -> list[Row]:
    (segment,) = (read_segment(text) for text in segments_of(texts))
    return list(replay_segment(who, segment, "ab" * 32, seed=0, limit_s=0, settings=RoundSettings()))


def test_group_without_standbys_pays_for_them_when_clients_are_lost(texts: list[str]) -> None:
    """On recorded situations, in which other assignors placed the copies, it would win every comparison."""
    with_copies, without = (
        rows_of(texts[:60], chosen("builtin:high_availability")),
        rows_of(texts[:60], mine(assignors.InTurn)),
    )
    assert len(with_copies) == len(without) > 5
    assert all(row["stable"] for row in with_copies)
    assert sum(row["missing_copies"] for row in with_copies) == 0
    assert all(row["missing_copies"] > 0 for row in without if row["clients"] > 1)
    paid = [sum(row["unavailable_records"] for row in rows) for rows in (with_copies, without)]
    assert paid[0] < paid[1] / 10


def test_task_counts_once_when_it_is_withheld_and_handed_over_later() -> None:
    after = replace(TWO, clients=[*TWO.clients, client(C)])
    rows = rows_of([TWO.canonical(), after.canonical()], chosen("sticky"))
    (row,) = rows
    assert (row["clients"], row["stable"]) == (3, True)
    assert row["rounds"] > 1
    assert row["moved_active"] == 1
    assert row["moved_cold"] == 1
    assert row["unavailable_records"] == LONG
    assert row["max_over_mean"] == pytest.approx(1.5, abs=0.01)


def test_candidate_is_followed_no_further_when_it_fails(texts: list[str]) -> None:
    rows = rows_of(texts[:40], mine(assignors.Raises))
    assert [row["valid"] for row in rows] == ["raised"]
    assert rows[0]["error"].startswith("before the first event:")
    after = texts[next(place for place, text in enumerate(texts) if len(read_input(text).clients) == 2) :][:40]
    sizes = [row["clients"] for row in rows_of(after, mine(assignors.InTurn))]
    *others, last = rows_of(after, mine(RaisesForSo, **{"app.many": 3}))
    assert 0 < len(others) == sizes.index(3)
    assert {row["valid"] for row in others} == {"ok"}
    assert last["valid"] == "raised"
    assert last["error"].startswith("after ")


class RaisesForSo(assignors.InTurn):
    """Fails when the group has ``app.many`` clients."""

    def configure(self, configs: Mapping[str, object]) -> None:
        self.number = configs["app.many"]

    def spoil(self, assignments: Any, clients: list[Any], state: Any) -> None:
        if len(clients) == self.number:
            raise ValueError("not so many")


# -- who decided -------------------------------------------------------------------------------------------------------


def test_recorded_assignor_lives_through_the_events_when_its_code_is_here(texts: list[str]) -> None:
    bench = Bench(Orders([chosen("recorded").candidate, chosen("ha=builtin:high_availability").candidate]))
    found = list(bench.rows(segments_of(texts)[0], input_hash="ab" * 32))
    scores = {name: [{**row, "candidate": "", "ns_wall": 0, "ns_cpu": 0} for row in found if row["candidate"] == name]
               for name in ("recorded", "ha")}  # fmt: skip
    assert scores["recorded"] == scores["ha"]
    assert all(row["scenario"] == EVENTS and row["input_hash"].startswith("ab") for row in found)
    (row,) = (row for row in bench.rows(texts[5], input_hash="x") if row["candidate"] == "recorded")
    assert row["reproduced"] is True


def test_nothing_is_imported_when_a_record_names_it() -> None:
    given = [mine(assignors.InTurn, **{"app.x": 1, "num.standby.replicas": 3})]
    name = "tests.support.backtest.assignors:InTurn"
    assert choose_recorded(name, []) is None
    found = choose_recorded(name, given)
    assert found is not None
    assert found.task_assignor is assignors.InTurn
    assert dict(found.candidate.overrides) == {"app.x": 1}  # none of the settings that are recorded
    assert not set(found.candidate.overrides) & set(CONFIG_KEYS)
    java = "org.apache.kafka.streams.processor.internals.assignment.HighAvailabilityTaskAssignor"
    ours = choose_recorded(java, [])
    assert ours is not None
    assert ours.built_in is chosen("builtin:high_availability").built_in
    assert choose_recorded("org.apache.kafka.streams.Other", []) is None


def test_unknown_assignor_is_said_once_when_it_decided() -> None:
    after = replace(decided(TWO, A="0:0-1", B="0:2-3"), clients=TWO.clients[:1])
    (segment,) = segments_of([TWO.canonical(), after.canonical()])
    (row,) = Bench(Orders([chosen("recorded").candidate])).rows(segment, input_hash="ab" * 32)
    assert row["valid"] == "not_recorded"
    assert "name it as a candidate" in row["error"]
