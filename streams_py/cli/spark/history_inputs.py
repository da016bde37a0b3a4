"""What a command over a history reads, and whether it may begin: looked at before anything is started."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from streams_py.cli.spark.history_options import built_topology, check_answers
from streams_py.cli.usage import pairs_of
from streams_py.errors import ConfigError

__all__ = ["check_kafka_options", "check_sources", "check_topology", "check_writes", "partitions_of", "sources_of"]


def sources_of(
    what: str, settings: Mapping[str, Any], given: list[str] | None, kafka: Mapping[str, str]
) -> dict[str, str | Mapping[str, str]]:
    """Topic -> the folder that was named for it, else the cluster."""
    from streams_py.history.plan import topics_read
    from streams_py.spark.kafka.options import for_reader

    topology = built_topology(what, settings)
    paths = pairs_of(given, "--input", "TOPIC=PATH", each_once=True)
    if topology.has_patterns:
        return dict(paths)
    topics = topics_read(topology, str(settings["application.id"]), settings)
    unknown = sorted(paths.keys() - topics)
    if unknown:
        raise ConfigError(f"--input {unknown[0]}: {what} reads {', '.join(sorted(topics))}")
    reading = for_reader(kafka)
    return {topic: paths.get(topic, reading) for topic in sorted(topics)}


def partitions_of(
    given: list[str] | None, sources: Mapping[str, object], written: Collection[str] = ()
) -> dict[str, int]:
    """Topics of archives, and those that are ``written``, but not to Kafka -> partitions, as far as they are given.
    ConfigError for anything else."""
    found = {}
    for topic, text in pairs_of(given, "--partitions", "TOPIC=COUNT", each_once=True).items():
        if not isinstance(sources.get(topic), str) and topic not in written:
            raise ConfigError(
                f"--partitions {topic}: it is not read from an archive (--input), nor written to files; leave it out",
                key="--partitions",
            )
        if not text.isdecimal() or int(text) < 1:
            raise ConfigError(f"--partitions {topic}={text}: write TOPIC=COUNT, at least 1", key="--partitions")
        found[topic] = int(text)
    return found


def check_topology(
    what: str,
    settings: Mapping[str, Any],
    outputs: Sequence[str] | None,
    *,
    side_effects: bool,
    global_tables: str | None,
) -> None:
    """RefusedTopologyError before anything is started."""
    from streams_py.history.global_tables import check_global_tables
    from streams_py.history.refuse import check_allowed

    check_allowed(
        built_topology(what, settings),
        str(settings["application.id"]),
        settings,
        outputs=outputs or (),
        allow_side_effects=side_effects,
        frozen_tables=check_global_tables(global_tables),
        name=what,
    )


def check_writes(topologies: Sequence[str], settings: Mapping[str, Any], more: Sequence[str] | None) -> set[str]:
    """The topics that they write to. ConfigError when there are none: then there is nothing to make, or to compare."""
    from streams_py.history.plan import sinks_of

    application_id = str(settings["application.id"])
    written = {*(more or ())}.union(*(sinks_of(built_topology(what, settings), application_id) for what in topologies))
    if not written:
        raise ConfigError(
            f"{' and '.join(dict.fromkeys(topologies))}: nothing is written to a topic; give the topology a to(), "
            "after to_stream() for a table (its state alone is made by `bootstrap`)"
        )
    return written


def check_sources(
    settings: Mapping[str, Any], option: list[str] | None, kafka: Mapping[str, str], sources: Iterable[object]
) -> None:
    """ConfigError or BrokerUnavailableError when what is read from Kafka cannot be, as far as that is known at once.
    Whether a cluster answers to a login that only options have is left to the reader."""
    from streams_py.adapters.security.settings import is_security_key

    if all(isinstance(given, str) for given in sources):
        return
    check_kafka_options(kafka, writes=False)
    if not any(is_security_key(key.lower().removeprefix("kafka.")) for key in pairs_of(option, "--option")):
        check_answers(settings)


def check_kafka_options(kafka: Mapping[str, str], *, writes: bool) -> None:
    from streams_py.spark.history.cluster_options import check_options

    check_options(kafka, writes=writes)
