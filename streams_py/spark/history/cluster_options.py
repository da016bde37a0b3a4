"""Checks the options of ``streams-kafka`` for a run, before it starts.

Workers create clients when they need them, and they need the writing clients last. Without this check, an option that
only the writer refuses would fail after all the work is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streams_py.adapters.confluent.bulk.bulk_settings import bulk_consumer_settings, bulk_producer_settings
from streams_py.errors import ConfigError
from streams_py.spark.kafka.options import ReaderOptions, for_reader, for_writer, reader_options, writer_options

_ANY_TOPIC: Final = "any"


def check_options(given: Mapping[str, str], *, writes: bool) -> ReaderOptions:
    """Check options and return those for reading. Resolves references to secrets; does not contact a cluster.

    Raises:
        ConfigError: with these options, topics cannot be read in order, or cannot be written (with ``writes``).
    """
    reading = {**for_reader(given), "topics": _ANY_TOPIC}
    check_whole(reading)
    options = reader_options(reading, streaming=False)
    bulk_consumer_settings(options.resolved(), client_id="", read_committed=options.read_committed)
    if writes:
        bulk_producer_settings(writer_options(for_writer(given)).resolved(), client_id="")
    return options


def check_whole(given: Mapping[str, str], where: str = "") -> None:
    """Raise ConfigError for options that split partitions or leave records out.

    ``given`` must also name the topics. ``where`` is the beginning of the message.
    """
    options = reader_options(given, streaming=False)
    if options.split_records is not None or options.min_partitions is not None:
        key = "min.partitions" if options.split_records is None else "split.records"
        raise ConfigError(
            f"{where}{key} splits partitions, but their records are needed in order; remove this option", key=key
        )
    if options.push_filters:
        raise ConfigError(
            f"{where}push.filters may leave records out, but all records are needed; remove this option",
            key="push.filters",
        )
