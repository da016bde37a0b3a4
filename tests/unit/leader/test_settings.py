"""The settings that the leader and the member read from a configuration."""

from __future__ import annotations

import uuid

import pytest

from streams_protocol.types import HostInfo
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError
from streams_py.leader import LeaderSettings
from streams_py.member import MemberSettings
from tests.support.leader.kit import assign, member, pid

CONFIG = {
    "application.id": "app",
    "bootstrap.servers": "localhost:9092",
    "application.server": "http://h:80",
    "client.tag.zone": "z",
    "rack.aware.assignment.tags": "zone",
    "upgrade.from": "2.3",
    "num.standby.replicas": 2,
    "max.warmup.replicas": 3,
    "acceptable.recovery.lag": 4,
    "probing.rebalance.interval.ms": 70_000,
    "rack.aware.assignment.strategy": "min_traffic",
    "rack.aware.assignment.traffic_cost": 5,
    "rack.aware.assignment.non_overlap_cost": 6,
    "replication.factor": 3,
    "retry.backoff.ms": 7,
    "main.consumer.max.poll.interval.ms": 9_000,
    "internal.task.assignor.class": "legacy_sticky",
    "task.assignor.class": "mine:Assignor",
    "app.mine": "x",
}


def test_leader_settings_are_those_of_the_configuration() -> None:
    found = LeaderSettings.from_config(StreamsConfig.of(CONFIG), process_id=pid(7), future_process_id=uuid.UUID(int=8))
    assert (found.process_id, found.future_process_id) == (pid(7), pid(8))
    configs = found.assignment
    assert (configs.num_standby_replicas, configs.max_warmup_replicas, configs.acceptable_recovery_lag) == (2, 3, 4)
    assert configs.probing_rebalance_interval_ms == 70_000
    assert configs.rack_aware_assignment_tags == ("zone",)
    assert configs.rack_aware_assignment_strategy == "min_traffic"
    assert (configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost) == (5, 6)
    assert (found.replication_factor, found.retry_backoff_ms, found.topic_setup_timeout_ms) == (3, 7, 4_500)
    assert (found.internal_assignor, found.task_assignor) == ("legacy_sticky", "mine:Assignor")
    assert found.original_configs["app.mine"] == "x"
    assert not found.reference_behaviour


def test_topic_setup_may_take_half_of_kafkas_default_when_nothing_is_configured() -> None:
    plain = {key: CONFIG[key] for key in ("application.id", "bootstrap.servers")}
    found = LeaderSettings.from_config(StreamsConfig.of(plain), process_id=pid(7), future_process_id=uuid.UUID(int=8))
    assert found.topic_setup_timeout_ms == 150_000


def test_member_settings_are_those_of_the_configuration() -> None:
    found = MemberSettings.from_config(StreamsConfig.of(CONFIG), process_id=pid(7))
    assert (found.process_id, found.endpoint, found.host) == (pid(7), "http://h:80", HostInfo("h", 80))
    assert (dict(found.client_tags), found.upgrade_from) == ({"zone": "z"}, "2.3")


def test_config_error_leaves_the_assign_step_when_the_internal_assignor_does_not_exist() -> None:
    outcome = assign({"a": member(1)}, internal_assignor="no.such.Assignor")
    assert isinstance(outcome.error, ConfigError)
    with pytest.raises(ConfigError, match=r"no\.such\.Assignor"):
        raise outcome.error
