"""What checkers conclude from an assign step."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from streams_protocol import SubscriptionInfo
from streams_protocol.types import HostInfo, ProcessId
from streams_py.testing.checkers.observation import Published

A, B = ProcessId(UUID(int=1)), ProcessId(UUID(int=2))
HOST_1, HOST_2 = HostInfo("host", 1), HostInfo("host", 2)


def published(*members: tuple[ProcessId, str | None]) -> Published:
    infos: dict[str, SubscriptionInfo | None] = {
        f"member-{number}": SubscriptionInfo(process_id=process, endpoint=endpoint)
        for number, (process, endpoint) in enumerate(members)
    }
    nothing: Any = {}
    return Published(0, 1, "member-0", 11, {}, infos, frozenset(), {}, {}, {}, {}, frozenset(), nothing, "sticky")


@pytest.mark.parametrize(
    ("members", "hosts"),
    [
        ([(A, "host:1"), (A, "host:1"), (B, "host:2")], {HOST_1: A, HOST_2: B}),
        ([(A, "host:1"), (B, None)], {HOST_1: A}),
        ([(A, "host:1"), (A, None), (B, "host:2")], {}),
        ([(A, None), (A, "host:1")], {}),
        ([(A, "host:1"), (A, "host:2")], {}),
        ([(A, "host:1"), (B, "host:1")], {}),
        ([(A, None)], {}),
    ],
)
def test_end_points_are_known_if_every_process_has_one_of_its_own(
    members: list[tuple[ProcessId, str | None]], hosts: dict[HostInfo, ProcessId]
) -> None:
    assert published(*members).hosts == hosts
