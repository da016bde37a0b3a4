"""Single assign steps: the resulting assignments and their invariants.

Comments such as L1 are numbers of invariants.
"""

from __future__ import annotations

from streams_protocol import NO_FOLLOW_UP
from streams_py.topology.physical.metadata import TopologyMetadata
from tests.support.leader.kit import (
    COUNT,
    NOW_MS,
    REPARTITIONED,
    STATELESS,
    FakeCluster,
    assign,
    member,
    pid,
    sub,
    tp,
    tps,
)

RUNNING = -2


def with_state(partitions: int = 4, end_offset: int = 100) -> FakeCluster:
    return FakeCluster({"in": partitions, "app-counts-changelog": partitions}, end_offset)


def test_every_member_gets_one_assignment_and_nobody_else_does() -> None:  # L1
    outcome = assign({"b": member(2), "a": member(1), "c": member(1)})
    assert list(outcome.published.assignments) == ["a", "b", "c"]


def test_each_partition_stands_at_the_place_of_its_task() -> None:  # L2
    outcome = assign({"a": member(1)}, REPARTITIONED)
    pairs = list(zip(outcome.partitions["a"], outcome.infos["a"].active_tasks, strict=True))
    assert [str(p) for p, _ in pairs] == [f"{topic}-{i}" for topic in ("app-r", "in") for i in range(4)]
    assert [str(t) for _, t in pairs] == ["1_0", "1_1", "1_2", "1_3", "0_0", "0_1", "0_2", "0_3"]


def test_task_has_one_partition_of_each_source_topic_that_is_long_enough() -> None:
    topology = TopologyMetadata({0: sub("long short")})
    outcome = assign({"a": member(1)}, topology, FakeCluster({"long": 3, "short": 1}))
    assert outcome.partitions["a"] == tps("long-0 long-1 long-2 short-0")
    assert outcome.active("a") == ["0_0", "0_1", "0_2"]


def test_no_partition_is_given_to_two_members() -> None:  # L3
    members = {name: member(process) for name, process in zip("abcde", (1, 1, 2, 3, 3), strict=True)}
    outcome = assign(members, REPARTITIONED, with_state(7))
    given = [tp for partitions in outcome.partitions.values() for tp in partitions]
    assert len(given) == len(set(given)) == 14


def test_every_task_is_assigned_or_withheld() -> None:  # L4
    members = {"a": member(1, owned="in-0 in-1 in-2 in-3"), "b": member(2), "c": member(3)}
    outcome = assign(members, STATELESS)
    assigned = {task for name in members for task in outcome.active(name)}
    claimed = {f"0_{tp.partition}" for tp in tps("in-0 in-1 in-2 in-3")} - set(outcome.active("a"))
    assert assigned | claimed == {"0_0", "0_1", "0_2", "0_3"}
    assert assigned.isdisjoint(claimed)
    again = assign(
        {"a": member(1, owned=" ".join(map(str, outcome.partitions["a"]))), "b": member(2), "c": member(3)}, STATELESS
    )
    assert {task for name in members for task in again.active(name)} == {"0_0", "0_1", "0_2", "0_3"}


def test_nothing_is_withheld_when_nobody_claims_anything() -> None:  # L7
    outcome = assign({"a": member(1), "b": member(2)})
    assert outcome.active("a") + outcome.active("b") == ["0_0", "0_2", "0_1", "0_3"]
    assert {outcome.next_ms(m) for m in "ab"} == {NO_FOLLOW_UP}
    assert outcome.published.stable is True


def test_task_is_withheld_from_its_new_owner_when_somebody_else_claims_it() -> None:  # L5 L6
    outcome = assign({"a": member(1, owned="in-0 in-1 in-2 in-3"), "b": member(2)}, STATELESS)
    assert len(outcome.partitions["a"]) == 2
    assert outcome.partitions["b"] == ()
    assert outcome.next_ms("b") == 0
    assert outcome.next_ms("a") == NO_FOLLOW_UP
    assert outcome.published.stable is False


def test_task_is_handed_over_in_the_round_after_it_was_released() -> None:  # L8
    first = assign({"a": member(1, owned="in-0 in-1 in-2 in-3"), "b": member(2)}, STATELESS)
    kept = " ".join(map(str, first.partitions["a"]))
    second = assign({"a": member(1, owned=kept), "b": member(2)}, STATELESS)
    assert len(second.partitions["a"]) == len(second.partitions["b"]) == 2
    assert second.published.stable is True


def test_whole_task_is_withheld_when_only_one_of_its_partitions_is_claimed() -> None:
    topology = TopologyMetadata({0: sub("x y")})
    cluster = FakeCluster({"x": 1, "y": 1})
    outcome = assign({"a": member(1, owned="x-0"), "b": member(1, owned="y-0")}, topology, cluster)
    assert outcome.partitions == {"a": (), "b": ()}
    assert 0 in {outcome.next_ms("a"), outcome.next_ms("b")}


def test_task_is_withheld_when_it_moves_between_threads_of_one_process() -> None:
    outcome = assign({"a": member(1), "b": member(1, owned="in-0 in-1 in-2 in-3")}, STATELESS)
    assert outcome.partitions["a"] == ()
    assert outcome.next_ms("a") == 0
    assert len(outcome.partitions["b"]) == 2


def test_withheld_task_stays_standby_when_its_new_client_had_it() -> None:  # L11
    running = {f"0_{p}": RUNNING for p in range(4)}
    caught_up = {f"0_{p}": 100 for p in range(4)}
    outcome = assign(
        {"a": member(1, owned="in-0 in-1 in-2 in-3", sums=running), "b": member(2, sums=caught_up)}, COUNT, with_state()
    )
    assert outcome.partitions["b"] == ()
    assert outcome.standby("b") == ["0_1", "0_3"]
    assert {p for parts in outcome.infos["b"].standby_tasks.values() for p in parts} == set(tps("in-1 in-3"))


def test_stateless_task_never_becomes_a_transient_standby() -> None:
    topology = TopologyMetadata({0: sub("in", unlogged="cache")})
    outcome = assign({"a": member(1, owned="in-0 in-1"), "b": member(2)}, topology, FakeCluster({"in": 2}))
    assert outcome.next_ms("b") == 0
    assert outcome.standby("b") == []


def test_version_is_the_smallest_used_and_the_smallest_supported() -> None:  # L12
    outcome = assign({"a": member(1), "b": member(2, version=8, latest=9)})
    assert {info.version for info in outcome.infos.values()} == {8}
    assert {info.commonly_supported_version for info in outcome.infos.values()} == {9}


def test_host_maps_have_the_clients_with_an_end_point() -> None:  # L13
    outcome = assign(
        {"a": member(1, endpoint="http://[::1]:80"), "b": member(2, endpoint="h:2"), "c": member(3)}, COUNT
    )
    info = outcome.infos["c"]
    assert {(h.host, h.port) for h in info.partitions_by_host} == {("::1", 80), ("h", 2)}
    assert info.partitions_by_host.keys() == info.standby_partitions_by_host.keys()


def test_host_maps_are_empty_when_a_member_has_version_1() -> None:  # L13
    outcome = assign({"a": member(1, endpoint="h:1"), "b": member(2, version=1)})
    assert all(not info.partitions_by_host for info in outcome.infos.values())


def test_host_map_shows_the_target_when_a_task_is_withheld() -> None:
    outcome = assign(
        {"a": member(1, owned="in-0 in-1", endpoint="h:1"), "b": member(2, endpoint="h:2")},
        STATELESS,
        FakeCluster({"in": 2}),
    )
    hosts = {host.port: partitions for host, partitions in outcome.infos["a"].partitions_by_host.items()}
    assert hosts[2] == {tp("in-1")}
    assert outcome.partitions["b"] == ()


def test_probing_deadline_is_on_the_first_member_of_the_leaders_client() -> None:  # L14 L15
    # a has everything; b and c (one client, the leader's) warm up.
    running = {f"0_{p}": RUNNING for p in range(4)}
    outcome = assign(
        {"a": member(2, owned="in-0 in-1 in-2 in-3", sums=running), "b": member(1), "c": member(1)},
        COUNT,
        with_state(end_offset=1_000_000),
        probing_rebalance_interval_ms=90_000,
    )
    assert outcome.next_ms("b") == NOW_MS + 90_000
    assert outcome.next_ms("a") == outcome.next_ms("c") == NO_FOLLOW_UP
    assert outcome.published.stable is False


def test_probing_is_not_scheduled_when_the_leader_has_no_usable_member() -> None:
    running = {f"0_{p}": RUNNING for p in range(4)}
    outcome = assign(
        {"a": member(2, owned="in-0 in-1 in-2 in-3", sums=running), "b": member(3)},
        COUNT,
        with_state(end_offset=1_000_000),
    )
    assert {outcome.next_ms(m) for m in "ab"} == {NO_FOLLOW_UP}


def test_one_client_can_have_a_zero_and_no_deadline_when_its_first_member_waits_for_a_task() -> None:
    # One stateful task too far behind to move, one stateless task that moves to the leader's client.
    topology = TopologyMetadata({0: sub("in", stores="counts"), 1: sub("x")})
    cluster = FakeCluster({"in": 1, "x": 2, "app-counts-changelog": 1}, 1_000_000)
    outcome = assign({"a": member(2, owned="in-0 x-0 x-1", sums={"0_0": RUNNING}), "b": member(1)}, topology, cluster)
    assert outcome.next_ms("b") == 0


def test_new_changelogs_are_not_asked_for_end_offsets() -> None:  # L16
    outcome = assign({"a": member(1)})
    assert outcome.cluster.created.keys() == {"app-counts-changelog"}
    assert outcome.cluster.listed == set()


def test_existing_changelogs_are_asked_for_end_offsets() -> None:  # L16
    outcome = assign({"a": member(1)}, COUNT, with_state(2))
    assert outcome.cluster.created == {}
    assert outcome.cluster.listed == set(tps("app-counts-changelog-0 app-counts-changelog-1"))


def test_source_changelogs_are_asked_for_committed_offsets_only() -> None:  # L16
    topology = TopologyMetadata({0: sub("table", source_changelogs="table")})
    cluster = FakeCluster({"table": 2})
    outcome = assign({"a": member(1)}, topology, cluster)
    assert outcome.cluster.listed == set()
    asked = [effect for effect in outcome.cluster.seen if type(effect).__name__ == "FetchCommittedOffsets"]
    assert [effect.partitions for effect in asked] == [tps("table-0 table-1")]  # type: ignore[union-attr]  # by name


def test_changelog_has_a_partition_for_the_highest_task() -> None:
    topology = TopologyMetadata({0: sub("long short", stores="s")})
    outcome = assign({"a": member(1)}, topology, FakeCluster({"long": 5, "short": 2}), replication_factor=3)
    spec = outcome.cluster.created["app-s-changelog"]
    assert (spec.partitions, spec.replication_factor, dict(spec.config)) == (5, 3, {"cleanup.policy": "compact"})


def test_end_point_of_the_first_member_counts_when_we_do_as_kafka_does() -> None:
    members = {"b": member(1, endpoint="h:2"), "a": member(1, endpoint="h:1")}
    outcome = assign(members, reference_behaviour=True)
    assert {host.port for host in outcome.infos["a"].partitions_by_host} == {1}


def test_partition_claimed_twice_is_only_logged() -> None:
    outcome = assign({"a": member(1, owned="in-0"), "b": member(2, owned="in-0")}, STATELESS, FakeCluster({"in": 1}))
    assert "claimed by more than one member: in-0" in outcome.cluster.logged
    assert set(outcome.codes.values()) == {0}


def test_future_member_takes_part_and_gets_the_groups_version() -> None:
    outcome = assign({"a": member(1), "f": member(0, version=12)})
    assert outcome.infos["f"].version == 11
    assert outcome.infos["f"].commonly_supported_version == 11
    assert len(outcome.active("f")) == 2
    assert outcome.published.stable is False


def test_only_future_members_are_assigned_as_one_client_in_version_11() -> None:  # L27
    outcome = assign({"f": member(0, version=12), "g": member(0, version=13, latest=20)})
    assert [len(outcome.active(m)) for m in "fg"] == [2, 2]
    assert {info.version for info in outcome.infos.values()} == {11}


def test_supported_version_above_ours_is_no_future_member() -> None:
    outcome = assign({"a": member(1, latest=12)})
    assert outcome.infos["a"].commonly_supported_version == 11
    assert outcome.published.stable is True


def test_process_ids_order_as_signed_numbers() -> None:
    # 8000... is negative, so it is the first client and gets the first task.
    high = pid(0x8000_0000_0000_0000 << 64)
    assert high < pid(1)


def test_leader_takes_the_next_request_after_one_was_abandoned() -> None:
    outcome = assign({"a": member(1)})
    again = assign({"a": member(1)}, cluster=outcome.cluster)
    assert again.active("a") == outcome.active("a")


def test_missing_standbys_are_one_warning_however_many_tasks_lack_them() -> None:
    outcome = assign({"a": member(1)}, num_standby_replicas=1)
    [text] = [line for line in outcome.cluster.logged.splitlines() if "cannot place" in line]
    assert "task 0_0" in text
    assert text.endswith("lower num.standby.replicas (likewise for 3 more: 0_1, 0_2, 0_3)")


def test_tags_that_cannot_be_kept_apart_are_one_warning_with_a_remedy() -> None:
    members = {"a": member(1, tags={"zone": "a"}), "b": member(2, tags={"zone": "a"}), "c": member(3)}
    keys = ("zone", "cluster")
    outcome = assign(members, num_standby_replicas=1, rack_aware_assignment_tags=keys)
    assert "cannot differ" not in outcome.cluster.logged  # one zone, and a client without a zone
    members = {
        "a": member(1, tags={"zone": "a", "cluster": "x"}),
        "b": member(2, tags={"zone": "b", "cluster": "x"}),
        "c": member(3, tags={"zone": "a", "cluster": "y"}),
    }
    outcome = assign(members, num_standby_replicas=1, rack_aware_assignment_tags=keys)
    [text] = [line for line in outcome.cluster.logged.splitlines() if "cannot differ" in line]
    assert "task 0_0" in text
    assert "start an instance with zone other than a and cluster other than x" in text
