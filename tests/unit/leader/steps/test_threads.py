"""Distribution of a client's tasks over its threads: worked examples and properties."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_protocol.types import TaskId
from streams_py.errors import TaskAssignmentError
from streams_py.leader.steps.threads import distribute, distribute_client
from tests.support.leader.kit import tasks

EIGHT = "0_0 0_1 0_2 0_3 1_0 1_1 1_2 1_3"
BEFORE = {"c1": "0_0 1_1 1_3", "c2": "0_3 1_0", "c3": "0_1 0_2 1_2"}


def spread(
    consumers: str,
    stateful: str = "",
    *,
    standby: str = "",
    stateless: str = "",
    before: Mapping[str, str] | None = None,
) -> dict[str, tuple[str, str]]:
    """Return (actives, standbys) by consumer, as text. All previous tasks were running."""
    known = {name: sorted(tasks(text)) for name, text in (before or {}).items()}
    active, standbys = distribute_client(
        stateful=tasks(stateful),
        standby=tasks(standby),
        stateless=tasks(stateless),
        consumers=consumers.split(),
        previous=lambda consumer: known.get(consumer, []),
    )
    return {c: (" ".join(map(str, active[c])), " ".join(map(str, standbys[c]))) for c in consumers.split()}


def actives(consumers: str, stateful: str, before: Mapping[str, str] | None = None) -> dict[str, str]:
    return {c: lists[0] for c, lists in spread(consumers, stateful, before=before).items()}


def test_tasks_are_interleaved_when_nobody_had_any() -> None:
    assert actives("c1 c2 c3", "0_0 0_1 0_2 0_3 1_0 1_1 1_2 2_0 2_1") == {
        "c1": "0_0 0_3 1_2",
        "c2": "0_1 1_0 2_0",
        "c3": "0_2 1_1 2_1",
    }


def test_tasks_stay_when_nothing_changed() -> None:
    assert actives("c1 c2 c3", EIGHT, BEFORE) == BEFORE


def test_new_task_goes_to_the_thread_with_fewest_when_others_stay() -> None:
    assert actives("c1 c2 c3", f"{EIGHT} 2_0", BEFORE) == BEFORE | {"c2": "0_3 1_0 2_0"}


def test_tasks_of_a_gone_thread_are_shared_out_when_others_stay() -> None:
    assert actives("c1 c2", EIGHT, BEFORE) == {"c1": "0_0 1_1 1_3 0_1", "c2": "0_3 1_0 0_2 1_2"}


def test_new_thread_takes_the_surplus_when_it_joins() -> None:
    assert actives("c1 c2 c3 c4", EIGHT, BEFORE) == {"c1": "0_0 1_1", "c2": "0_3 1_0", "c3": "0_1 0_2", "c4": "1_2 1_3"}


def test_surplus_goes_to_its_former_owner_when_that_is_at_its_share() -> None:
    assert actives("c1 c2", "0_0 0_1 0_2 0_3 0_4", {"c1": "0_0 0_1 0_2 0_3"}) == {"c1": "0_0 0_1 0_4", "c2": "0_2 0_3"}


def test_the_three_stages_share_one_load() -> None:
    assert spread("c1 c2 c3", "0_0 0_1", standby="0_2", stateless="1_0 1_1") == {
        "c1": ("0_0 1_0", ""),
        "c2": ("0_1 1_1", ""),
        "c3": ("", "0_2"),
    }


def test_surplus_follows_javas_heap_when_there_are_fewer_tasks_than_threads() -> None:
    assert actives("c1 c2 c3 c4 c5", "0_0 0_1 0_2 0_3") == {
        "c1": "0_0",
        "c2": "0_2",
        "c3": "0_1",
        "c4": "0_3",
        "c5": "",
    }


def test_task_assignment_error_when_a_load_makes_tasks_run_out() -> None:
    with pytest.raises(TaskAssignmentError, match="ran out of tasks"):
        distribute(tasks("0_0"), ["c1", "c2"], {"c1": 9, "c2": 0}, None)


# -- properties ----------------------------------------------------------------------------------------------------

task_ids = st.tuples(st.integers(0, 5), st.integers(0, 40)).map(lambda pair: TaskId(*pair))


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[str], set[TaskId], set[TaskId], set[TaskId], dict[str, list[TaskId]]]:
    consumers = [f"c{i}" for i in range(draw(st.integers(1, 6)))]
    stateful, standby, stateless = (draw(st.sets(task_ids, max_size=30)) for _ in range(3))
    standby -= stateful
    stateless -= stateful | standby
    pool = sorted(stateful | standby)
    reported = {c: draw(st.lists(st.sampled_from(pool), unique=True)) if pool else [] for c in consumers}
    return consumers, stateful, standby, stateless, reported


def is_level(counts: Mapping[str, int]) -> bool:
    return max(counts.values()) - min(counts.values()) <= 1


@given(situations())
def test_loads_differ_by_one_at_most_after_every_stage(
    situation: tuple[list[str], set[TaskId], set[TaskId], set[TaskId], dict[str, list[TaskId]]],
) -> None:  # L9
    consumers, stateful, standby, stateless, reported = situation
    load = dict.fromkeys(consumers, 0)
    for stage, sticky in ((stateful, True), (standby, True), (stateless, False)):
        out = distribute(sorted(stage), consumers, load, reported if sticky else None)
        assert sorted(task for mine in out.values() for task in mine) == sorted(stage)
        assert is_level(load)


@given(st.sets(task_ids, max_size=30), st.data())
def test_previous_tasks_stay_up_to_the_share(stateful: set[TaskId], data: st.DataObject) -> None:  # L10
    consumers = ["c0", "c1", "c2"]
    owners = {task: data.draw(st.sampled_from([*consumers, "gone"])) for task in sorted(stateful)}
    before = {c: [task for task in sorted(stateful) if owners[task] == c] for c in consumers}
    share = len(stateful) // 3
    out = distribute(sorted(stateful), consumers, dict.fromkeys(consumers, 0), before)
    for consumer in consumers:
        assert set(before[consumer][:share]) <= set(out[consumer])
