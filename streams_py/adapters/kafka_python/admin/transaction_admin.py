"""List and end other producers' transactions: the port ``TransactionAdmin`` on kafka-python.

An open transaction is ended by its own coordinator, with its transactional id. A client that takes over the id may add
partitions to a transaction and end it. That writes a marker, but no record, to each partition. Unlike an operator's
WriteTxnMarkers, this requires no additional ACLs.

This module builds its own requests, because kafka-python's calls fail at the first partition that cannot be described.
It uses the private names ``_manager``, ``_find_coordinator_ids`` and ``_async_get_leader_for_partitions``, which the
broker tests verify. All requests use the older transaction protocol (KIP-890's first part), in which a producer's epoch
is valid until it is fenced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

from kafka import errors as kafka_errors
from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from kafka.structs import TopicPartition as KafkaPartition

from streams_protocol.types import TopicPartition
from streams_py.adapters.connection import kafka_answers  # noqa: F401  # before there are threads
from streams_py.adapters.connection.direct_requests import DirectRequests
from streams_py.adapters.kafka_python.failures import is_retriable, translated, with_retries
from streams_py.errors import BrokerUnavailableError, TaskMigratedError, UnsupportedOperationError
from streams_py.ports.described_transactions import OpenTransaction, TransactionInfo

T = TypeVar("T")

_PAUSE_S: Final = 0.1
_FENCED_COMMIT: Final = 3
"""First version of TxnOffsetCommit that includes the member and its generation."""


class KafkaPythonTransactionAdmin:
    """The port ``TransactionAdmin``. Not thread-safe.

    Args:
        connection: The result of ``kafka_python_connection``.
        timeout_ms: Time limit of one call.
    """

    def __init__(self, connection: Mapping[str, Any], *, timeout_ms: int) -> None:
        self._requests = DirectRequests(connection, timeout_ms=timeout_ms)
        self._timeout_ms = timeout_ms
        self._where = ",".join(connection["bootstrap_servers"])

    def check_brokers(self) -> None:
        """Check that the brokers have version 2.5 or newer (KIP-447).

        librdkafka does not check it. With older brokers it omits the member from commits, so they accept the commits of
        any member.

        Raises:
            UnsupportedOperationError: The brokers are older.
        """

        def ask() -> tuple[int, ...]:
            known = self._requests.admin._manager.broker_version_data
            _, newest = known.api_versions.get(TxnOffsetCommitRequest.API_KEY, (0, -1))
            return () if newest >= _FENCED_COMMIT else known.broker_version

        found = self._with_retries("the version of the brokers cannot be determined", ask)
        if found:
            raise UnsupportedOperationError(
                f"processing.guarantee = exactly_once_v2 requires brokers of version 2.5 or newer, and {self._where} "
                f"has version {'.'.join(map(str, found))}: a member that has lost its tasks could still commit. "
                "Upgrade the brokers, or use at_least_once"
            )

    def open_transactions(self, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
        """Return the open transactions of partitions, without partitions that have no leader or may not be read."""
        return self._with_retries("open transactions cannot be listed", lambda: self._open(partitions))

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        """Return the transactional ids of producers, if a coordinator has them and this user may describe them."""

        def ask() -> dict[int, str]:
            names: dict[int, str] = {}
            for broker in self._requests.admin._manager.cluster.brokers():
                request = ListTransactionsRequest(state_filters=[], producer_id_filters=sorted(producer_ids))
                answer = self._requests.ask(request, broker.node_id)
                _check(answer.error_code)
                names |= {one.producer_id: one.transactional_id for one in answer.transaction_states}
            return names

        return self._with_retries("transactions cannot be listed", ask)

    def describe(self, transactional_id: str) -> TransactionInfo | None:
        """Return the coordinator's state of a transactional id; None when the id is unknown."""

        def ask() -> TransactionInfo | None:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            (found,) = self._requests.ask_coordinator(transactional_id, request).transaction_states
            if found.error_code == kafka_errors.TransactionalIdNotFoundError.errno:
                return None
            _check(found.error_code)
            partitions = frozenset(TopicPartition(of.topic, number) for of in found.topics for number in of.partitions)
            return TransactionInfo(
                transactional_id, found.transaction_state, found.producer_id, found.producer_epoch, partitions
            )

        return self._with_retries(f"transaction {transactional_id} cannot be described", ask)

    def take_over(self, transactional_id: str, transaction_timeout_ms: int) -> tuple[int, int]:
        """Fence the producer that uses the id. This also ends its transaction, if the coordinator has an ongoing one.

        Returns:
            The producer id and its new epoch.
        """

        def ask() -> tuple[int, int]:
            request = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
                max_version=4,
            )
            answer = self._requests.ask_coordinator(transactional_id, request)
            _check(answer.error_code)
            return answer.producer_id, answer.producer_epoch

        return self._with_retries(f"transactional id {transactional_id} cannot be taken over", ask)

    def end(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        *,
        group: str | None,
        commit: bool,
    ) -> None:
        """End the open transaction in these partitions and in the offsets of ``group``.

        Args:
            transactional_id: The transactional id.
            producer: Producer id and epoch from :meth:`take_over`.
            partitions: The partitions.
            group: The consumer group, or None.
            commit: Whether to commit or to abort.

        Raises:
            BrokerUnavailableError: The outcome is unknown, and the caller must check again.
            TaskMigratedError: Another client has taken over the id.
        """
        producer_id, epoch = producer
        who = {"transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": epoch}

        def add_partitions() -> None:
            topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
            request = AddPartitionsToTxnRequest(
                **{f"v3_and_below_{name}": value for name, value in who.items()},
                v3_and_below_topics=[topic(name=name, partitions=of) for name, of in _by_topic(partitions).items()],
                max_version=3,
            )
            answer = self._requests.ask_coordinator(transactional_id, request)
            for topic_result in answer.results_by_topic_v3_and_below:
                for one in topic_result.results_by_partition:
                    _check(one.partition_error_code)

        def add_offsets() -> None:
            request = AddOffsetsToTxnRequest(**who, group_id=group, max_version=3)
            _check(self._requests.ask_coordinator(transactional_id, request).error_code)

        def end_transaction() -> None:
            request = EndTxnRequest(**who, committed=commit, max_version=3)
            _check(self._requests.ask_coordinator(transactional_id, request).error_code)

        failing = f"the transaction of {transactional_id} cannot be ended"
        if partitions:
            self._with_retries(failing, add_partitions)
        if group is not None:
            self._with_retries(failing, add_offsets)
        self._with_retries(failing, end_transaction)

    def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        self._requests.close()

    def _open(self, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
        admin = self._requests.admin
        asked = [KafkaPartition(*partition) for partition in partitions]
        by_leader = self._requests.run(lambda: admin._async_get_leader_for_partitions(asked)) if asked else {}
        found = []
        for leader, of_leader in by_leader.items():
            if leader < 0:
                continue
            topic = DescribeProducersRequest.TopicRequest
            topics = [topic(name=name, partition_indexes=numbers) for name, numbers in _by_topic(of_leader).items()]
            answer = self._requests.ask(DescribeProducersRequest(topics=topics), leader)
            found += [
                OpenTransaction(
                    TopicPartition(of.name, partition.partition_index),
                    one.producer_id,
                    one.producer_epoch,
                    one.current_txn_start_offset,
                )
                for of in answer.topics
                for partition in of.partitions
                if partition.error_code == 0
                for one in partition.active_producers
                if one.current_txn_start_offset >= 0
            ]
        return found

    def _with_retries(self, failing: str, ask: Callable[[], T]) -> T:
        """Repeat a request while a coordinator is loading, moving, or still ending a transaction."""

        def ask_again() -> T:
            try:
                return ask()
            except kafka_errors.KafkaError as error:
                if not isinstance(error, kafka_errors.ConcurrentTransactionsError):
                    self.close()  # its cached coordinators and brokers may be outdated
                raise

        def failed(error: kafka_errors.KafkaError) -> BaseException:
            if is_retriable(error) or isinstance(error, kafka_errors.KafkaTimeoutError):
                return BrokerUnavailableError(f"{failing}: {self._where}: {error}")
            if isinstance(error, kafka_errors.ProducerFencedError | kafka_errors.InvalidProducerEpochError):
                return TaskMigratedError(f"{failing}: another client has taken it over")
            return translated(error, failing)

        return with_retries(ask_again, failed, timeout_ms=self._timeout_ms, pause_s=_PAUSE_S)


def _check(code: int) -> None:
    error = kafka_errors.for_code(code)
    if error is not kafka_errors.NoError:
        raise error()


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        by_topic[topic].append(number)
    return by_topic
