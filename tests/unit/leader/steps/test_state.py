"""Previous tasks and lags of a client, derived from its members' claims and offset sums."""

from __future__ import annotations

import pytest

from streams_protocol.types import TaskId
from streams_py.assignment.api import KafkaStreamsState
from streams_py.assignment.application_state import ProblemState
from streams_py.assignment.assignors.cluster import Cluster
from streams_py.assignment.assignors.sticky_placement import StickyClient, StickyPlacement
from streams_py.assignment.java_order import HashSizing
from streams_py.assignment.problem import AssignmentProblem, ClientInput
from streams_py.errors import IllegalStateError
from streams_py.leader.steps.decode import decode_group
from streams_py.leader.steps.state import ClientHistory, EndOffsets, client_histories
from streams_py.leader.steps.tasks import task_table
from streams_py.ports import MemberSubscription
from tests.support.assignment.clusters import place_active
from tests.support.leader.kit import COUNT, FakeCluster, member, pid, settings, task

TABLE = task_table(COUNT, FakeCluster({"in": 4}).metadata(["in"]), hash_sizing=HashSizing.JDK_19_AND_NEWER)
ENDS = {"0_0": 500, "0_1": 500, "0_2": 100, "0_3": 0}


def history(
    members: dict[str, MemberSubscription], ends: dict[str, int] | None = None, *, tolerate_unknown: bool = False
) -> ClientHistory:
    """Return the history of the only client."""
    group = decode_group(members, future_process_id=settings().future_process_id, refuse_garbage=False)
    sums = {task(name): end for name, end in (ends or ENDS).items()}
    found, _ = client_histories(group, TABLE, EndOffsets(sums), tolerate_unknown=tolerate_unknown)
    return found[pid(1)]


def names(tasks: object) -> list[str]:
    assert isinstance(tasks, frozenset | set | tuple | list)
    return [str(task) for task in tasks]


def test_running_task_was_active_when_nothing_is_owned() -> None:  # CS-19
    found = history({"c1": member(1, sums={"0_1": -2})})
    assert (names(found.active), names(found.standby)) == (["0_1"], [])


def test_client_that_owns_only_unknown_partitions_is_refused_as_in_kafka() -> None:  # CS-20
    with pytest.raises(IllegalStateError, match="which no task reads"):
        history({"c1": member(1, owned="elsewhere-0")})


def test_unknown_partitions_are_forgotten_when_that_is_tolerated() -> None:  # CS-21
    found = history({"c1": member(1, owned="elsewhere-0")}, tolerate_unknown=True)
    assert not found.active
    assert not found.standby


def test_previous_tasks_are_those_that_each_consumer_reported() -> None:  # CS-22
    found = history({"c1": member(1, sums={"0_0": 100, "0_1": -2}), "c2": member(1, sums={"0_2": 0}), "c3": member(1)})
    assert {consumer: set(names(tasks)) for consumer, tasks in found.by_lag.items()} == {
        "c1": {"0_0", "0_1"},
        "c2": {"0_2"},
        "c3": set(),
    }


def test_owned_partitions_and_sums_together_tell_the_roles() -> None:  # CS-23
    found = history(
        {"c1": member(1, owned="in-1", sums={"0_1": -2, "0_0": 10}), "c2": member(1, owned="in-2", sums={"0_2": 0})}
    )
    assert sorted(names(found.active)) == ["0_1", "0_2"]
    assert names(found.standby) == ["0_0"]


def test_any_offset_sum_but_running_makes_a_standby() -> None:  # CS-26
    found = history({"c1": member(1, sums={"0_1": 0, "0_2": 100})})
    assert not found.active
    assert sorted(names(found.standby)) == ["0_1", "0_2"]
    assert {str(task): lag for task, lag in found.lags.items()} == {"0_1": 500, "0_2": 0}


def view(client: ClientInput, ends: dict[str, int]) -> KafkaStreamsState:
    sums = {task(name): end for name, end in ends.items()}
    return ProblemState(AssignmentProblem([client], list(sums), sums)).kafka_streams_states(compute_task_lags=True)[
        client.process_id
    ]


def test_client_lags_by_the_whole_changelog_when_it_reported_nothing() -> None:  # CS-28
    assert view(ClientInput(pid(1)), {"0_1": 500}).lag_for(task("0_1")) == 500


def test_lag_of_another_task_is_an_error() -> None:  # CS-33
    with pytest.raises(IllegalStateError, match="0_2 has no lag"):
        view(ClientInput(pid(1), lags={task("0_1"): 0}), {"0_1": 0}).lag_for(task("0_2"))


def test_tags_are_those_of_the_client_or_none() -> None:  # CS-36
    assert view(ClientInput(pid(1), tags={"k1": "v1"}), {}).client_tags == {"k1": "v1"}
    assert view(ClientInput(pid(1)), {}).client_tags == {}


def test_previous_tasks_and_lags_say_nothing_about_what_is_placed() -> None:  # CS-01
    lags = {task("0_0"): 5, task("0_2"): -1}
    given = ClientInput(
        pid(1), 4, previous_active=[task("0_0"), task("0_1")], previous_standby=[task("0_2")], lags=lags
    )
    state = view(given, {"0_0": 9, "0_2": 9})
    assert [state.lag_for(task(name)) for name in ("0_0", "0_2")] == [5, -1]
    cluster = Cluster([pid(1)], [4], [task("0_0"), task("0_2")])
    assert (cluster.load(0), cluster.active_lists(), cluster.standby_lists()) == (0.0, [[]], [[]])


def test_placed_tasks_are_counted_and_listed_by_role() -> None:  # CS-09, CS-10, CS-12
    cluster = Cluster([pid(1)], [1], [task("0_1"), task("0_2")])
    place_active(cluster, 0, 0)
    assert (cluster.active_lists(), cluster.standby_lists(), cluster.load(0)) == ([[0]], [[]], 1.0)
    assert (cluster.holds(0, 0), cluster.holds(0, 1)) == (True, False)
    other = Cluster([pid(1)], [1], [task("0_1"), task("0_2")])
    other.place_standby(0, 0)
    assert (other.active_lists(), other.standby_lists(), other.load(0)) == ([[]], [[0]], 1.0)
    assert other.holds(0, 0)


def placement(*clients: tuple[int, int], tasks: int = 20) -> StickyPlacement:
    """Run the internal sticky assignor on clients given as (threads, previous tasks)."""
    made = StickyPlacement(
        [StickyClient(pid(n), threads, [], []) for n, (threads, _) in enumerate(clients, 1)],
        [TaskId(0, n) for n in range(tasks)],
        preserve=False,
        capacity_breaks_ties=True,
        active_order_hashed=False,
        sizing=HashSizing.JDK_19_AND_NEWER,
    )
    left = iter([TaskId(0, n) for n in range(tasks)])
    for client, (_, held) in enumerate(clients):
        for _ in range(held):
            made._give_active(next(left), client)  # scenarios begin in the middle of a placement
    return made


@pytest.mark.parametrize(
    ("less_loaded", "other"),
    [
        pytest.param((1, 0), (1, 1), id="CS-13"),
        pytest.param((2, 0), (1, 0), id="CS-14"),
        pytest.param((2, 7), (1, 4), id="CS-15"),
        pytest.param((3, 4), (3, 5), id="CS-16"),
    ],
)
def test_client_with_more_room_is_preferred(less_loaded: tuple[int, int], other: tuple[int, int]) -> None:
    made = placement(other, less_loaded)
    ranks = [made._rank(client) for client in (0, 1)]  # the scenarios of Kafka Streams compare clients
    assert ranks[1] < ranks[0]
    assert not ranks[0] < ranks[1]


@pytest.mark.parametrize(("share", "has_quota"), [(2, True), (1, False)])
def test_quota_counts_actives_only(share: int, has_quota: bool) -> None:  # CS-18
    made = placement((1, 1), tasks=share)
    assert made._has_quota(0) is has_quota  # as in the scenario of Kafka Streams
