"""Plans the ranges of a batch with the ids of their topics, on the driver, once for each DataFrame.

See :mod:`streams_py.spark.kafka.ranges` for offsets, and :mod:`streams_py.adapters.confluent.bulk.same_topic` for ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_admin_settings
from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.adapters.confluent.bulk.same_topic import SameTopic, believed, check_same_topics
from streams_py.spark.kafka.options import ReaderOptions
from streams_py.spark.kafka.ranges import OffsetRange, partitions_of, whole_ranges

REMEDY: Final = "Plan again, with the topic that exists now"


def log_admin(options: ReaderOptions, client_id: str) -> LogAdmin:
    """Return a client for requests about topics. The caller must close it."""
    settings = bulk_admin_settings(options.resolved(), client_id=client_id)
    return LogAdmin(settings, timeout_ms=options.poll_timeout_ms)


class RangePlan(NamedTuple):
    """The ranges that a batch reads.

    Attributes:
        ranges: the ranges.
        topic_ids: topic -> id of the topic to which its offsets belong, if the cluster has ids.
        leader_epochs: leader epochs of the partitions, requested after the end offsets. So no record of a range has a
            later epoch.
    """

    ranges: Sequence[OffsetRange]
    topic_ids: Mapping[str, str]
    leader_epochs: Mapping[TopicPartition, int]


def plan_of(options: ReaderOptions, admin: LogAdmin) -> RangePlan:
    """Plan a range for each partition that has offsets to read.

    Raises:
        ConfigError: see :func:`whole_ranges`.
        StreamsError: a topic does not have its id in the option ``topic.ids``.
    """

    def look() -> RangePlan:
        # Ids first: if a topic is created again in between, its offsets do not match the id, and the reader notices.
        ids = admin.topic_ids({tp.topic for tp in partitions_of(options, admin)})
        check_same_topics(options.topic_ids, ids, "was planned to be read", REMEDY)
        ranges = tuple(whole_ranges(options, admin))
        epochs = admin.leader_epochs([TopicPartition(of.topic, of.partition) for of in ranges])
        return RangePlan(ranges, {**ids, **options.topic_ids}, epochs)

    return believed(look, admin)


def ids_option(topic: str, topic_ids: Mapping[str, str]) -> dict[str, str]:
    """Return the option that allows reading only the planned topic; empty if the cluster has no ids."""
    return {"topic.ids": json.dumps({topic: topic_ids[topic]})} if topic in topic_ids else {}


def same_topic(
    options: ReaderOptions, topic: str, topic_id: str | None, client_id: str, every_ms: int = 0
) -> SameTopic:
    """Return the check of a topic's id for a worker that reads a range of it."""
    settings = bulk_admin_settings(options.resolved(), client_id=client_id)
    return SameTopic(settings, topic, topic_id, timeout_ms=options.poll_timeout_ms, every_ms=every_ms)
