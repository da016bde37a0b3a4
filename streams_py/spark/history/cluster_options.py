"""Options of ``streams-kafka`` for a run that reads topics and maybe writes some: refused before anything is begun.

A client is made by the worker that needs it, and writers are needed last. So what no client would take is looked for
here: an option that only the writer refuses would be found out when everything is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streams_py.adapters.confluent.bulk.bulk_settings import bulk_consumer_settings, bulk_producer_settings
from streams_py.errors import ConfigError
from streams_py.spark.kafka.options import ReaderOptions, for_reader, for_writer, reader_options, writer_options

__all__ = ["check_options", "check_whole"]

_ANY_TOPIC: Final = "any"


def check_options(given: Mapping[str, str], *, writes: bool) -> ReaderOptions:
    """What the options say of reading. ConfigError for those with which topics cannot be read in order, or, with
    ``writes``, not be written. Looks up what secrets refer to; asks no cluster."""
    reading = {**for_reader(given), "topics": _ANY_TOPIC}
    check_whole(reading)
    options = reader_options(reading, streaming=False)
    bulk_consumer_settings(options.resolved(), client_id="", read_committed=options.read_committed)
    if writes:
        bulk_producer_settings(writer_options(for_writer(given)).resolved(), client_id="")
    return options


def check_whole(given: Mapping[str, str], where: str = "") -> None:
    """ConfigError for options that cut partitions or leave records out. ``given``: also what is read. ``where`` begins
    the sentence."""
    options = reader_options(given, streaming=False)
    if options.split_records is not None or options.min_partitions is not None:
        key = "min.partitions" if options.split_records is None else "split.records"
        raise ConfigError(f"{where}{key} cuts partitions, whose records are needed in order; leave it out", key=key)
    if options.push_filters:
        raise ConfigError(
            f"{where}push.filters lets one filter decide for all who read; all records are needed: leave it out",
            key="push.filters",
        )
