"""The ranges of a batch, with the topics that they are of: planned on the driver, once for a DataFrame.

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

__all__ = ["REMEDY", "RangePlan", "ids_option", "log_admin", "plan_of", "same_topic"]

REMEDY: Final = "Plan anew, with the topic that is there now"


def log_admin(options: ReaderOptions, client_id: str) -> LogAdmin:
    """A client for questions about the topics that the options name. Close it."""
    settings = bulk_admin_settings(options.resolved(), client_id=client_id)
    return LogAdmin(settings, timeout_ms=options.poll_timeout_ms)


class RangePlan(NamedTuple):
    """What a batch reads. ``topic_ids``: topic -> id of the topic that its offsets are of, where the cluster gives
    one. ``leader_epochs``: of the partitions, learned after the ends: no record of a range is of a later one."""

    ranges: Sequence[OffsetRange]
    topic_ids: Mapping[str, str]
    leader_epochs: Mapping[TopicPartition, int]


def plan_of(options: ReaderOptions, admin: LogAdmin) -> RangePlan:
    """A range for each partition that has something to read. ConfigError as :func:`whole_ranges`; StreamsError when a
    topic is another one than ``topic.ids`` says."""

    def look() -> RangePlan:
        # Ids first: offsets of a topic that is created again in between do not fit its id, which the reader notices.
        ids = admin.topic_ids({tp.topic for tp in partitions_of(options, admin)})
        check_same_topics(options.topic_ids, ids, "was planned to be read", REMEDY)
        ranges = tuple(whole_ranges(options, admin))
        epochs = admin.leader_epochs([TopicPartition(of.topic, of.partition) for of in ranges])
        return RangePlan(ranges, {**ids, **options.topic_ids}, epochs)

    return believed(look, admin)


def ids_option(topic: str, topic_ids: Mapping[str, str]) -> dict[str, str]:
    """The option with which only the planned topic is read; none where the cluster has given no id."""
    return {"topic.ids": json.dumps({topic: topic_ids[topic]})} if topic in topic_ids else {}


def same_topic(
    options: ReaderOptions, topic: str, topic_id: str | None, client_id: str, every_ms: int = 0
) -> SameTopic:
    """The check that the worker which reads a range of a topic has to make."""
    settings = bulk_admin_settings(options.resolved(), client_id=client_id)
    return SameTopic(settings, topic, topic_id, timeout_ms=options.poll_timeout_ms, every_ms=every_ms)
