"""The static assignor: scenarios with their ids, and properties of every group."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.assignment.api import AssignmentError, TaskAssignment, TaskType
from streams_py.assignment.application_state import ProblemState, TaskDescription
from streams_py.assignment.assignors.registry import choose_assignor
from streams_py.assignment.assignors.static import StaticTaskAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, ClientInput
from streams_py.assignment.validation import validate_task_assignment
from streams_py.errors import ConfigError
from tests.support.assignment.scenario_language import tasks as ids

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LOGGER = "streams_py.assignment"


@dataclass(frozen=True)
class Client:
    """A client of a scenario.

    ``listed`` is the tag; None for a client without a list. ``active`` and ``standby`` are previous tasks.
    """

    listed: str | None = None
    threads: int = 1
    active: str = ""
    standby: str = ""
    lags: Mapping[str, int] = field(default_factory=dict)


Group = Mapping[str, Client]
Result = dict[str, tuple[str, str]]  # client -> actives, standbys


def process_id(name: str) -> ProcessId:
    return ProcessId(uuid.UUID(int=ord(name)))


def state_of(
    group: Group, tasks: Sequence[TaskId], stateful: Sequence[TaskId] = (), configs: AssignmentConfigs | None = None
) -> ProblemState:
    clients = [
        ClientInput(
            process_id(name),
            capacity=client.threads,
            tags={} if client.listed is None else {"static.tasks": client.listed},
            previous_active=ids(client.active),
            previous_standby=ids(client.standby),
            lags={TaskId.parse(task): lag for task, lag in client.lags.items()},
        )
        for name, client in group.items()
    ]
    described = [
        TaskDescription.of(
            task,
            stores=("store",) if task in stateful else (),
            sources=[TopicPartition(f"in-{task.subtopology}", task.partition)],
            changelogs=[TopicPartition(f"log-{task.subtopology}", task.partition)] if task in stateful else (),
        )
        for task in tasks
    ]
    problem = AssignmentProblem(clients, tasks, dict.fromkeys(stateful, 1000), configs or AssignmentConfigs())
    return ProblemState(problem, lambda: described)


def run(
    group: Group,
    tasks: str,
    *,
    stateful: str = "",
    standbys: int = 0,
    configs: Mapping[str, object] | None = None,
    settings: AssignmentConfigs | None = None,
) -> tuple[Result, TaskAssignment]:
    settings = replace(settings or AssignmentConfigs(), num_standby_replicas=standbys)
    state = state_of(group, ids(tasks), ids(stateful), settings)
    assignor = StaticTaskAssignor(now=lambda: NOW)
    assignor.configure(configs or {})
    answer = assignor.assign(state)
    assert validate_task_assignment(state, answer) is AssignmentError.NONE
    return shown(group, answer), answer


def shown(group: Group, answer: TaskAssignment) -> Result:
    result: Result = {}
    for entry in answer.assignment:
        name = next(name for name in group if process_id(name) == entry.process_id)
        roles: dict[TaskType, list[TaskId]] = {TaskType.ACTIVE: [], TaskType.STANDBY: []}
        for task in entry.tasks.values():
            roles[task.type].append(task.id)
        active, standby = (" ".join(map(str, sorted(found))) for found in roles.values())
        result[name] = (active, standby)
    return result


def actives(result: Result) -> dict[str, str]:
    return {name: active for name, (active, _) in result.items()}


def carried_on(group: Group, result: Result) -> dict[str, Client]:
    """Return the same clients after a round."""
    return {name: replace(c, active=result[name][0], standby=result[name][1]) for name, c in group.items()}


def test_tasks_are_spread_when_nobody_lists_any() -> None:  # T-1
    assert actives(run({"A": Client(), "B": Client()}, "0_0..3")[0]) == {"A": "0_0 0_2", "B": "0_1 0_3"}


def test_listed_task_moves_alone_when_its_lister_joins() -> None:  # T-2
    group = {"A": Client(active="0_0 0_2"), "B": Client(active="0_1 0_3"), "C": Client("0_1")}
    assert actives(run(group, "0_0..3")[0]) == {"A": "0_0 0_2", "B": "0_3", "C": "0_1"}


def test_listed_task_goes_to_the_others_when_its_lister_leaves() -> None:  # T-3
    group = {"A": Client(active="0_0 0_2"), "B": Client(active="0_3")}
    assert actives(run(group, "0_0..3")[0]) == {"A": "0_0 0_2", "B": "0_1 0_3"}


def test_task_with_fewest_listers_chooses_first() -> None:  # T-4
    group = {"A": Client("0_0-1"), "B": Client("0_0")}
    assert actives(run(group, "0_0..1")[0]) == {"A": "0_1", "B": "0_0"}


def test_listed_task_stays_with_a_lister() -> None:  # T-5
    group = {"A": Client("0_0", active="0_0"), "B": Client("0_0")}
    assert actives(run(group, "0_0")[0]) == {"A": "0_0", "B": ""}


def test_client_with_an_empty_list_runs_nothing() -> None:  # T-6
    assert actives(run({"A": Client(""), "B": Client()}, "0_0..3")[0]) == {"A": "", "B": "0_0 0_1 0_2 0_3"}


def test_tasks_on_no_list_run_nowhere_when_all_clients_have_one(caplog: pytest.LogCaptureFixture) -> None:  # T-7
    group = {"A": Client("0_*"), "B": Client("1_*")}
    with caplog.at_level(logging.WARNING, LOGGER):
        assert actives(run(group, "0_0..1 1_0..1 2_0..1")[0]) == {"A": "0_0 0_1", "B": "1_0 1_1"}
    assert "2 tasks are not on any list" in caplog.text
    assert "2_0, 2_1" in caplog.text
    spilled = run(group, "0_0..1 1_0..1 2_0..1", configs={"static.tasks.spill": "true"})[0]
    assert actives(spilled) == {"A": "0_0 0_1 2_0", "B": "1_0 1_1 2_1"}


def test_standby_goes_to_a_lister_first() -> None:  # T-8
    group = {"A": Client("0_0"), "B": Client("0_0"), "C": Client()}
    assert run(group, "0_0", stateful="0_0", standbys=1)[0] == {"A": ("0_0", ""), "B": ("", "0_0"), "C": ("", "")}


def test_standby_goes_to_a_client_without_a_list_and_to_no_other_static_one() -> None:  # T-9
    group = {"A": Client("0_0"), "B": Client("9_9"), "C": Client(), "D": Client(threads=2)}
    result, _ = run(group, "0_0 1_0", stateful="0_0", standbys=1)
    assert result == {"A": ("0_0", ""), "B": ("", ""), "C": ("1_0", ""), "D": ("", "0_0")}


def test_fair_share_is_by_threads() -> None:  # T-10
    found = actives(run({"A": Client(threads=2), "B": Client()}, "0_0..5")[0])
    assert {name: len(own.split()) for name, own in found.items()} == {"A": 4, "B": 2}


def test_former_standby_gets_the_task_first() -> None:
    group = {"A": Client("0_0"), "B": Client("0_0", standby="0_0"), "C": Client(), "D": Client(standby="1_1")}
    found = actives(run(group, "0_0 1_0..1", stateful="0_0 1_1")[0])
    assert found == {"A": "", "B": "0_0", "C": "1_0", "D": "1_1"}


def test_surplus_is_the_highest_tasks() -> None:
    group = {"A": Client(active="0_0 0_1 0_2 0_3 0_4"), "B": Client()}
    assert actives(run(group, "0_0..4")[0]) == {"A": "0_0 0_1 0_2", "B": "0_3 0_4"}


def test_too_few_clients_for_standbys_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, LOGGER):
        run({"A": Client("0_0"), "B": Client("1_0")}, "0_0", stateful="0_0", standbys=1)
    assert "1 tasks have fewer standbys" in caplog.text


@pytest.mark.parametrize("value", ["x", "0_", "0_5-2", "0_0,,0_1", "0_99999999999", ",".join(["0_0"] * 3000)])
def test_client_with_a_malformed_list_counts_as_one_without(value: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, LOGGER):
        assert actives(run({"A": Client(value), "B": Client()}, "0_0..1")[0]) == {"A": "0_0", "B": "0_1"}
    assert str(process_id("A")) in caplog.text


def test_listed_tasks_that_do_not_exist_are_ignored() -> None:
    group = {"A": Client("0_0,7_0-2147483647,8_*"), "B": Client()}
    assert actives(run(group, "0_0..1")[0]) == {"A": "0_0", "B": "0_1"}


# -- warming up ----------------------------------------------------------------------------------------------

WARM = {"static.tasks.warmup": True}


def test_task_waits_where_it_is_until_its_lister_has_caught_up() -> None:
    settings = AssignmentConfigs(acceptable_recovery_lag=10, probing_rebalance_interval_ms=60_000)
    group = {"A": Client("0_0"), "B": Client(active="0_0", lags={"0_0": -2})}
    result, answer = run(group, "0_0", stateful="0_0", configs=WARM, settings=settings)
    assert result == {"A": ("", "0_0"), "B": ("0_0", "")}
    deadlines = [entry.followup_rebalance_deadline for entry in answer.assignment]
    assert deadlines == [NOW + timedelta(minutes=1), None]
    group = {"A": Client("0_0", standby="0_0", lags={"0_0": 10}), "B": Client(active="0_0", lags={"0_0": -2})}
    result, answer = run(group, "0_0", stateful="0_0", configs=WARM, settings=settings)
    assert result == {"A": ("0_0", ""), "B": ("", "")}
    assert [entry.followup_rebalance_deadline for entry in answer.assignment] == [None, None]


def test_no_more_tasks_warm_up_at_once_than_allowed() -> None:
    settings = AssignmentConfigs(acceptable_recovery_lag=10, max_warmup_replicas=1)
    group = {"A": Client("0_*"), "B": Client(active="0_0 0_1", lags={"0_0": -2, "0_1": -2})}
    result, _ = run(group, "0_0..1", stateful="0_0..1", configs=WARM, settings=settings)
    assert result == {"A": ("", "0_0"), "B": ("0_0 0_1", "")}


@pytest.mark.parametrize("lag", [-3, 500])
def test_task_moves_at_once_when_nobody_has_caught_up(lag: int) -> None:
    settings = AssignmentConfigs(acceptable_recovery_lag=10)
    group = {"A": Client("0_0"), "B": Client(active="0_0", lags={"0_0": lag})}
    result, _ = run(group, "0_0", stateful="0_0", configs=WARM, settings=settings)
    assert actives(result) == {"A": "0_0", "B": ""}


def test_task_moves_at_once_by_default() -> None:
    group = {"A": Client("0_0"), "B": Client(active="0_0", lags={"0_0": -2})}
    assert actives(run(group, "0_0", stateful="0_0")[0]) == {"A": "0_0", "B": ""}


def test_switch_that_is_neither_true_nor_false_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"static\.tasks\.spill='maybe'"):
        StaticTaskAssignor().configure({"static.tasks.spill": "maybe"})


def test_assignor_is_found_by_its_name() -> None:
    assert choose_assignor("static").task_assignor is StaticTaskAssignor


# -- properties of every group ---------------------------------------------------------------------------------

TASKS = "0_0..4 1_0..4 2_0..2"
STATEFUL = "1_0..4 2_0..2"
ALL_IDS = [str(task) for task in ids(TASKS)]


@st.composite
def groups(draw: st.DrawFn) -> dict[str, Client]:
    names = "ABCDEFG"[: draw(st.integers(1, 7))]
    some = st.lists(st.sampled_from([*ALL_IDS, "9_9"]), unique=True, max_size=6)
    group = {}
    free, reported = list(ALL_IDS), draw(st.booleans())
    for name in names:
        own = draw(st.lists(st.sampled_from(free), unique=True, max_size=5)) if free and reported else []
        free = [task for task in free if task not in own]
        stateful = sorted({str(t) for t in ids(STATEFUL)} - set(own))
        standby = draw(st.lists(st.sampled_from(stateful), unique=True, max_size=4)) if reported else []
        listed = draw(st.none() | some.map(",".join))
        group[name] = Client(listed, draw(st.integers(1, 3)), " ".join(sorted(own)), " ".join(sorted(standby)))
    return group


OPTIONS = st.fixed_dictionaries({"static.tasks.spill": st.booleans()})


def placed(group: Group, standbys: int, options: Mapping[str, object]) -> Result:
    return run(group, TASKS, stateful=STATEFUL, standbys=standbys, configs=options)[0]


@given(groups(), st.integers(0, 2), OPTIONS)
def test_static_rules_hold(group: dict[str, Client], standbys: int, options: Mapping[str, object]) -> None:
    result = placed(group, standbys, options)
    lists = {name: set(c.listed.split(",")) for name, c in group.items() if c.listed is not None}
    listed = set().union(*lists.values())
    wild = [name for name in group if name not in lists]
    owner = {task: name for name, (active, _) in result.items() for task in active.split()}
    for task in ALL_IDS:
        if task in listed:
            assert task in lists[owner[task]]  # the task runs on a client that lists it
        elif wild:
            assert owner[task] in wild
        else:
            assert (task in owner) == options["static.tasks.spill"]
    for name, (_, standby) in result.items():
        for task in standby.split():
            assert owner[task] != name
            assert name in wild or task in lists[name]
    if wild:
        total = sum(group[name].threads for name in wild)
        count = sum(task not in listed for task in ALL_IDS)
        for name in wild:
            share = count * group[name].threads // total
            assert share <= len(result[name][0].split()) <= share + 1


@given(groups(), st.integers(0, 2), OPTIONS)
def test_result_given_back_is_the_result(
    group: dict[str, Client], standbys: int, options: Mapping[str, object]
) -> None:  # T-0
    result = placed(group, standbys, options)
    assert placed(carried_on(group, result), standbys, options) == result


@given(groups(), st.integers(0, 2), OPTIONS)
def test_listing_unknown_tasks_changes_nothing(
    group: dict[str, Client], standbys: int, options: Mapping[str, object]
) -> None:
    more = {
        name: c if c.listed is None else replace(c, listed=",".join(filter(None, [c.listed, "7_*", "0_77-99"])))
        for name, c in group.items()
    }
    assert placed(more, standbys, options) == placed(group, standbys, options)


@given(groups(), st.integers(0, 2), OPTIONS)
def test_order_of_clients_does_not_matter(
    group: dict[str, Client], standbys: int, options: Mapping[str, object]
) -> None:
    turned = dict(reversed(group.items()))
    assert placed(turned, standbys, options) == placed(group, standbys, options)


@given(st.integers(1, 4), st.sampled_from(ALL_IDS))
def test_isolating_a_task_moves_only_it_and_what_balance_needs(clients: int, task: str) -> None:
    group = {name: Client() for name in "ABCD"[:clients]}
    before = placed(group, 0, {})
    after = placed({**carried_on(group, before), "Z": Client(task)}, 0, {})
    assert after["Z"][0] == task
    owner = {t: name for name, (active, _) in before.items() for t in active.split()}
    moved = [t for name, (active, _) in after.items() for t in active.split() if owner[t] != name]
    assert len(moved) <= 2


def test_one_task_for_each_client_is_possible_and_lists_decide_alone() -> None:
    names = "ABCDE"
    group = {name: Client(f"0_{n}", active=f"0_{(n + 1) % 5}") for n, name in enumerate(names)}
    assert actives(run(group, "0_0..4")[0]) == {name: f"0_{n}" for n, name in enumerate(names)}


def test_clients_without_lists_are_drained_and_take_over_again() -> None:
    everything = {"A": Client("0_0-1"), "B": Client("0_2-3"), "C": Client(active="0_0 0_1 0_2 0_3")}
    drained = run(everything, "0_0..3")[0]
    assert actives(drained) == {"A": "0_0 0_1", "B": "0_2 0_3", "C": ""}
    back = {"C": carried_on(everything, drained)["C"]}
    assert actives(run(back, "0_0..3")[0]) == {"C": "0_0 0_1 0_2 0_3"}


def test_large_group_is_placed_quickly_and_evenly() -> None:
    group = {chr(0x4E00 + n): Client(f"0_{n}" if n < 100 else None) for n in range(300)}
    found = actives(run(group, "0_0..2999 1_0..1999", stateful="1_0..1999", standbys=1)[0])
    counts = sorted(len(found[chr(0x4E00 + n)].split()) for n in range(100, 300))
    assert (counts[0], counts[-1], sum(counts)) == (24, 25, 4900)
