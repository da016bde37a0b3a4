"""Invariants that hold for every history of a group: many rounds, real bytes, random changes."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams_protocol import HostInfo
from streams_protocol.types import TopicPartition
from streams_py.topology.physical.metadata import TopologyMetadata
from tests.support.leader.group_simulation import SimulatedGroup
from tests.support.leader.kit import COUNT, NOW_MS, STATELESS, FakeCluster, assign, member, sub, tps

MIXED = TopologyMetadata(
    {
        0: sub("in", sinks="app-r"),
        1: sub("app-r other", stores="counts", repartitions={"app-r": None}),
        2: sub("table", source_changelogs="table"),
        3: sub("plain", unlogged="cache"),
    }
)


def new_group(seed: int, **changes: object) -> SimulatedGroup:
    cluster = FakeCluster({"in": 5, "other": 3, "table": 4, "plain": 2}, end_offset=1000)
    cluster.committed = {TopicPartition("table", p): 1000 for p in range(4)}
    return SimulatedGroup(MIXED, cluster, random.Random(seed), acceptable_recovery_lag=100, **changes)


def check_placement(group: SimulatedGroup, replicas: int, warmups: int) -> None:
    """Check A1 and A2 on the target of the last assignment."""
    active, standby = group.target()
    inputs = {TopicPartition(topic, p) for topic, n in group.cluster.topics.items() for p in range(n)}
    inputs = {tp for tp in inputs if tp.topic in MIXED.source_topics}
    placed = [tp for parts in active.values() for tp in parts]
    assert sorted(placed) == sorted(inputs), "every partition is active exactly once"
    clients = len({m.process for m in group.members.values()})
    stateful = {topic for s in MIXED.subtopologies.values() if s.is_logged for topic in s.source_topics}
    for host, parts in standby.items():
        assert not parts & active[host], "no standby together with its active"
        assert {tp.topic for tp in parts} <= stateful
    for tp in (tp for tp in inputs if tp.topic in stateful):
        copies = sum(tp in parts for parts in standby.values())
        assert min(replicas, clients - 1) <= copies <= replicas + warmups
    for name, info in group.infos().items():
        host = HostInfo(f"h{group.members[name].process}", 1)
        assert set(group.members[name].owned) <= active[host]
        assert info.error_code == 0


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**9), replicas=st.integers(0, 2), data=st.data())
def test_hold_when_members_come_and_go(seed: int, replicas: int, data: st.DataObject) -> None:  # A1 A2 A3 A5
    group = new_group(seed, num_standby_replicas=replicas)
    group.join(1)
    for _ in range(data.draw(st.integers(1, 8))):
        names = sorted(group.members)
        match data.draw(st.sampled_from(["join", "join", "thread", "leave", "lose", "rebalance", "settle"])):
            case "join":
                group.join(data.draw(st.integers(1, 4)))
            case "thread" if names:
                group.join(group.members[names[0]].process)
            case "leave" if len(names) > 1:
                group.leave(data.draw(st.sampled_from(names)))
            case "lose" if names:
                group.lose_generation(data.draw(st.sampled_from(names)))
            case "settle":
                group.settle(rebalances_max=40)
            case _:
                pass
        group.rebalance()
        check_placement(group, replicas, warmups=2)
    group.settle(rebalances_max=40)
    check_placement(group, replicas, warmups=0)
    assert group.published is not None
    assert group.published.stable is True
    running = [task for m in group.members.values() for task in m.active]
    assert sorted(running) == sorted(group.all_tasks())


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**9), eager=st.lists(st.booleans(), min_size=2, max_size=4))
def test_holds_when_eager_and_cooperative_members_are_mixed(seed: int, eager: list[bool]) -> None:  # A3
    group = new_group(seed)
    for process, is_eager in enumerate(eager):
        group.join(process, upgrade_from="2.3" if is_eager else None)
        group.settle(rebalances_max=40)
    running = [task for m in group.members.values() for task in m.active]
    assert sorted(running) == sorted(group.all_tasks())


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**9), newest=st.lists(st.integers(3, 12), min_size=1, max_size=5))
def test_group_finds_its_highest_common_version_without_a_loop(seed: int, newest: list[int]) -> None:  # A8
    group = new_group(seed)
    for process, version in enumerate(newest):
        group.join(process, newest=version)
    group.rebalance()
    common = min(11, *newest)
    for _ in range(2):
        group.rebalance()
    assert {info.version for info in group.infos().values()} == {common}
    assert {info.commonly_supported_version for info in group.infos().values()} == {common}
    group.settle(rebalances_max=40)
    # Bounce the older members to the newest release, one by one.
    for name in [name for name, m in group.members.items() if m.newest < 11]:
        process = group.members[name].process
        group.leave(name)
        group.join(process)
        group.settle(rebalances_max=40)
    assert {info.version for info in group.infos().values()} == {11}
    assert {m.failure for m in group.members.values()} == {None}


def test_old_releases_are_left_in_two_bounces_when_upgrade_from_says_so() -> None:  # A8
    group = new_group(1)
    for process, release in enumerate(["0.10.0", "1.1", None]):
        group.join(process, upgrade_from=release)
    group.settle(rebalances_max=40)
    assert {info.version for info in group.infos().values()} == {1}
    for name in list(group.members)[:2]:
        process = group.members[name].process
        group.leave(name)
        group.join(process)
        group.settle(rebalances_max=40)
    assert {info.version for info in group.infos().values()} == {11}
    assert sorted(t for m in group.members.values() for t in m.active) == sorted(group.all_tasks())


def test_cooperative_member_hears_only_of_what_changes() -> None:  # L35
    group = SimulatedGroup(STATELESS, FakeCluster({"in": 2}), random.Random(0))
    first = group.join(1)
    group.settle(rebalances_max=5)
    assert first.callbacks == [("assigned", frozenset(tps("in-0 in-1")))]
    second = group.join(2)
    group.settle(rebalances_max=5)
    assert first.callbacks[1:] == [
        ("revoked", frozenset(tps("in-1"))),
        ("assigned", frozenset()),
        ("assigned", frozenset()),
    ]
    assert second.callbacks == [("assigned", frozenset()), ("assigned", frozenset(tps("in-1")))]


def test_eager_member_gives_up_everything_before_it_joins() -> None:  # L35
    group = SimulatedGroup(STATELESS, FakeCluster({"in": 1}), random.Random(0))
    only = group.join(1, upgrade_from="2.3")
    group.settle(rebalances_max=5)
    group.lose_generation(only.name)
    only.generation = group.generation  # the member kept its generation
    group.rebalance()
    assert only.callbacks == [
        ("assigned", frozenset(tps("in-0"))),
        ("revoked", frozenset(tps("in-0"))),
        ("assigned", frozenset(tps("in-0"))),
    ]


@pytest.mark.parametrize("release", [None, "2.3"])
def test_partitions_are_lost_never_revoked_when_the_generation_is_gone(release: str | None) -> None:  # L36
    group = SimulatedGroup(STATELESS, FakeCluster({"in": 1}), random.Random(0))
    only = group.join(1, upgrade_from=release)
    group.settle(rebalances_max=5)
    group.lose_generation(only.name)
    group.rebalance()
    assert [name for name, _ in only.callbacks] == ["assigned", "lost", "assigned"]
    assert only.active


# -- determinism -------------------------------------------------------------------------------------------------

PRINT_ASSIGNMENTS = """
import random
from tests.unit.leader.test_group import new_group
group = new_group(7, num_standby_replicas=1)
for process in (3, 1, 2, 1):
    group.join(process)
    group.settle(rebalances_max=40)
    for name, sent in group.published.assignments.items():
        print(name, sent.partitions, sent.user_data.hex())
"""


def test_assignments_are_the_same_bytes_when_the_hash_seed_differs() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PRINT_ASSIGNMENTS],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(p for p in sys.path if p) + ":."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "77")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 1000


@settings(max_examples=30, deadline=None)
@given(st.permutations(["a", "b", "c", "d"]))
def test_assignments_are_the_same_bytes_in_any_order_of_members(order: list[str]) -> None:
    group = {
        "a": member(1, owned="in-0", sums={"0_0": -2, "0_1": 7}, endpoint="h:1"),
        "b": member(1, owned="in-1", sums={"0_1": -2}, endpoint="h:other"),
        "c": member(2, sums={"0_3": 100}, tags={"zone": "z"}),
        "d": member(0, version=12),
    }
    group["b"] = member(1, owned="in-1", sums={"0_1": -2}, endpoint="h:9")

    def cluster() -> FakeCluster:
        return FakeCluster({"in": 4, "app-counts-changelog": 4}, now_ms=NOW_MS)

    expected = assign(group, COUNT, cluster(), num_standby_replicas=1)
    shuffled = assign({name: group[name] for name in order}, COUNT, cluster(), num_standby_replicas=1)
    assert list(shuffled.published.assignments.items()) == list(expected.published.assignments.items())


def test_member_with_another_topology_is_refused_and_both_are_named_and_the_others_go_on() -> None:
    stranger = member(2)._replace(topics=("other", "third"))
    outcome = assign({"a": member(1), "b": stranger}, STATELESS, compare_topics=True)
    assert outcome.codes == {"a": 0, "b": 3}
    assert outcome.active("a") == ["0_0", "0_1", "0_2", "0_3"]
    assert (
        "member b receives an error assignment, the other members are not affected: two topologies run under one "
        "application.id: this member reads other, third, but not in, which the leader's topology reads"
    ) in outcome.cluster.logged


def test_member_that_reads_more_than_the_leader_takes_part_and_what_nobody_processes_is_warned_of() -> None:
    larger = member(2)._replace(topics=("in", "more"))
    outcome = assign({"a": member(1), "b": larger}, STATELESS, compare_topics=True)
    assert outcome.codes == {"a": 0, "b": 0}
    assert outcome.active("b") == ["0_1", "0_3"]
    assert "member b also reads more, which the leader's topology does not: no member processes them" in (
        outcome.cluster.logged
    )


def test_topologies_are_not_compared_when_we_do_as_kafka_does() -> None:
    stranger = member(2)._replace(topics=("other",))
    outcome = assign({"a": member(1), "b": stranger}, STATELESS, compare_topics=True, reference_behaviour=True)
    assert outcome.codes == {"a": 0, "b": 0}
