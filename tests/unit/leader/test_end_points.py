"""Contradictory endpoints: no query goes to a member that claims another member's process id."""

from __future__ import annotations

import pytest

from streams_protocol import HostInfo
from tests.support.leader.kit import COUNT, STATELESS, assign, member

OWN, OTHER = "own:1", "other:2"


@pytest.mark.parametrize("claimer", ["a", "z"])
@pytest.mark.parametrize("claimed", ["stranger:9", None])
def test_client_with_two_end_points_gets_none_and_both_are_reported(claimer: str, claimed: str | None) -> None:
    outcome = assign(
        {"m": member(1, endpoint=OWN), "n": member(2, endpoint=OTHER), claimer: member(1, endpoint=claimed)}, COUNT
    )
    for info in outcome.infos.values():
        assert set(info.partitions_by_host) == set(info.standby_partitions_by_host) == {HostInfo("other", 2)}
    assert set(outcome.codes.values()) == {0}
    logged = outcome.cluster.logged
    assert "00000000-0000-0000-0000-000000000001 have different endpoints" in logged
    assert "m: own:1" in logged
    assert f"{claimer}: {claimed or 'no endpoint'}" in logged


def test_threads_with_one_end_point_in_two_spellings_are_one_client() -> None:
    members = {"a": member(1, endpoint="http://own:1"), "b": member(1, endpoint=OWN)}
    outcome = assign(members, STATELESS)
    assert all(set(info.partitions_by_host) == {HostInfo("own", 1)} for info in outcome.infos.values())
    assert "endpoint" not in outcome.cluster.logged


def test_end_point_of_two_process_ids_is_reported() -> None:
    outcome = assign({"a": member(1, endpoint=OWN), "b": member(2, endpoint=OWN)}, STATELESS)
    assert "have the same endpoint own:1" in outcome.cluster.logged


def test_later_member_with_a_bad_end_point_is_refused_alone() -> None:
    outcome = assign({"a": member(1, endpoint=OWN), "b": member(1, endpoint="no port")}, STATELESS)
    assert outcome.codes == {"a": 0, "b": 3}


def test_end_points_of_others_cannot_reach_the_terminal() -> None:
    outcome = assign({"a": member(1, endpoint=OWN), "b\x9b": member(1, endpoint="s:9")}, STATELESS)
    assert "b\\x9b: s:9" in outcome.cluster.logged
