"""Options for the state of tables and aggregations, the only DSL options with an own class.

All other options are keywords (``key=``, ``value=``, ``name=``, ...), and so are the two most important ones here
(``store=``, ``value=``). A serde that is not set is taken from the previous operation, otherwise from the builder's
defaults, otherwise from the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, Generic, Protocol, TypeVar

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.topology.declare.caller import located
from streams_py.topology.declare.checks import check_given
from streams_py.topology.declare.durations import Duration, duration_ms
from streams_py.topology.declare.stores import StoreBuilder, StoreKind, ttl_ms_of

__all__ = ["Initializer", "Materialized", "materialized_or_none"]

K = TypeVar("K")
V = TypeVar("V")
A_co = TypeVar("A_co", covariant=True)


class Initializer(Protocol[A_co]):
    """Same as ``Callable[[], A]``, for aggregations whose result type is not given by a serde.

    With a protocol, mypy infers the initializer's return type before it checks the aggregator's lambda. With a callable
    it does not.
    """

    def __call__(self) -> A_co: ...


# No slots here: Python 3.11 cannot call ``Materialized[str, int](...)`` of a frozen dataclass that has them.


@dataclass(frozen=True)
class Materialized(Generic[K, V]):
    """How the state of a table or aggregation is kept.

    Attributes:
        store: name of the store for queries. Without it the store gets a generated name. It is not created if it is not
            needed.
        key: serde of keys.
        value: serde of values.
        persistent: True: RocksDB, False: memory, None: as configured.
        logging: write a changelog topic, created with ``logging_config`` in addition to the defaults.
        caching: merge updates of one key between two commits.
        retention: for windows: how long they are kept, by stream time, counted from their start (sessions: their end).
            The minimum, which is the default, is the time in which they accept records.
        ttl: time to live of a row, as in ``key_value_store``. Its end sends no update, and updates are not merged.
        history: keep the table in a versioned store (``versioned_key_value_store``), for joins of streams with earlier
            versions of rows (KIP-914).
        supplier: returns your own ``KeyValueBytesStore``, for each task.

    Durations are a ``timedelta`` or milliseconds.
    """

    store: str | None = None
    _: KW_ONLY
    key: Serde[K] | None = None
    value: Serde[V] | None = None
    persistent: bool | None = None
    logging: bool = True
    caching: bool = True
    logging_config: Mapping[str, str] = field(default_factory=dict)
    """Settings of the changelog topic."""
    retention: Duration | None = None
    ttl: Duration | None = None
    history: Duration | None = None
    supplier: Callable[[], Any] | None = None

    @located
    def __post_init__(self) -> None:
        own = fields(self)
        given = {each.name: getattr(self, each.name) for each in own}
        check_given(given, {each.name: str(each.type) for each in own}, "Materialized")
        if self.store is None and self.history is not None:
            raise TopologyError("a table with a history needs a name for its store: Materialized(name, history=...)")

    def builder(self, store: str, key: Serde[Any] | None, value: Serde[Any] | None) -> StoreBuilder:
        """Return the declaration of its store; ``key`` and ``value`` are the default serdes."""
        if self.retention is not None:
            raise TopologyError(f"store {store!r} has no windows, so it cannot have a retention")
        ttl_ms = ttl_ms_of(self.ttl, store)
        history_ms = None if self.history is None else duration_ms(self.history, f"history of store {store!r}")
        if ttl_ms is not None and history_ms is not None:
            raise TopologyError(
                f"store {store!r} cannot have both a ttl and a history: old versions expire with the history"
            )
        return StoreBuilder(
            store,
            StoreKind.TIMESTAMPED_KEY_VALUE if history_ms is None else StoreKind.VERSIONED_KEY_VALUE,
            self.key or key,
            self.value or value,
            self.persistent,
            self.logging,
            self.caching and ttl_ms is None and history_ms is None,
            dict(self.logging_config),
            history_ms=history_ms,
            ttl_ms=ttl_ms,
            supplier=self.supplier,
        )


def materialized_or_none(
    materialized: Materialized[K, V] | None,
    store: str | None,
    key: Serde[K] | None = None,
    value: Serde[V] | None = None,
) -> Materialized[K, V] | None:
    """Return the option object, or one made of the keywords, or None without any option.

    Raises:
        TopologyError: both were passed.
    """
    keywords = {"store": store, "key": key, "value": value}
    given = [keyword for keyword, wanted in keywords.items() if wanted is not None]
    if materialized is None:
        return Materialized(store, key=key, value=value) if given else None
    if given:
        raise TopologyError(f"give either materialized= or {', '.join(f'{keyword}=' for keyword in given)}, not both")
    return materialized
