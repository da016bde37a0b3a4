"""The coordinator of a Connect worker: closing it is not logged as an error."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from kafka import errors as kafka_errors
from kafka.protocol.consumer import HeartbeatRequest

# kafka-python's coordinator, which a worker reaches only on the thread of its membership.
from streams_py.adapters.kafka_python.connect_coordinator import ConnectCoordinator, _Base


class Member:
    """A member that never joins."""

    def protocols(self) -> list[tuple[str, bytes]]:
        return []

    def perform(self, leader: str, protocol: str, members: Mapping[str, bytes], generation: int) -> dict[str, bytes]:
        return {}

    def joined(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None: ...


@pytest.mark.parametrize("closed", [True, False])
def test_request_that_our_own_closing_cuts_off_is_no_news(
    closed: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = ConnectCoordinator(
        Member(), bootstrap_servers="127.0.0.1:1", group_id="g", client_id="w", rebalance_timeout_ms=60_000, config={}
    )
    client = coordinator._client  # without a broker that says its version
    monkeypatch.setattr(type(client._manager), "broker_version", (4, 0))  # see above
    base = _Base(client, Member(), coordinator._settings)  # its settings are those of the coordinator
    coordinator._base = base  # as its thread does, once it has the version
    try:
        if closed:
            coordinator.close()
        base.coordinator_id = "coordinator-1"
        # In place of a connection that is cut off.
        base._failed_request("coordinator-1", HeartbeatRequest(), kafka_errors.Cancelled("closed"))
        warned = [record.getMessage() for record in caplog.records if record.name == "kafka.coordinator"]
        assert not (closed and warned)
        assert (base.coordinator_id is None) is not closed
    finally:
        coordinator.close()
