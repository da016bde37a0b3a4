"""The inputs of a command over a history, and the checks before it starts anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from streams_py.cli.spark.history_options import Program, built_topology, check_answers
from streams_py.cli.usage import pairs_of
from streams_py.errors import ConfigError


def sources_of(
    what: str, settings: Mapping[str, Any], given: list[str] | None, kafka: Mapping[str, str]
) -> dict[str, str | Mapping[str, str]]:
    """Return each topic's folder as named by the user, or its options for reading from Kafka."""
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
    """Return the partition counts that the user gives for topics.

    Only topics in archives and topics that are ``written`` to files can have one.

    Raises:
        ConfigError: Another topic, or not a count.
    """
    found = {}
    for topic, text in pairs_of(given, "--partitions", "TOPIC=COUNT", each_once=True).items():
        if not isinstance(sources.get(topic), str) and topic not in written:
            raise ConfigError(
                f"--partitions {topic}: the topic is not read from an archive (--input) and not written to files; "
                "remove it",
                key="--partitions",
            )
        if not text.isdecimal() or int(text) < 1:
            raise ConfigError(
                f"--partitions {topic}={text}: expected TOPIC=COUNT, with a count of at least 1", key="--partitions"
            )
        found[topic] = int(text)
    return found


def check_program(program: Program) -> None:
    """Raise RefusedTopologyError if a run over a history cannot compute the topology.

    Nothing is started yet.
    """
    program.allowed.check(program.topology(), program.application_id, program.settings, name=program.what)


def check_writes(programs: Sequence[Program]) -> set[str]:
    """Return the topics that the topologies write to.

    Raises:
        ConfigError: The topologies write to no topic, so a run would have no output.
    """
    from streams_py.history.plan import sinks_of

    written: set[str] = set()
    for program in programs:
        written.update(program.outputs, sinks_of(program.topology(), program.application_id))
    if not written:
        names = dict.fromkeys(program.what for program in programs)
        raise ConfigError(
            f"{' and '.join(names)}: no output topic; add a to() to the topology, after to_stream() for a table "
            "(`bootstrap` builds the state alone)"
        )
    return written


def check_sources(
    settings: Mapping[str, Any], option: list[str] | None, kafka: Mapping[str, str], sources: Iterable[object]
) -> None:
    """Check the cluster if a source is read from Kafka.

    A login that only ``--option`` contains is not checked here: the reader on Spark finds out.

    Raises:
        ConfigError: The cluster rejects the credentials, or an option is wrong.
        BrokerUnavailableError: No broker answers.
    """
    from streams_py.adapters.security.settings import is_security_key

    if all(isinstance(given, str) for given in sources):
        return
    check_kafka_options(kafka, writes=False)
    if not any(is_security_key(key.lower().removeprefix("kafka.")) for key in pairs_of(option, "--option")):
        check_answers(settings)


def check_kafka_options(kafka: Mapping[str, str], *, writes: bool) -> None:
    from streams_py.spark.history.cluster_options import check_options

    check_options(kafka, writes=writes)
