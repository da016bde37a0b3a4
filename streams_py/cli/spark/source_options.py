"""``--option`` of the commands on Spark: options of ``streams-kafka``, but for those that contradict the command.

A command says itself which cluster and which topics are meant. An option that says it once more would count for some of
the clients only: what is planned on one cluster would be read from, or written to, another one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from streams_py.cli.usage import pairs_of
from streams_py.errors import ConfigError
from streams_py.spark.kafka.connector_options import translated

__all__ = ["CLUSTER", "POSITIONS", "TOPICS", "positions_in", "source_options"]

CLUSTER: Final = frozenset({"kafka.bootstrap.servers", "kafka.metadata.broker.list"})
"""Which cluster."""
TOPICS: Final = frozenset({"topics", "topics.pattern", "assign", "topic"})
"""What is read, and written."""
POSITIONS: Final = frozenset({"starting", "ending"})
"""From where, up to where."""

_INSTEAD: Final = (
    (CLUSTER, "the cluster is that of --bootstrap (or --config)"),
    (TOPICS, "the topology says which topics are read and written (for archives of them there is --input)"),
    (POSITIONS, "the plan says what is read"),
)


def source_options(given: list[str] | None, refused: Collection[str]) -> dict[str, str]:
    """The pairs of ``--option``. ConfigError for another form, and for an option that is ``refused`` (ours or its name
    in Spark's connector)."""
    pairs = pairs_of(given, "--option")
    for key, value in pairs.items():
        (ours,) = translated({key.lower(): value}) or (key,)
        if ours in refused:
            instead = next(instead for keys, instead in _INSTEAD if ours in keys)
            raise ConfigError(f"--option {key}: {instead}; leave it out", key="--option")
    return pairs


def positions_in(options: Mapping[str, str]) -> dict[str, str]:
    """Those of the options that say where reading begins and ends, by our names."""
    ours = translated({key.lower(): value for key, value in options.items()})
    return {key: value for key, value in ours.items() if key in POSITIONS}
