"""What this package leans on in kafka-python, fact by fact: an upgrade that changes one of them fails here first."""

from __future__ import annotations

import inspect
from importlib.metadata import version

import pytest
from kafka.coordinator.base import BaseCoordinator, Generation
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.coordinator.heartbeat import Heartbeat
from kafka.errors import CommitFailedError, RebalanceInProgressError
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS
from kafka.protocol.consumer import JoinGroupRequest, SyncGroupRequest
from kafka.protocol.metadata import ApiVersionsRequest

from streams_py.adapters.kafka_python.classic.options import MOCK_CLUSTER

TESTED_VERSIONS = {"3.0.12"}


def test_installed_version_is_a_tested_one():
    assert version("kafka-python") in TESTED_VERSIONS


@pytest.mark.parametrize(
    "name",
    [
        "_do_join_and_sync_async", "_on_join_prepare_async", "_on_join_complete_async", "ensure_active_group_async",
        "ensure_coordinator_ready_async", "maybe_leave_group_async", "_send_heartbeat_request",
        "_commit_offsets_sync_async", "fetch_committed_offsets_async", "_heartbeat_loop",
    ],
)  # fmt: skip
def test_coroutine_exists(name):
    assert inspect.iscoroutinefunction(getattr(ConsumerCoordinator, name))


@pytest.mark.parametrize(
    "name",
    [
        "_process_join_group_response", "_process_sync_group_response", "_handle_heartbeat_response",
        "_failed_request", "_enable_heartbeat", "_close_heartbeat", "_maybe_start_heartbeat_loop",
        "_validate_rebalance_protocol", "_build_metadata_snapshot", "_handle_metadata_update", "reset_generation",
        "request_rejoin", "need_rejoin",
    ],
)  # fmt: skip
def test_method_exists(name):
    assert inspect.isfunction(getattr(ConsumerCoordinator, name))


def test_coordinator_has_the_attributes_that_are_read():
    source = inspect.getsource(BaseCoordinator.__init__) + inspect.getsource(ConsumerCoordinator.__init__)
    for name in (
        "rejoin_needed", "rejoining", "state", "coordinator_id", "_join_task", "_generation", "_heartbeat_enabled",
        "_heartbeat_loop_future", "_lock", "heartbeat", "_is_leader", "_joined_subscription", "_metadata_snapshot",
        "_assignment_snapshot", "_subscription", "_cluster", "_manager", "_net",
    ):  # fmt: skip
        assert f"self.{name} =" in source


def test_finished_join_would_be_started_anew_by_the_library():
    source = inspect.getsource(BaseCoordinator.join_group_async)
    assert "while self.need_rejoin():" in source
    assert "if self._join_task is None or self._join_task.is_done:" in source


def test_generation_is_lost_without_id_or_number():
    assert Generation(-1, "m", None).is_lost()
    assert Generation(3, "", None).is_lost()
    assert not Generation(3, "m", None).is_lost()


def test_heartbeat_remembers_answers_and_polls():
    heartbeat = Heartbeat(group_id="g")
    assert heartbeat.poll_timeout_expired(), "never polled counts as too long ago: poll once after construction"
    heartbeat.poll()
    assert not heartbeat.poll_timeout_expired()
    assert heartbeat.last_receive == -float("inf")


def test_commit_failure_carries_its_reason():
    assert isinstance(CommitFailedError(RebalanceInProgressError()).args[0], RebalanceInProgressError)


def test_default_reconnect_backoff_outlives_a_session():
    assert KafkaConnectionManager.DEFAULT_CONFIG["reconnect_backoff_max_ms"] == 30_000


def test_topic_creation_by_metadata_is_on_unless_switched_off_in_the_cluster():
    client = KafkaNetClient(bootstrap_servers="127.0.0.1:1", allow_auto_create_topics=False)
    try:
        assert client.cluster.config["allow_auto_create_topics"] is True
        client.cluster.config["allow_auto_create_topics"] = False
        assert client.cluster.metadata_request().allow_auto_topic_creation is False
    finally:
        client.close()


def test_join_and_sync_schemas_reach_the_versions_that_are_sent():
    assert JoinGroupRequest.max_version == 9
    assert SyncGroupRequest.max_version == 5


def test_newest_pin_that_librdkafkas_mock_cluster_can_answer():
    # Its answer to ApiVersions 3 and newer cannot be decoded by kafka-python.
    key = ApiVersionsRequest.API_KEY
    newest = max(pin for pin, apis in BROKER_API_VERSIONS.items() if key in apis and apis[key][1] <= 2)
    assert newest == MOCK_CLUSTER.api_version
