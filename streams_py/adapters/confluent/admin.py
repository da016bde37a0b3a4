"""Administrative requests: the port ``Admin`` on librdkafka's admin client.

An admin client that was in use before a broker restart can be deaf afterwards: group offsets asked of it time out for
ever, while a new client is answered at once. So whenever a request goes unanswered, the client is thrown away and the
next request makes a new one.

Each item of a request has its own result. When *nothing* was answered, the request as a whole raises BrokerUnavailable
with the cluster's address and the time waited.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]  # exports unmarked

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.broker_log import BrokerLog
from streams_py.adapters.confluent.failures import admin_error, broker_away, error_of, is_unreachable
from streams_py.adapters.confluent.settings import Settings, rejected_setting
from streams_py.errors import BrokerUnavailable, StreamsError
from streams_py.ports import AdminError, AdminErrorKind, PartitionInfo, TopicSpec

__all__ = ["ConfluentAdmin"]

_log = logging.getLogger(__name__)

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

# The library answers at its own deadline; this much later something is wrong with the library itself.
_GRACE_S: Final = 5.0


class ConfluentAdmin:
    """Thread-safe. ``timeout_ms`` bounds every request; ``remove_member`` goes through another client, see
    :mod:`streams_py.adapters.librdkafka_gaps`."""

    def __init__(
        self, settings: Settings, *, timeout_ms: int = 60_000, remove_member: Callable[[str, str], None] | None = None
    ) -> None:
        self._settings = settings
        self._bootstrap = str(settings["bootstrap.servers"])
        self._timeout_ms = timeout_ms
        self._remove_member = remove_member
        self._broker_log = BrokerLog(str(settings["client.id"]), self._bootstrap)
        self._lock = threading.Lock()
        self._client: AdminClient | None = None
        self._live()  # settings that cannot work are an error now, not at the first rebalance

    # -- topics ----------------------------------------

    def describe_topics(
        self, names: Collection[str] | None = None
    ) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        """Partitions of the named topics, or of all topics."""
        if names is None:
            names = self._all_topics()
        if not names:
            return {}
        asked = sorted(names)
        futures = self._request(
            "describing topics",
            lambda client: client.describe_topics(TopicCollection(asked), request_timeout=self._timeout_s),
        )
        return self._collect("describing topics", futures.items(), _partition_infos)

    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]:
        """Create topics; None for each one that exists now because of this call."""
        if not specs:
            return {}
        wanted = [
            NewTopic(spec.name, spec.partitions, spec.replication_factor, config=dict(spec.config)) for spec in specs
        ]
        futures = self._request(
            "creating topics", lambda client: client.create_topics(wanted, request_timeout=self._timeout_s)
        )
        return self._collect("creating topics", futures.items(), lambda _nothing: None)

    def _all_topics(self) -> list[str]:
        try:
            return sorted(self._live().list_topics(timeout=self._timeout_s).topics)
        except KafkaException as failed:
            self._forget_client()
            raise broker_away(self._bootstrap, "listing topics", self._timeout_ms) from failed

    # -- offsets ----------------------------------------

    def list_offsets(
        self, partitions: Collection[TopicPartition], *, earliest: bool = False
    ) -> Mapping[TopicPartition, int | AdminError]:
        """End (or first) offsets, uncommitted transactions included."""
        if not partitions:
            return {}
        spec: Any = OffsetSpec.earliest() if earliest else OffsetSpec.latest()  # type: ignore[no-untyped-call]  # stubs
        asked = {confluent_kafka.TopicPartition(*partition): spec for partition in partitions}
        futures = self._request(
            "listing offsets",
            lambda client: client.list_offsets(
                asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=self._timeout_s
            ),
        )
        items = ((TopicPartition(asked.topic, asked.partition), future) for asked, future in futures.items())
        return self._collect("listing offsets", items, lambda found: int(found.offset))

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        """Committed positions of a group; None where there is none. Waits for open transactions (KIP-447)."""
        if not partitions:
            return {}
        doing = f"reading committed offsets of group {group}"
        asked = ConsumerGroupTopicPartitions(
            group, [confluent_kafka.TopicPartition(*partition) for partition in partitions]
        )
        futures = self._request(
            doing,
            lambda client: client.list_consumer_group_offsets(
                [asked], require_stable=True, request_timeout=self._timeout_s
            ),
        )
        found: dict[TopicPartition, int | None] = dict.fromkeys(partitions)
        answer = self._collect(doing, futures.items(), lambda answered: answered.topic_partitions)[group]
        if isinstance(answer, AdminError):
            raise StreamsError(f"{doing} failed: {answer.message}")
        for position in answer:
            if position.error is not None:
                self._forget_client()
                raise BrokerUnavailable(f"{doing} failed for {position.topic}: {position.error.str()}")
            if position.offset >= 0:
                found[TopicPartition(position.topic, position.partition)] = position.offset
        return found

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Ask for deletion of everything below these offsets; does not wait, and failures are only logged."""
        if not offsets:
            return
        asked = [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        try:
            futures = self._live().delete_records(asked, request_timeout=self._timeout_s)
        except KafkaException as failed:
            self._broker_log.warn(f"records could not be deleted: {failed}")
            return
        for partition, future in futures.items():
            future.add_done_callback(self._deletion_logged(TopicPartition(partition.topic, partition.partition)))

    def _deletion_logged(self, partition: TopicPartition) -> Callable[[Future[Any]], None]:
        def done(future: Future[Any]) -> None:
            failed = future.exception()
            if failed is not None:
                self._broker_log.warn(f"records of {partition} could not be deleted: {failed}")

        return done

    # -- groups ----------------------------------------

    def remove_member(self, group: str, instance_id: str) -> None:
        """Make the group forget a static member."""
        if self._remove_member is None:
            raise StreamsError("this cluster has no static members to remove")
        self._remove_member(group, instance_id)

    def close(self) -> None:
        """Drop the connections. Requests under way may go unanswered."""
        self._forget_client()

    # -- the client ----------------------------------------

    @property
    def _timeout_s(self) -> float:
        return self._timeout_ms / 1000

    def _live(self) -> AdminClient:
        with self._lock:
            if self._client is None:
                try:
                    settings: Settings = {**self._settings, "error_cb": self._broker_log.on_error}
                    self._client = AdminClient(settings, logger=self._broker_log)
                except KafkaException as refused:
                    error = error_of(refused)
                    raise rejected_setting(
                        error.str() if error else str(refused), self._settings, "admin client"
                    ) from None
            return self._client

    def _forget_client(self) -> None:
        with self._lock:
            self._client = None

    def _request(
        self, doing: str, send: Callable[[AdminClient], Mapping[_Item, Future[Any]]]
    ) -> Mapping[_Item, Future[Any]]:
        client = self._live()
        try:
            return send(client)
        except KafkaException as failed:
            self._forget_client()
            raise StreamsError(f"{doing} failed: {failed}") from failed
        finally:
            client.poll(0)  # librdkafka's log lines

    def _collect(
        self, doing: str, futures: Iterable[tuple[_Item, Future[Any]]], read: Callable[[Any], _Answer]
    ) -> dict[_Item, _Answer | AdminError]:
        """The answer or the error of each item. BrokerUnavailable when nothing was answered at all."""
        answers: dict[_Item, _Answer | AdminError] = {}
        unreachable = 0
        reason = ""
        for item, future in futures:
            try:
                answers[item] = read(future.result(self._timeout_s + _GRACE_S))
            except KafkaException as failed:
                error = error_of(failed)
                if error is None:
                    raise StreamsError(f"{doing} failed: {failed}") from failed
                unreachable += is_unreachable(error)
                reason = error.str()
                answers[item] = admin_error(error)
            except TimeoutError:
                unreachable += 1
                answers[item] = AdminError(AdminErrorKind.TIMED_OUT, "the client library did not answer")
        self._after_request(unreachable)
        if answers and unreachable == len(answers):
            raise broker_away(self._bootstrap, doing, self._timeout_ms, reason)
        return answers

    def _after_request(self, unreachable: int) -> None:
        client = self._live()
        client.poll(0)
        if unreachable:
            self._forget_client()
        self._broker_log.check()


def _partition_infos(described: Any) -> tuple[PartitionInfo, ...]:
    """An admin client's TopicDescription as the port's tuple, ascending by number."""
    return tuple(
        PartitionInfo(
            described.name,
            partition.id,
            partition.leader.id if partition.leader is not None and partition.leader.id >= 0 else None,
            tuple(node.id for node in partition.replicas),
            frozenset(node.rack for node in partition.replicas if node.rack),
        )
        for partition in sorted(described.partitions, key=lambda partition: int(partition.id))
    )
