"""Counts the inputs of a run on Spark with a second client, see :mod:`streams_py.history.recount`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_admin_settings, bulk_consumer_settings
from streams_py.history.recount import InputRange, RecountClients, Recounted, recount
from streams_py.spark.history.fixed_ranges import ranges_in, ranges_of
from streams_py.spark.kafka.options import ReaderOptions, for_reader, reader_options

if TYPE_CHECKING:
    from streams_py.history.bootstrap import BootstrapPlan
    from streams_py.spark.history.run import Results

_CLIENT_ID: Final = "streams-history-recount"


def recount_plan(plan: BootstrapPlan, options: Mapping[str, str], *, whole: bool) -> Recounted:
    """Count the inputs of a warm start again. Raises StreamsError when its run has read another number of records."""
    read = {TopicPartition(topic, partition): count for topic, partition, count in plan.read}
    given = reader_options({**for_reader(options), "topics": plan.application_id}, streaming=False)
    ranges = [*plan.ranges, *plan.tables]
    return recount(_clients(given), ranges, read, plan.topic_ids, plan.id, whole=whole)


def recount_results(
    results: Results, seed: str, *, whole: bool, until_ms: int | None, since_ms: int | None = None
) -> Recounted | None:
    """Count the inputs of a run again.

    Args:
        results: the results of the run.
        seed: decides which partitions of large inputs are counted.
        whole: count all partitions.
        until_ms: the run read only records with an earlier timestamp.
        since_ms: the run read only records with this timestamp or a later one, except for global tables.

    Returns:
        The counts; None when the run has read only archives.

    Raises:
        StreamsError: the run has read another number of records.
    """
    read = {**results.read(), **results.read_of_tables}
    tables = {at.topic for at in results.read_of_tables}
    found: list[Recounted] = []
    for topic in sorted(results.inputs):
        given: Any = results.inputs[topic]
        if isinstance(given, Mapping):
            options = reader_options({**given, "topics": topic}, streaming=False)
            from_ms = None if topic in tables else since_ms
            ranges: Sequence[InputRange] = ranges_of(topic, given)
            if from_ms is not None:
                ranges = ranges_in(topic, given, from_ms)[1].ranges
            counted = recount(
                _clients(options),
                ranges,
                read,
                options.topic_ids,
                seed,
                whole=whole,
                before_ms=until_ms,
                from_ms=from_ms,
            )
            found.append(counted)
    return Recounted(*map(sum, zip(*found, strict=True))) if found else None


def _clients(options: ReaderOptions) -> RecountClients:
    kafka = options.resolved()
    return RecountClients(
        bulk_consumer_settings(kafka, client_id=_CLIENT_ID, read_committed=options.read_committed),
        bulk_admin_settings(kafka, client_id=_CLIENT_ID),
        options.poll_timeout_ms,
    )
