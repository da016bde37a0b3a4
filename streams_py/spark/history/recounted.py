"""The inputs of a run on Spark, counted by a second client: see :mod:`streams_py.history.recount`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_admin_settings, bulk_consumer_settings
from streams_py.history.recount import InputRange, RecountClients, Recounted, recount
from streams_py.spark.history.fixed_ranges import ranges_of
from streams_py.spark.kafka.options import ReaderOptions, for_reader, reader_options

if TYPE_CHECKING:
    from streams_py.history.bootstrap import BootstrapPlan
    from streams_py.spark.history.run import Results

__all__ = ["recount_plan", "recount_results"]

_CLIENT_ID: Final = "streams-history-recount"


def recount_plan(plan: BootstrapPlan, options: Mapping[str, str], *, whole: bool) -> Recounted:
    """Compare what the run of a warm start has read with what there is. StreamsError when it differs."""
    read = {TopicPartition(topic, partition): count for topic, partition, count in plan.read}
    given = reader_options({**for_reader(options), "topics": plan.application_id}, streaming=False)
    return recount(_clients(given), plan.ranges, read, plan.topic_ids, plan.id, whole=whole)


def recount_results(results: Results, seed: str, *, whole: bool, until_ms: int | None) -> Recounted | None:
    """Compare what a run has read from Kafka with what there is; None when it has read archives only. StreamsError when
    it differs."""
    read = results.read()
    found: list[Recounted] = []
    for topic in sorted({topic for stage in results.plan.stages for topic in stage.inputs} & results.inputs.keys()):
        given: Any = results.inputs[topic]
        if isinstance(given, Mapping):
            options = reader_options({**given, "topics": topic}, streaming=False)
            ranges: Sequence[InputRange] = ranges_of(topic, given)
            ids = options.topic_ids
            found.append(recount(_clients(options), ranges, read, ids, seed, whole=whole, before_ms=until_ms))
    return Recounted(*map(sum, zip(*found, strict=True))) if found else None


def _clients(options: ReaderOptions) -> RecountClients:
    kafka = options.resolved()
    return RecountClients(
        bulk_consumer_settings(kafka, client_id=_CLIENT_ID, read_committed=options.read_committed),
        bulk_admin_settings(kafka, client_id=_CLIENT_ID),
        options.poll_timeout_ms,
    )
