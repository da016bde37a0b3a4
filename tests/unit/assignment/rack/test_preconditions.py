"""When the built-in assignors may use racks: scenarios with their ids.

The leader checks this, so the tests call the leader's code.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streams_protocol.types import HostInfo, TopicPartition
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.java_order import HashSizing
from streams_py.leader.steps.decode import Client, Group
from streams_py.leader.steps.racks import RackQuestion, client_racks, rack_question
from streams_py.leader.steps.tasks import task_table
from streams_py.ports import AdminError, AdminErrorKind, PartitionInfo
from tests.support.leader.kit import COUNT, pid

CHANGELOG = "app-counts-changelog"
TIMED_OUT = AdminError(AdminErrorKind.TIMED_OUT, "timed out")


def infos(topic: str, *replica_racks: set[str], known: bool = True) -> dict[str, tuple[PartitionInfo, ...]]:
    """Return a topic's metadata; with ``known=False`` its replicas are not in the metadata yet."""
    return {
        topic: tuple(
            PartitionInfo(topic, p, 0, (0, 1) if known else (), frozenset(racks))
            for p, racks in enumerate(replica_racks)
        )
    }


def group(**racks: Mapping[str, str | None]) -> Group:
    """Return clients P1, P2, ... with the racks of their members."""
    clients = {
        pid(int(name[1:])): Client(pid(int(name[1:])), HostInfo("h", 1), consumers=sorted(of), racks=dict(of))
        for name, of in racks.items()
    }
    return Group(clients, frozenset(), frozenset(), 11, 11, None, False, {})


GOOD = group(P1={"a": "rack1"}, P2={"b": "rack2"})
IN = infos("in", {"rack1", "rack2"})


def ask(
    metadata: Mapping[str, tuple[PartitionInfo, ...]] = IN,
    *,
    members: Group = GOOD,
    strategy: str = "min_traffic",
    standbys: int = 0,
) -> tuple[RackQuestion | None, str]:
    table = task_table(COUNT, IN, hash_sizing=HashSizing.JDK_19_AND_NEWER)
    configs = AssignmentConfigs(rack_aware_assignment_strategy=strategy, num_standby_replicas=standbys)
    return rack_question(members, table, metadata, configs)


def usable(
    metadata: Mapping[str, tuple[PartitionInfo, ...]] = IN,
    described: Mapping[str, tuple[PartitionInfo, ...] | AdminError] | None = None,
    *,
    standbys: int = 0,
) -> tuple[bool, str]:
    question, wrong = ask(metadata, standbys=standbys)
    assert question is not None, wrong
    optimiser, wrong = question.answer(described or {})
    return optimiser is not None, wrong


def test_nothing_is_asked_or_said_when_the_strategy_is_none() -> None:  # P1
    assert ask(strategy="none", members=group(P1={"a": None})) == (None, "")


def test_racks_are_not_used_when_a_partition_is_unknown() -> None:  # P2
    assert usable({}) == (False, "no replica of in-0 has a known rack; set broker.rack on every broker")


def test_replica_without_a_rack_is_ignored_when_another_has_one() -> None:  # P3, where Kafka gives up; P15
    assert usable(infos("in", {"rack1"})) == (True, "")
    assert usable(infos("in", set())) == (False, "no replica of in-0 has a known rack; set broker.rack on every broker")


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        pytest.param(group(P1={"a": "rack1"}, P2={"b": None}), "member b of client", id="P4"),
        pytest.param(group(P1={"a": ""}), "member a of client", id="P4-empty"),
        pytest.param(group(P1={}), "member None of client", id="P5"),
        pytest.param(group(P1={"a": "rack1", "b": "rack2"}), "in different racks, rack1, rack2", id="P6"),
    ],
)
def test_racks_are_not_used_when_a_client_has_no_single_rack(members: Group, reason: str) -> None:
    question, wrong = ask(members=members)
    assert question is None
    assert reason in wrong
    assert "every instance needs client.rack" in wrong


def test_rack_of_a_client_is_that_of_its_members() -> None:  # P7
    assert client_racks(group(P1={"a": "rack1", "b": "rack1"})) == ({pid(1): "rack1"}, "")


def test_nothing_is_described_when_metadata_has_all_racks() -> None:  # P8, P9
    question, _ = ask()
    assert question is not None
    assert question.topics == ()
    assert usable() == usable() == (True, "")


def test_topic_without_replicas_is_described() -> None:  # P10
    metadata = infos("in", set(), known=False)
    question, _ = ask(metadata)
    assert question is not None
    assert question.topics == ("in",)
    assert usable(metadata, infos("in", {"rack1"})) == (True, "")


def test_changelogs_are_described_when_there_are_standbys() -> None:  # P11
    metadata = infos("in", set(), known=False)
    question, _ = ask(metadata, standbys=1)
    assert question is not None
    assert question.topics == (CHANGELOG, "in")
    described = infos("in", {"rack1"}) | infos(CHANGELOG, {"rack1", "rack2"})
    assert usable(metadata, described, standbys=1) == (True, "")


@pytest.mark.parametrize("failed", ["in", CHANGELOG])
def test_racks_are_not_used_at_all_when_describing_fails(failed: str) -> None:  # P12, P13
    metadata = infos("in", set(), known=False)
    described = infos("in", {"rack1"}) | infos(CHANGELOG, {"rack1"}) | {failed: TIMED_OUT}
    assert usable(metadata, described, standbys=1) == (False, f"topic {failed} cannot be described")


def test_partition_missing_from_the_answer_is_not_taken_for_local() -> None:
    table = task_table(COUNT, infos("in", {"r"}, {"r"}), hash_sizing=HashSizing.JDK_19_AND_NEWER)
    configs = AssignmentConfigs(rack_aware_assignment_strategy="min_traffic", num_standby_replicas=1)
    question, _ = rack_question(GOOD, table, infos("in", {"r"}, {"r"}), configs)
    assert question is not None
    assert question.answer(infos(CHANGELOG, {"r"})) == (
        None,
        f"no replica of {TopicPartition(CHANGELOG, 1)} has a known rack; set broker.rack on every broker",
    )
