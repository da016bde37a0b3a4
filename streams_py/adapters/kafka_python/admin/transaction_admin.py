"""Transactions seen from outside, and ended from outside: the port ``TransactionAdmin`` by kafka-python.

What is left open is ended by the transaction's own coordinator, under its transactional id: whoever takes the id over
may add partitions to a transaction and end it, which writes a marker to each of them, and no record. That needs no
rights beyond those of the application itself, unlike an operator's WriteTxnMarkers.

Requests are made here because kafka-python's own calls give up at the first partition that cannot be asked. Private
names: ``_manager``, ``_find_coordinator_ids``, ``_async_get_leader_for_partitions``; the broker tests watch them. All
stay with the older transaction protocol (KIP-890's first part), in which a producer's epoch lives until it is fenced.
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
from streams_py.adapters.kafka_python.failures import is_retriable, patiently, translated
from streams_py.errors import BrokerUnavailableError, TaskMigratedError, UnsupportedOperationError
from streams_py.ports.described_transactions import OpenTransaction, TransactionInfo

__all__ = ["KafkaPythonTransactionAdmin"]

T = TypeVar("T")

_PAUSE_S: Final = 0.1
_FENCED_COMMIT: Final = 3
"""The version of TxnOffsetCommit that names member and generation."""


class KafkaPythonTransactionAdmin:
    """``connection`` as from ``kafka_python_connection``; ``timeout_ms`` bounds one call. Not thread-safe."""

    def __init__(self, connection: Mapping[str, Any], *, timeout_ms: int) -> None:
        self._requests = DirectRequests(connection, timeout_ms=timeout_ms)
        self._timeout_ms = timeout_ms
        self._where = ",".join(connection["bootstrap_servers"])

    def check_brokers(self) -> None:
        """UnsupportedOperationError when they are older than 2.5 (KIP-447). librdkafka would not say so: it leaves out
        who commits the offsets, and everybody's are taken."""

        def ask() -> tuple[int, ...]:
            known = self._requests.admin._manager.broker_version_data
            _, newest = known.api_versions.get(TxnOffsetCommitRequest.API_KEY, (0, -1))
            return () if newest >= _FENCED_COMMIT else known.broker_version

        found = self._patiently("the version of the brokers is not known", ask)
        if found:
            raise UnsupportedOperationError(
                f"processing.guarantee = exactly_once_v2 needs brokers of version 2.5 or newer, and {self._where} is "
                f"{'.'.join(map(str, found))}: a member that has lost its tasks could still commit. Upgrade the "
                "brokers, or use at_least_once"
            )

    def open_transactions(self, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
        """Those of partitions that cannot be asked (no leader, no right to read) are left out."""
        return self._patiently("open transactions cannot be listed", lambda: self._open(partitions))

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        """Who the producers are, as far as a coordinator knows, and this user may describe, their ids."""

        def ask() -> dict[int, str]:
            names: dict[int, str] = {}
            for broker in self._requests.admin._manager.cluster.brokers():
                request = ListTransactionsRequest(state_filters=[], producer_id_filters=sorted(producer_ids))
                answer = self._requests.ask(request, broker.node_id)
                _check(answer.error_code)
                names |= {one.producer_id: one.transactional_id for one in answer.transaction_states}
            return names

        return self._patiently("transactions cannot be listed", ask)

    def describe(self, transactional_id: str) -> TransactionInfo | None:
        """What the coordinator knows; None when it has never heard of the id."""

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

        return self._patiently(f"transaction {transactional_id} cannot be described", ask)

    def take_over(self, transactional_id: str, transaction_timeout_ms: int) -> tuple[int, int]:
        """Fence whoever uses the id, which ends a transaction that its coordinator knows to be ongoing; the producer's
        id and new epoch."""

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

        return self._patiently(f"transactional id {transactional_id} cannot be taken over", ask)

    def end(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        *,
        group: str | None,
        commit: bool,
    ) -> None:
        """End what is open in these partitions, and in the offsets of ``group``, for a producer (id, epoch) from
        :meth:`take_over`. BrokerUnavailableError leaves the outcome open: look again; TaskMigratedError says that
        somebody else has taken the id over since."""
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
            self._patiently(failing, add_partitions)
        if group is not None:
            self._patiently(failing, add_offsets)
        self._patiently(failing, end_transaction)

    def close(self) -> None:
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

    def _patiently(self, failing: str, ask: Callable[[], T]) -> T:
        """The answer, asked for again while a coordinator is loading, moving, or still ending a transaction."""

        def ask_anew() -> T:
            try:
                return ask()
            except kafka_errors.KafkaError as error:
                if not isinstance(error, kafka_errors.ConcurrentTransactionsError):
                    self.close()  # it remembers coordinators, and brokers, that are none any more
                raise

        def failed(error: kafka_errors.KafkaError) -> BaseException:
            if is_retriable(error) or isinstance(error, kafka_errors.KafkaTimeoutError):
                return BrokerUnavailableError(f"{failing}: {self._where}: {error}")
            if isinstance(error, kafka_errors.ProducerFencedError | kafka_errors.InvalidProducerEpochError):
                return TaskMigratedError(f"{failing}: somebody else has taken it over")
            return translated(error, failing)

        return patiently(ask_anew, failed, timeout_ms=self._timeout_ms, pause_s=_PAUSE_S)


def _check(code: int) -> None:
    error = kafka_errors.for_code(code)
    if error is not kafka_errors.NoError:
        raise error()


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        by_topic[topic].append(number)
    return by_topic
