"""Delivery report functions for librdkafka, which keep the last written record of each partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, Message

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.refusals import Known

Report: TypeAlias = Callable[..., Any]
"""``report(error or None, message, known=None)``. ``known`` has the data that a failed record's message lacks."""


class Reports(dict[int, Report]):
    """Report functions of a tracked topic by partition, created at first use."""

    def __init__(self, topic: str, acked: dict[TopicPartition, Message], failed: Report) -> None:
        super().__init__()
        self._topic = topic
        self._acked = acked
        self._failed = failed

    def __missing__(self, partition: int) -> Report:
        failed = self._failed
        if partition < 0:
            return failed  # librdkafka chooses the partition later, so no report function of one partition fits
        acked, place = self._acked, TopicPartition(self._topic, partition)

        def report(error: KafkaError | None, message: Message, known: Known | None = None) -> None:
            if error is None:
                acked[place] = message
            else:
                failed(error, message, known)

        self[partition] = report
        return report
