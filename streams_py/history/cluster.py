"""Requests to a cluster for backfills, comparisons and warm starts."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.answers import TopicRetention
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_admin_settings
from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.adapters.security.settings import is_security_key
from streams_py.clients.factory import KafkaClients
from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports import AdminErrorKind, OffsetAndMetadata, TopicSpec
from streams_py.ports.described_groups import DescribedMember, DescribedStreamsMember
from streams_py.ports.rights import TOPIC, missing_right

_TIMEOUT_MS: Final = 30_000
_PAUSE_S: Final = 0.2


def cluster_options(config: StreamsConfig, bootstrap: str) -> dict[str, str]:
    """Return options of ``streams-kafka`` for an application's cluster at the address ``bootstrap``.

    They contain the address, the security settings, and the largest record that the application may write.
    """
    security = {
        f"kafka.{key}": value
        for key, value in config.settings_for(ClientRole.MAIN_CONSUMER).items()
        if is_security_key(key)
    }
    size = config.setting_for(ClientRole.PRODUCER, "max.request.size")
    limit = {} if size is None else {"kafka.message.max.bytes": size}
    return {"kafka.bootstrap.servers": bootstrap, **security, **limit}


class HistoryCluster:
    """The cluster of an application. Waits 30 s for an answer, then raises BrokerUnavailableError."""

    def __init__(self, config: StreamsConfig) -> None:
        self._clients = KafkaClients(config)
        settings = {"bootstrap.servers": self._clients.bootstrap, **config.settings_for(ClientRole.ADMIN)}
        self._admin = LogAdmin(bulk_admin_settings(settings, client_id=f"{config.application_id}-history"))
        self._groups = self._clients.group_admin(timeout_ms=_TIMEOUT_MS)

    def id(self) -> str | None:
        """Return the cluster's id, or None when the cluster does not report one."""
        return self._admin.cluster_id()

    def partition_counts(self) -> Mapping[str, int]:
        """Return the partition count of each topic of the cluster."""
        return self._admin.partition_counts()

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return topic ids, for the topics whose id the cluster reports."""
        return self._admin.topic_ids(topics)

    def starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return log start offsets."""
        return self._admin.log_starts(partitions)

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return end offsets of committed data (last stable offsets)."""
        return self._admin.log_ends(partitions, read_committed=True)

    def members(self, group: str) -> Sequence[DescribedMember | DescribedStreamsMember]:
        """Return the members of a group; empty when the group does not exist.

        Raises:
            StreamsError: the user may not describe the group, or members of its type cannot be listed.
        """
        found = self._groups.find_group(group)
        if found is not None:
            return found.members
        kind = self._groups.list_groups().get(group)
        if kind is None:
            return ()
        of_streams = self._groups.describe_streams_group(group)
        if of_streams is not None:
            return of_streams.members
        raise StreamsError(
            f"group {group} is of type {kind.lower()}, whose members cannot be listed; stop them and delete the group, "
            "or use another application.id"
        )

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return committed offsets of the partitions that have one."""
        found = self._admin.committed_offsets(group, partitions) if partitions else {}
        return {at: offset for at, offset in found.items() if offset is not None}

    def first_at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
        """Return the first offset with this timestamp or a later one; -1 where all records are older."""
        return self._admin.first_at(partitions, timestamp_ms)

    def bytes_of(self, partitions: Collection[TopicPartition]) -> int | None:
        """Return the bytes that one replica of each partition takes on disk; None without the right to know."""
        sizes = self._groups.log_bytes({at.topic for at in partitions}) if partitions else {}
        return sum(sizes[at] for at in partitions) if sizes.keys() >= set(partitions) else None

    def retentions(self, topics: Collection[str]) -> Mapping[str, TopicRetention]:
        """Return the retention of the topics that delete records and that the user may describe."""
        return self._admin.retentions(topics)

    def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create topics and wait until they are visible. Waits for topics that are being deleted."""
        waiting = {spec.name: spec for spec in specs}
        until_s = time.monotonic() + _TIMEOUT_MS / 1000
        while waiting:
            for name, error in self._admin.create_topics(list(waiting.values())).items():
                if error is None:
                    del waiting[name]
                elif error.kind not in (AdminErrorKind.ALREADY_EXISTS, AdminErrorKind.TIMED_OUT):
                    raise StreamsError(f"internal topic {name} cannot be created: {error.message}")
            if waiting and time.monotonic() > until_s:
                raise BrokerUnavailableError(f"topics {', '.join(waiting)} are not created after {_TIMEOUT_MS} ms")
            if waiting:
                time.sleep(_PAUSE_S)
        unseen = missing_right("DESCRIBE", TOPIC, [spec.name for spec in specs])
        self._await(lambda known: all(spec.name in known for spec in specs), f"to appear, or {unseen}")

    def delete(self, topics: Collection[str]) -> None:
        """Delete topics and wait until the cluster no longer lists them."""
        if topics:
            self._groups.delete_topics(topics)
            self._await(lambda known: not known & set(topics), "to disappear")

    def _await(self, done: object, what: str) -> None:
        assert callable(done)
        until_s = time.monotonic() + _TIMEOUT_MS / 1000
        while not done(self.partition_counts().keys()):
            if time.monotonic() > until_s:
                raise BrokerUnavailableError(f"topics take more than {_TIMEOUT_MS} ms {what}")
            time.sleep(_PAUSE_S)

    def forget(self, group: str) -> None:
        """Delete a group with its committed offsets. A group that does not exist is not an error."""
        if self._groups.find_group(group) is not None or group in self._groups.list_groups():
            self._groups.delete_group(group)

    def commit(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit for a group without members, in one request. StreamsError names a refused partition."""
        self._groups.set_offsets(group, offsets)

    def close(self) -> None:
        """Close the clients."""
        self._groups.close()
        self._admin.close()
        self._clients.close()
