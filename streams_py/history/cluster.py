"""What preparing and ending a warm start asks of a cluster."""

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
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports import AdminErrorKind, OffsetAndMetadata, TopicSpec
from streams_py.ports.described_groups import DescribedMember, DescribedStreamsMember
from streams_py.ports.rights import TOPIC, missing_right

__all__ = ["HistoryCluster", "cluster_options"]

_TIMEOUT_MS: Final = 30_000
_PAUSE_S: Final = 0.2


def cluster_options(config: StreamsConfig, bootstrap: str) -> dict[str, str]:
    """An application's cluster at ``bootstrap`` as options of ``streams-kafka``: its address, how one is let in there,
    and how large the records are that the application may write."""
    security = {
        f"kafka.{key}": value
        for key, value in config.client_settings("consumer.", "main.consumer.").items()
        if is_security_key(key)
    }
    size = config.client_settings("producer.").get("max.request.size")
    limit = {} if size is None else {"kafka.message.max.bytes": size}
    return {"kafka.bootstrap.servers": bootstrap, **security, **limit}


class HistoryCluster:
    """The cluster of an application. Waits half a minute for an answer, then raises BrokerUnavailableError."""

    def __init__(self, config: StreamsConfig) -> None:
        self._clients = KafkaClients(config)
        settings = {"bootstrap.servers": self._clients.bootstrap, **config.client_settings("admin.")}
        self._admin = LogAdmin(bulk_admin_settings(settings, client_id=f"{config.application_id}-history"))
        self._groups = self._clients.group_admin(timeout_ms=_TIMEOUT_MS)

    def id(self) -> str | None:
        """What the cluster calls itself; None when it does not say."""
        return self._admin.cluster_id()

    def partition_counts(self) -> Mapping[str, int]:
        """Partitions of every topic of the cluster."""
        return self._admin.partition_counts()

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """The cluster's ids of topics, of those that it tells."""
        return self._admin.topic_ids(topics)

    def starts(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """First offsets that are there."""
        return self._admin.log_starts(partitions)

    def ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Ends of what is committed."""
        return self._admin.log_ends(partitions, read_committed=True)

    def members(self, group: str) -> Sequence[DescribedMember | DescribedStreamsMember]:
        """Who is in a group; nobody when there is none. StreamsError when the user may not see it, or when it is of a
        type whose members cannot be seen."""
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
            f"group {group} is of type {kind.lower()}, and its members cannot be seen; stop them and delete the group, "
            "or take another application.id"
        )

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Committed offsets, where there are any."""
        found = self._admin.committed_offsets(group, partitions) if partitions else {}
        return {at: offset for at, offset in found.items() if offset is not None}

    def first_at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
        """First offset whose record is not older; -1 where all are."""
        return self._admin.first_at(partitions, timestamp_ms)

    def bytes_of(self, partitions: Collection[TopicPartition]) -> int | None:
        """How much of a disk one replica of each takes; None when the user may not know."""
        sizes = self._groups.log_bytes({at.topic for at in partitions}) if partitions else {}
        return sum(sizes[at] for at in partitions) if sizes.keys() >= set(partitions) else None

    def retentions(self, topics: Collection[str]) -> Mapping[str, TopicRetention]:
        """What topics keep, of those that delete the rest and may be asked."""
        return self._admin.retentions(topics)

    def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create topics; those that are being deleted are waited for."""
        waiting = {spec.name: spec for spec in specs}
        until_s = time.monotonic() + _TIMEOUT_MS / 1000
        while waiting:
            for name, error in self._admin.create_topics(list(waiting.values())).items():
                if error is None:
                    del waiting[name]
                elif error.kind not in (AdminErrorKind.ALREADY_EXISTS, AdminErrorKind.TIMED_OUT):
                    raise StreamsError(f"internal topic {name} cannot be created: {error.message}")
            if waiting and time.monotonic() > until_s:
                raise BrokerUnavailableError(f"topics {', '.join(waiting)} are not ready after {_TIMEOUT_MS} ms")
            if waiting:
                time.sleep(_PAUSE_S)
        unseen = missing_right("DESCRIBE", TOPIC, [spec.name for spec in specs])
        self._await(lambda known: all(spec.name in known for spec in specs), f"to appear, or {unseen}")

    def delete(self, topics: Collection[str]) -> None:
        """Delete topics, and wait until they are gone."""
        if topics:
            self._groups.delete_topics(topics)
            self._await(lambda known: not known & set(topics), "to go")

    def _await(self, done: object, what: str) -> None:
        assert callable(done)
        until_s = time.monotonic() + _TIMEOUT_MS / 1000
        while not done(self.partition_counts().keys()):
            if time.monotonic() > until_s:
                raise BrokerUnavailableError(f"topics take more than {_TIMEOUT_MS} ms {what}")
            time.sleep(_PAUSE_S)

    def forget(self, group: str) -> None:
        """Delete a group with what it has committed; one that is not there is no matter."""
        if self._groups.find_group(group) is not None or group in self._groups.list_groups():
            self._groups.delete_group(group)

    def commit(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit for a group without members, in one request. StreamsError names what was refused."""
        self._groups.set_offsets(group, offsets)

    def close(self) -> None:
        """Close the clients."""
        self._groups.close()
        self._admin.close()
        self._clients.close()
