"""Options of the DSL's operators, as objects to share and pass around. Each is also available as plain keywords.

    stream("in", key=serdes.STRING, value=serdes.STRING)
    stream("in", consumed=Consumed(key=serdes.STRING, value=serdes.STRING))      # the same

A serde left out stands for what is known from the stream above, else for the configured default. The names are those
of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.topology.names import check_name
from streams_py.topology.nodes import Partitioner, ResetPolicy, TimestampExtractor
from streams_py.topology.stores import StoreBuilder, StoreKind

if TYPE_CHECKING:
    from streams_py.topology.dsl.kstream import KStream

__all__ = ["Branched", "Consumed", "Grouped", "Materialized", "Produced", "Repartitioned"]

K = TypeVar("K")
V = TypeVar("V")
Option = TypeVar("Option")

# No slots here: Python 3.11 cannot call ``Grouped[str, int](...)`` of a frozen dataclass that has them.


@dataclass(frozen=True, kw_only=True)
class Consumed(Generic[K, V]):
    """How a stream or table is read."""

    key: Serde[K] | None = None
    value: Serde[V] | None = None
    timestamp_extractor: TimestampExtractor | None = None
    reset_policy: ResetPolicy | None = None
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Produced(Generic[K, V]):
    """How a stream is written."""

    key: Serde[K] | None = None
    value: Serde[V] | None = None
    partitioner: Partitioner | None = None
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Grouped(Generic[K, V]):
    """How a grouped stream or table goes through its repartition topic, which gets ``name``.

    The serdes are taken as they stand here, as in Kafka Streams: None is the configured default, not what the stream
    was read with.
    """

    key: Serde[K] | None = None
    value: Serde[V] | None = None
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Repartitioned(Generic[K, V]):
    """How a stream goes through a repartition topic of its own.

    A key serde left out is the configured default, *not* the one the stream was read with (as in Kafka Streams: the
    bytes in existing topics depend on it); a value serde is taken over from the stream.
    """

    key: Serde[K] | None = None
    value: Serde[V] | None = None
    partitions: int | None = None
    partitioner: Partitioner | None = None
    name: str | None = None


@dataclass(frozen=True)
class Materialized(Generic[K, V]):
    """How the state of a table or aggregation is kept.

    ``store``: name under which it can be read; without one it gets a generated name, or no store where none is needed.
    ``persistent``: True = RocksDB, False = memory, None = as configured. ``logging``: keep a changelog topic, created
    with ``logging_config`` on top of the defaults. ``caching``: merge updates of one key between two commits.
    """

    store: str | None = None
    _: KW_ONLY
    key: Serde[K] | None = None
    value: Serde[V] | None = None
    persistent: bool | None = None
    logging: bool = True
    caching: bool = True
    logging_config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.store is not None:
            check_name(self.store)

    def builder(self, store: str, key: Serde[Any] | None, value: Serde[Any] | None) -> StoreBuilder:
        """The declaration of its store; ``key`` and ``value`` are used where it names no serde itself."""
        return StoreBuilder(
            store,
            StoreKind.TIMESTAMPED_KEY_VALUE,
            self.key or key,
            self.value or value,
            self.persistent,
            self.logging,
            self.caching,
            dict(self.logging_config),
        )


@dataclass(frozen=True, kw_only=True)
class Branched(Generic[K, V]):
    """One branch of a split: its name, and what to make of it right away.

    ``chain`` gets the branch; what it returns takes the branch's place in the result, None leaves it out.
    """

    name: str | None = None
    chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None


def either(option: Option | None, keywords: Mapping[str, object], make: Callable[[], Option], what: str) -> Option:
    """The option object, or one made from keywords; TopologyError when both were given."""
    if option is None:
        return make()
    given = [keyword for keyword, value in keywords.items() if value is not None]
    if given:
        raise TopologyError(f"give either {what}= or {', '.join(f'{keyword}=' for keyword in given)}, not both")
    return option


def materialized_or_none(
    materialized: Materialized[K, V] | None,
    store: str | None,
    key: Serde[K] | None = None,
    value: Serde[V] | None = None,
) -> Materialized[K, V] | None:
    """The option object, or one made from keywords, or None when nothing was said about the state."""
    keywords = {"store": store, "key": key, "value": value}
    if materialized is None and all(given is None for given in keywords.values()):
        return None
    return either(materialized, keywords, lambda: Materialized(store, key=key, value=value), "materialized")
