"""Creation of topics on a real broker."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streams_py.testing.broker.interface import NoBrokerError

_REQUEST_S = 5.0
_LIMIT_S = 40.0


def create_topic(bootstrap: str, name: str, partitions: int, config: Mapping[str, str] | None) -> None:
    """Create the topic with the broker's default replication factor; wait until all partitions have a leader.

    Also works shortly after a node was killed. Until the cluster detects that, a broker may report the dead node as the
    controller, and librdkafka keeps waiting for that node. So each attempt uses a new client.
    """
    limit = time.monotonic() + _LIMIT_S
    tried_before = False
    while (error := _try_create(bootstrap, name, partitions, dict(config or {}))) is not None:
        if tried_before and error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            break  # an earlier request did succeed
        if not error.retriable() and error.code() != KafkaError._TIMED_OUT:
            raise NoBrokerError(f"cannot create topic {name}: {error}")
        tried_before = True
        _pause(limit, f"cannot create topic {name} within {_LIMIT_S:.0f} s: {error}")
    while not _has_leaders(bootstrap, name, partitions):
        _pause(limit, f"not all {partitions} partitions of {name} have a leader after {_LIMIT_S:.0f} s")


def _try_create(bootstrap: str, name: str, partitions: int, config: dict[str, str]) -> KafkaError | None:
    admin = _admin(bootstrap)  # keep a reference: the request is cancelled when its client is deleted
    topic = NewTopic(name, num_partitions=partitions, config=config)
    try:
        admin.create_topics([topic], operation_timeout=_REQUEST_S, request_timeout=_REQUEST_S)[name].result()
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        return reason
    return None


def _has_leaders(bootstrap: str, name: str, partitions: int) -> bool:
    try:
        seen = _admin(bootstrap).list_topics(name, timeout=_REQUEST_S).topics[name].partitions
    except KafkaException:
        return False
    return len(seen) == partitions and all(partition.leader >= 0 for partition in seen.values())


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _pause(limit: float, message: str) -> None:
    if time.monotonic() > limit:
        raise NoBrokerError(message)
    time.sleep(0.05)
