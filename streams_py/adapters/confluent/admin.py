"""Admin requests: the port ``Admin`` on librdkafka's admin client.

An admin client that was in use before a broker restart may stop working: its requests for group offsets time out
indefinitely, while a new client gets answers immediately. An admin client that asked for a topic just before the topic
was created can keep reporting that the topic has no leaders. So the client is discarded when a connection was lost,
when a request is not answered, or when a request fails inside the library. The next request creates a new client.

Each item of a request has its own result. When no item was answered, the whole request raises BrokerUnavailableError
with the cluster's address and the time waited.

A result without an error is not always an answer: if the broker stops during a request for an end offset, librdkafka
returns -1001. So :mod:`.answers` validates the results, and converts invalid ones to "timed out".
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType  # type: ignore[attr-defined]  # exports unmarked

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.answers import (
    NO_ANSWER,
    cleanup_of,
    delete_retention_of,
    offset_of,
    partitions_of,
    topics_of,
)
from streams_py.adapters.confluent.broker_log import BrokerLog
from streams_py.adapters.confluent.failures import admin_error, broker_away, error_of
from streams_py.adapters.confluent.settings import Settings, creation_error
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports import AdminError, AdminErrorKind, PartitionInfo, TopicCleanup, TopicSpec
from streams_py.ports.rights import GROUP, TOPIC, missing_right

_log = logging.getLogger(__name__)

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

# librdkafka answers by its own deadline. If it takes this much longer, the library itself has a problem.
_GRACE_S: Final = 5.0

_CLUSTER_ID_TIMEOUT_S: Final = 3.0
_CREATING: Final = "creating topics"
_LISTING_OFFSETS: Final = "listing offsets"
_READING_CONFIGS: Final = "reading topics' configurations"
_RIGHTS: Final = {_CREATING: "CREATE", _READING_CONFIGS: "DESCRIBE_CONFIGS"}
"""Required operation of a request; DESCRIBE for all other requests."""

_COORDINATOR_MOVES: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
    }
)
"""Errors while the group's coordinator restarts, moves or is unreachable. A retry is enough."""
_READING_STEP_S: Final = 5.0
"""Interval between checks for a final error while waiting for committed offsets, in seconds."""
_COORDINATOR_BACKOFF_S: Final = 0.1

_SECOND_REQUEST_S: Final = 0.2
"""Delay before a second request to a cluster that reports no topics, in seconds."""


def _is_doubtful(answer: AdminError) -> bool:
    """Whether the client itself may be the cause of the error, see the module's docstring.

    That is so in three cases:

    * no broker answered;
    * the library itself produced the error (the names of its errors begin with an underscore);
    * a leader refused the request: for offset requests, librdkafka keeps using the leader and leader epoch that it has
      cached, until its next regular metadata refresh some minutes later.
    """
    passing = answer.kind in (AdminErrorKind.TIMED_OUT, AdminErrorKind.LEADER_NOT_AVAILABLE)
    return passing or answer.message.startswith("_")


def _names_no_leaders(answer: AdminError) -> bool:
    return answer.message.startswith("_NOENT")


class ConfluentAdmin:
    """The admin client. Thread-safe.

    ``timeout_ms`` limits every request. ``remove_member`` uses another client library, see
    :mod:`streams_py.adapters.connection.librdkafka_gaps`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        timeout_ms: int = 60_000,
        remove_member: Callable[[str, str, str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._bootstrap = str(settings["bootstrap.servers"])
        self._timeout_ms = timeout_ms
        self._remove_member = remove_member
        self._broker_log = BrokerLog(str(settings["client.id"]), self._bootstrap)
        self._lock = threading.Lock()
        self._client: AdminClient | None = None
        self._reader_lock = threading.Lock()
        self._reader: confluent_kafka.Consumer | None = None
        self._reader_group = ""
        self._connections_lost_before = 0
        self._doubted = threading.Event()  # set when a request that no caller waits for has failed
        self._undeleted: set[TopicPartition] = set()  # partitions whose last deletion failed because of the client
        self._live()  # raises for invalid settings now, not at the first rebalance

    def cluster_id(self) -> str | None:
        """Return the id of the cluster; see the port."""
        timeout_s = min(self._timeout_s, _CLUSTER_ID_TIMEOUT_S)
        try:
            described = self._live().describe_cluster(request_timeout=timeout_s).result(timeout_s + _GRACE_S)
        except (KafkaException, TimeoutError) as failed:
            self._forget_client()
            raise broker_away(self._bootstrap, "asking for the cluster's id", int(timeout_s * 1000)) from failed
        found: str | None = described.cluster_id
        return found or None

    # -- topics ----------------------------------------

    def describe_topics(
        self, names: Collection[str] | None = None
    ) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        """Return the partitions of the named topics, or of all topics."""
        if names is None:
            names = self._all_topics()
        if not names:
            return {}
        asked = TopicCollection(sorted(names))
        return self._ask(
            "describing topics",
            lambda client: client.describe_topics(asked, request_timeout=self._timeout_s),
            partitions_of,
            names,
        )

    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]:
        """Create topics. The result is None for each topic that this call has created."""
        if not specs:
            return {}
        wanted = [
            NewTopic(spec.name, spec.partitions, spec.replication_factor, config=dict(spec.config)) for spec in specs
        ]
        try:
            return self._ask(
                _CREATING,
                lambda client: client.create_topics(wanted, request_timeout=self._timeout_s),
                lambda _nothing: None,
                [spec.name for spec in specs],
            )
        except ValueError as error:  # the library rejects numbers out of range without a request
            return dict.fromkeys([spec.name for spec in specs], AdminError(AdminErrorKind.OTHER, str(error)))

    def _all_topics(self) -> list[str]:
        return sorted(self._listed_topics())

    def _listed_topics(self) -> Mapping[str, Any]:
        """Return the library's topic metadata by name.

        An empty result must be confirmed by a second client. A broker that starts or stops may report no topics, and
        the caller would then give up all tasks.
        """
        topics = self._list_topics()
        if not topics:
            self._forget_client()
            time.sleep(_SECOND_REQUEST_S)
            topics = self._list_topics()
        return topics

    def _list_topics(self) -> Mapping[str, Any]:
        try:
            topics = topics_of(self._live().list_topics(timeout=self._timeout_s))
        except KafkaException as failed:
            self._forget_client()
            raise broker_away(self._bootstrap, "listing topics", self._timeout_ms) from failed
        if topics is None:
            self._forget_client()
            raise broker_away(self._bootstrap, "listing topics", self._timeout_ms, "the answer names no brokers")
        return topics

    def delete_retention_ms(self, topics: Collection[str]) -> Mapping[str, int | AdminError | None]:
        """Return ``delete.retention.ms`` of compacted topics; see the port."""
        return self._configs(topics, delete_retention_of)

    def cleanup(self, topics: Collection[str]) -> Mapping[str, TopicCleanup | AdminError]:
        """Return the cleanup policies and limits of topics; see the port."""
        return self._configs(topics, cleanup_of)

    def _configs(
        self, topics: Collection[str], read: Callable[[Any], _Answer | AdminError]
    ) -> dict[str, _Answer | AdminError]:
        asked = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)}
        if not asked:
            return {}
        answers = self._ask(
            _READING_CONFIGS,
            lambda client: client.describe_configs(list(asked.values()), request_timeout=self._timeout_s),
            read,
            list(asked.values()),
        )
        return {topic: answers[resource] for topic, resource in asked.items()}

    # -- offsets ----------------------------------------

    def list_offsets(
        self, partitions: Collection[TopicPartition], *, earliest: bool = False
    ) -> Mapping[TopicPartition, int | AdminError]:
        """Return the end offsets (or the first offsets), including open transactions."""
        if not partitions:
            return {}
        spec: Any = OffsetSpec.earliest() if earliest else OffsetSpec.latest()  # type: ignore[no-untyped-call]  # stubs
        asked = {confluent_kafka.TopicPartition(*partition): spec for partition in partitions}
        return self._list_offsets(asked, IsolationLevel.READ_UNCOMMITTED, offset_of)

    def _list_offsets(
        self,
        asked: Mapping[confluent_kafka.TopicPartition, Any],
        level: IsolationLevel,
        read: Callable[[Any], _Answer | AdminError],
    ) -> dict[TopicPartition, _Answer | AdminError]:
        answers = self._ask(
            _LISTING_OFFSETS,
            lambda client: client.list_offsets(asked, isolation_level=level, request_timeout=self._timeout_s),  # type: ignore[arg-type]  # stubs want a dict
            read,
            asked,
        )
        found = {TopicPartition(native.topic, native.partition): answer for native, answer in answers.items()}
        # If all partitions get "No leaders found", the topics don't exist or their brokers are unreachable.
        unled = {at for at, answer in found.items() if isinstance(answer, AdminError) and _names_no_leaders(answer)}
        try:
            topics = self.describe_topics({at.topic for at in unled})
        except BrokerUnavailableError as away:
            if len(unled) == len(found):  # "No leaders found" comes from the library: no broker has answered anything
                raise broker_away(self._bootstrap, _LISTING_OFFSETS, self._timeout_ms, "no leaders found") from away
            topics = {}
        for at in unled:
            described = topics.get(at.topic)
            if isinstance(described, AdminError) and described.kind is AdminErrorKind.UNKNOWN_TOPIC:
                found[at] = described
        return found

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        """Return the committed offset of each partition, or None. Waits for open transactions (KIP-447)."""
        found: dict[TopicPartition, int | None] = dict.fromkeys(partitions)
        return found | {at: position.offset for at, position in self._committed(group, partitions).items()}

    def _committed(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, confluent_kafka.TopicPartition]:
        """Return the committed offsets as librdkafka's objects, without the partitions that have none.

        A consumer that never joins the group reads them. The admin client also has such a request, but librdkafka 2.16
        crashes the process when a coordinator that moves or restarts refuses it: librdkafka then accesses the consumer
        group of a client that has none.
        """
        if not partitions:
            return {}
        doing = f"reading committed offsets of group {group}"
        asked = [confluent_kafka.TopicPartition(*partition) for partition in partitions]
        deadline_s = time.monotonic() + self._timeout_s
        with self._reader_lock:
            while True:
                try:
                    left_s = min(_READING_STEP_S, deadline_s - time.monotonic())
                    answer = self._reader_of(group).committed(asked, timeout=max(0.1, left_s))
                    refused = next((position.error for position in answer if position.error is not None), None)
                    if refused is None and {(at.topic, at.partition) for at in answer} != set(partitions):
                        refused = KafkaError(KafkaError._TIMED_OUT, "the answer leaves out partitions")
                except UnicodeDecodeError:  # the binding reads beyond the end of an offset's metadata
                    refused = KafkaError(KafkaError._TIMED_OUT, "the metadata of an offset cannot be decoded")
                except KafkaException as failed:
                    refused = error_of(failed)
                    if refused is None:
                        raise StreamsError(f"{doing} failed: {failed}") from failed
                if refused is None:
                    break
                refused = self._polled_group_error() or refused
                self._forget_reader()
                if refused.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise StreamsError(f"{doing} failed: {missing_right('DESCRIBE', GROUP, [group])}")
                if refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    topics = {at.topic for at in partitions}
                    raise StreamsError(f"{doing} failed: {missing_right('DESCRIBE', TOPIC, topics)}")
                if refused.code() not in _COORDINATOR_MOVES:
                    raise StreamsError(f"{doing} failed: {refused.str()}")
                if time.monotonic() >= deadline_s:
                    raise broker_away(self._bootstrap, doing, self._timeout_ms, refused.str())
                time.sleep(_COORDINATOR_BACKOFF_S)
        return {TopicPartition(at.topic, at.partition): at for at in answer if at.offset >= 0}

    def _reader_of(self, group: str) -> confluent_kafka.Consumer:
        """Return the consumer that reads a group's offsets. Only one is kept. The caller holds the lock."""
        if self._reader is None or self._reader_group != group:
            self._forget_reader()
            settings: Settings = {
                **self._settings,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "error_cb": self._broker_log.on_error,
            }
            self._reader = confluent_kafka.Consumer(settings, logger=self._broker_log)
            self._reader_group = group
        return self._reader

    def _polled_group_error(self) -> KafkaError | None:
        """Poll for the error of a missing right on the group. The caller holds the lock.

        librdkafka reports this error only to ``poll``, and otherwise keeps retrying.
        """
        said = None if self._reader is None else self._reader.poll(0)
        error = None if said is None else said.error()
        return error if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED else None

    def _forget_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Request the deletion of all records below these offsets. Does not wait; failures are only logged."""
        if not offsets:
            return
        asked = [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        try:
            futures = self._live().delete_records(asked, request_timeout=self._timeout_s)
        except KafkaException as failed:
            self._broker_log.warn(f"records could not be deleted: {failed}")
            return
        for partition, future in futures.items():
            place = TopicPartition(partition.topic, partition.partition)
            future.add_done_callback(_on_deletion(place, self._broker_log, self._doubted, self._undeleted))

    # -- groups ----------------------------------------

    def remove_member(self, group: str, instance_id: str, member_id: str) -> None:
        """Remove a static member from the group. With ``member_id`` "", remove any member with that instance id.

        A member that has replaced ``member_id`` in the meantime is not removed.
        """
        if self._remove_member is None:
            raise StreamsError("this cluster has no static members to remove")
        self._remove_member(group, instance_id, member_id)

    def close(self) -> None:
        """Close the connections. Requests in flight may remain unanswered."""
        self._forget_client()
        with self._reader_lock:
            self._forget_reader()

    # -- the client ----------------------------------------

    @property
    def _timeout_s(self) -> float:
        return self._timeout_ms / 1000

    def _live(self) -> AdminClient:
        with self._lock:
            if self._client is not None:
                self._client.poll(0)  # serves the reports of lost connections
                if self._doubted.is_set() or self._broker_log.connections_lost != self._connections_lost_before:
                    self._client = None
            if self._client is None:
                self._doubted.clear()
                self._connections_lost_before = self._broker_log.connections_lost
                try:
                    settings: Settings = {**self._settings, "error_cb": self._broker_log.on_error}
                    self._client = AdminClient(settings, logger=self._broker_log)
                except KafkaException as refused:
                    error = error_of(refused)
                    raise creation_error(
                        error.str() if error else str(refused), self._settings, "admin client"
                    ) from None
            return self._client

    def _forget_client(self) -> None:
        with self._lock:
            self._client = None

    def _ask(
        self,
        doing: str,
        send: Callable[[AdminClient], Mapping[_Item, Future[Any]]],
        read: Callable[[Any], _Answer | AdminError],
        items: Collection[_Item],
    ) -> dict[_Item, _Answer | AdminError]:
        """Send a request and return the answer or the error of each of ``items``.

        Raises:
            BrokerUnavailableError: No item was answered.
        """
        # This reference keeps the client alive, although another thread may discard it. Without its client, a future
        # would never complete.
        client = self._live()
        try:
            futures = send(client)
        except KafkaException as failed:
            raise StreamsError(f"{doing} failed: {failed}") from failed
        answers: dict[_Item, _Answer | AdminError] = {}
        right = _RIGHTS.get(doing, "DESCRIBE")
        unanswered = ""
        doubtful = False
        for item in items:
            future = futures.get(item)
            topic = str(getattr(item, "topic", getattr(item, "name", item)))
            result = NO_ANSWER if future is None else self._result_of(future, right, topic)
            answer = result if isinstance(result, AdminError) else read(result)
            answers[item] = answer
            if isinstance(answer, AdminError):
                unanswered = answer.message if answer.kind is AdminErrorKind.TIMED_OUT else unanswered
                doubtful = doubtful or _is_doubtful(answer)
        client.poll(0)  # librdkafka's log lines
        self._broker_log.check()
        if doubtful:
            self._forget_client()
        if all(
            isinstance(answer, AdminError) and answer.kind is AdminErrorKind.TIMED_OUT for answer in answers.values()
        ):
            raise broker_away(self._bootstrap, doing, self._timeout_ms, unanswered)
        return answers

    def _result_of(self, future: Future[Any], right: str, topic: str) -> Any:
        try:
            return future.result(self._timeout_s + _GRACE_S)
        except KafkaException as failed:
            error = error_of(failed)
            return AdminError(AdminErrorKind.OTHER, str(failed)) if error is None else admin_error(error, right, topic)
        except TimeoutError:
            return AdminError(AdminErrorKind.TIMED_OUT, "the client library did not answer")


def _on_deletion(
    partition: TopicPartition, log: BrokerLog, doubted: threading.Event, undeleted: set[TopicPartition]
) -> Callable[[Future[Any]], None]:
    """Return a callback for the result of a deletion, which runs on the library's thread.

    The callback must not hold the client: dropping the last reference on that thread aborts the process.

    Args:
        partition: The partition.
        log: Receives warnings.
        doubted: Set when the client itself may be the cause of a failure. The next purge then uses a new client.
        undeleted: Partitions whose last deletion failed. A client created before a topic may not find the topic's
            leaders, so the first such failure of a partition is not a warning.
    """

    def done(future: Future[Any]) -> None:
        failed = future.exception()
        if failed is None:
            undeleted.discard(partition)
            return
        error = error_of(failed)
        why = str(failed)
        if error is not None:
            answer = admin_error(error, "DELETE", partition.topic)
            why = answer.message
            if _is_doubtful(answer):
                doubted.set()
                if _names_no_leaders(answer) and partition not in undeleted:
                    undeleted.add(partition)
                    _log.debug("records of %s are not deleted yet: %s; the next purge tries again", partition, why)
                    return
        log.warn(f"records of {partition} cannot be deleted: {why}")

    return done
