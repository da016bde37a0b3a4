"""Host maps are encoded once per generation, and the bytes equal those of a complete encoding."""

from __future__ import annotations

import pytest

from streams_protocol import decode_assignment_info, encode_assignment_info
from tests.support.leader.kit import NOW_MS, REPARTITIONED, FakeCluster, assign, member


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize("endpoints", [True, False])
def test_bytes_are_canonical_in_every_version(version: int, endpoints: bool) -> None:
    running = {f"1_{p}": -2 for p in range(3)}
    group = {
        name: member(
            process,
            version=version,
            latest=max(version, 3),
            endpoint=f"host-{process}:80" if endpoints else None,
            owned="in-0 in-1 in-2 app-r-0 app-r-1 app-r-2" if name == "a" else "",
            sums=running if name == "a" else {},
        )
        for name, process in (("a", 1), ("b", 1), ("c", 2))
    }
    cluster = FakeCluster({"in": 3, "app-counts-changelog": 3, "app-r": 3}, end_offset=10**6)
    outcome = assign(group, REPARTITIONED, cluster, num_standby_replicas=1)
    for assignment in outcome.published.assignments.values():
        info = decode_assignment_info(assignment.user_data)
        assert encode_assignment_info(info) == assignment.user_data
        assert info.version == version
        assert bool(info.partitions_by_host) is (endpoints and version >= 2)
        assert bool(info.standby_partitions_by_host) is (endpoints and version >= 6)
    follow_ups = {outcome.next_ms(name) for name in group}
    assert (NOW_MS + 600_000 in follow_ups or 0 in follow_ups) is (version >= 7)
