"""``--option`` of the commands on Spark: allowed options of ``streams-kafka``.

The command itself determines the cluster and the topics. An option for them would apply to some of the clients only: a
plan for one cluster would then be read from, or written to, another cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from streams_py.cli.usage import pairs_of
from streams_py.errors import ConfigError
from streams_py.spark.kafka.connector_options import translated

CLUSTER: Final = frozenset({"kafka.bootstrap.servers", "kafka.metadata.broker.list"})
"""Options that select the cluster."""
TOPICS: Final = frozenset({"topics", "topics.pattern", "assign", "topic"})
"""Options that select the topics to read or write."""
POSITIONS: Final = frozenset({"starting", "ending"})
"""Options that limit the range to read."""

_INSTEAD: Final = (
    (CLUSTER, "--bootstrap (or --config) selects the cluster"),
    (TOPICS, "the topology determines which topics are read and written (use --input for archives)"),
    (POSITIONS, "the plan determines the range to read"),
)


def source_options(given: list[str] | None, refused: Collection[str]) -> dict[str, str]:
    """Parse ``--option``.

    Raises:
        ConfigError: Not KEY=VALUE, or an option in ``refused``, under our name or that of Spark's own connector.
    """
    pairs = pairs_of(given, "--option")
    for key, value in pairs.items():
        (ours,) = translated({key.lower(): value}) or (key,)
        if ours in refused:
            instead = next(instead for keys, instead in _INSTEAD if ours in keys)
            raise ConfigError(f"--option {key}: {instead}; remove this option", key="--option")
    return pairs


def positions_in(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that limit the range to read, by the names of ``streams-kafka``."""
    ours = translated({key.lower(): value for key, value in options.items()})
    return {key: value for key, value in ours.items() if key in POSITIONS}
