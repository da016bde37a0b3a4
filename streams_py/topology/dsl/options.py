"""How state is kept: the only options of the DSL that have an object of their own.

Everything else is said by keywords (``key=``, ``value=``, ``name=``, ...), and so are the two that matter most here
(``store=``, ``value=``). A serde left out stands for what is known from the stream above, else for the builder's
default, else for the configured one.
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
    """What ``Callable[[], A]`` is, for an aggregation whose result no serde tells: from a protocol mypy learns what the
    initializer returns before it looks into a lambda of an aggregator, from a callable it does not."""

    def __call__(self) -> A_co: ...


# No slots here: Python 3.11 cannot call ``Materialized[str, int](...)`` of a frozen dataclass that has them.


@dataclass(frozen=True)
class Materialized(Generic[K, V]):
    """How the state of a table or aggregation is kept.

    ``store``: name under which it can be read; without one it gets a generated name, or no store where none is needed.
    ``persistent``: True = RocksDB, False = memory, None = as configured. ``logging``: keep a changelog topic, created
    with ``logging_config`` on top of the defaults. ``caching``: merge updates of one key between two commits.
    ``retention``: for windows, how long they are kept, counted from their start (sessions: their end), by stream time;
    at least as long as they take records, which is the default. ``ttl``: time to live of a row, as of
    ``key_value_store``; nothing is sent on when it ends, and updates are not merged. ``history``: keep the table in a
    versioned store (``versioned_key_value_store``), for joins of streams with the rows as they were (KIP-914).
    ``supplier``: makes a ``KeyValueBytesStore`` of your own to keep the table in, for each task. Durations are a
    ``timedelta`` or milliseconds.
    """

    store: str | None = None
    _: KW_ONLY
    key: Serde[K] | None = None
    value: Serde[V] | None = None
    persistent: bool | None = None
    logging: bool = True
    caching: bool = True
    logging_config: Mapping[str, str] = field(default_factory=dict)
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
        """The declaration of its store; ``key`` and ``value`` are used where it names no serde itself."""
        if self.retention is not None:
            raise TopologyError(f"store {store!r} has no windows, so it cannot have a retention")
        ttl_ms = ttl_ms_of(self.ttl, store)
        history_ms = None if self.history is None else duration_ms(self.history, f"history of store {store!r}")
        if ttl_ms is not None and history_ms is not None:
            raise TopologyError(f"store {store!r} cannot have a ttl and a history: versions go with their history")
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
    """The option object, or one made from keywords, or None when nothing was said about the state.

    TopologyError when both were given.
    """
    keywords = {"store": store, "key": key, "value": value}
    given = [keyword for keyword, wanted in keywords.items() if wanted is not None]
    if materialized is None:
        return Materialized(store, key=key, value=value) if given else None
    if given:
        raise TopologyError(f"give either materialized= or {', '.join(f'{keyword}=' for keyword in given)}, not both")
    return materialized
