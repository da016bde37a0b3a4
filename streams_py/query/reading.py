"""A query, and its answer from the stores of this instance.

Functions here block and run the application's serdes, which may call a registry. So worker threads call them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from streams_py.errors import InvalidStateStoreError
from streams_py.query.errors import AbsentKeyError, BadQueryError, NotHereNowError, OwnerTimeoutError
from streams_py.query.keys import json_text, key_from, key_text_bytes
from streams_py.runtime.client.kafka_streams import KafkaStreams
from streams_py.state.reading.queryable import QueryableStoreType
from streams_py.topology.declare.stores import StoreKind

ANSWER_BYTES_MAX: Final = 32 << 20
ENTRIES_MAX: Final = 10_000
_ENTRIES: Final = 1_000
_TIME_MAX_MS: Final = 2**63 - 1

_KINDS: Final = {
    StoreKind.KEY_VALUE: QueryableStoreType.KEY_VALUE,
    StoreKind.TIMESTAMPED_KEY_VALUE: QueryableStoreType.KEY_VALUE,
    StoreKind.WINDOW: QueryableStoreType.WINDOW,
    StoreKind.TIMESTAMPED_WINDOW: QueryableStoreType.WINDOW,
    StoreKind.SESSION: QueryableStoreType.SESSION,
    StoreKind.VERSIONED_KEY_VALUE: QueryableStoreType.VERSIONED,
}
_PARAMETERS: Final = frozenset(
    {"as_of", "end", "from", "key_serde", "limit", "partition", "prefix", "reverse", "stale", "start", "to"}
)


@dataclass(frozen=True, slots=True)
class Query:
    """A query for ``key`` (as text), or for a range if ``key`` is None. ``options``: the parameters of the URL."""

    store: str
    what: QueryableStoreType
    key: str | None
    options: Mapping[str, str]

    def __post_init__(self) -> None:
        unknown = sorted(self.options.keys() - _PARAMETERS)
        if unknown:
            raise BadQueryError(
                f"unknown parameter {unknown[0]!r:.50}; supported parameters: {', '.join(sorted(_PARAMETERS))}"
            )

    def number(self, name: str, default: int, most: int = _TIME_MAX_MS) -> int:
        """Return the parameter ``name``, a whole number from 0 to ``most``."""
        text = self.options.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= most):
            raise BadQueryError(f"{name} = {text!r:.50} is not a whole number from 0 to {most}")
        return int(text)

    def flag(self, name: str) -> bool:
        """Return the boolean parameter ``name``; False if it is absent."""
        text = self.options.get(name, "false")
        if text not in ("true", "false"):
            raise BadQueryError(f"{name} = {text!r:.50} is neither true nor false")
        return text == "true"

    @property
    def partition(self) -> int | None:
        """The requested partition; None without the parameter."""
        return self.number("partition", 0, 2**31 - 1) if "partition" in self.options else None

    @property
    def limit(self) -> int:
        """The largest number of entries in the answer."""
        return self.number("limit", _ENTRIES, ENTRIES_MAX)


def kind_of(streams: KafkaStreams, store: str) -> QueryableStoreType:
    """Return the type of queries that a store supports.

    Raises:
        UnknownStateStoreError: The store does not exist.
        BadQueryError: The store cannot be queried.
    """
    kind = streams.store_hosts.declared(store).kind
    found = _KINDS.get(kind)
    if found is None:
        raise BadQueryError(f"store {store!r} is a {kind.value}, which cannot be queried")
    return found


def key_of(streams: KafkaStreams, query: Query, text: str) -> Any:
    """Parse ``text`` as a key of the query's store."""
    hosts = streams.store_hosts
    return key_from(text, query.options.get("key_serde"), hosts.key_serde(query.store), hosts.changelog(query.store))


def partition_of(streams: KafkaStreams, query: Query) -> int:
    """Return the partition of the query's key. Raises NotHereNowError while the partition count is unknown."""
    key = key_of(streams, query, query.key or "")
    partition = streams.query_metadata_for_key(query.store, key).partition
    if partition < 0:
        raise NotHereNowError(f"the instances that have store {query.store!r} are not known yet")
    return partition


class Found(NamedTuple):
    """The body of an answer, and the total size of its entries as JSON."""

    body: dict[str, Any]
    size_bytes: int = 0


def answer_here(streams: KafkaStreams, query: Query, partition: int | None, deadline_s: float) -> Found:
    """Return the answer of one partition on this instance. ``partition`` None means a global store.

    Raises:
        NotHereNowError: The partition is not on this instance, or is moving.
        AbsentKeyError: The store does not have the key.
        OwnerTimeoutError: The deadline (as ``time.monotonic``) has passed.
    """
    try:
        view: Any = streams.store(
            query.store,
            kind=query.what,  # type: ignore[call-overload]  # the kind determines the type of the view
            partition=partition,
            stale=query.flag("stale"),
        )
        return _read(streams, query, view, partition, deadline_s)
    except InvalidStateStoreError as error:
        if error.retriable or not streams.state.is_running_or_rebalancing:
            raise NotHereNowError(str(error)) from error
        raise


def _read(streams: KafkaStreams, query: Query, view: Any, partition: int | None, deadline_s: float) -> Found:
    reverse = query.flag("reverse")
    first, last = query.number("from", 0), query.number("to", _TIME_MAX_MS)
    key = None if query.key is None else key_of(streams, query, query.key)
    entries: Iterable[dict[str, Any] | None]
    match query.what:
        case QueryableStoreType.KEY_VALUE if key is not None:
            return _one(query, partition, key, view.get(key))
        case QueryableStoreType.KEY_VALUE:
            entries = ({"key": k, "value": v} for k, v in _range(streams, query, view, reverse=reverse))
        case QueryableStoreType.WINDOW if key is not None:
            found = view.fetch_between(key, first, last, reverse=reverse)
            entries = ({"start": start, "value": v} for start, v in found)
        case QueryableStoreType.WINDOW:
            entries = (_windowed(w, v) for w, v in view.fetch_all(first, last, reverse=reverse))
        case QueryableStoreType.SESSION if key is not None:
            entries = (_windowed(w, v) for w, v in view.find_sessions(key, first, last, reverse=reverse))
        case QueryableStoreType.SESSION:
            found = view.all(reverse=reverse)
            entries = (_windowed(w, v) if w.end >= first and w.start <= last else None for w, v in found)
        case _ if key is None:
            raise BadQueryError(f"store {query.store!r} is versioned: the query must name a key")
        case _ if "from" in query.options or "to" in query.options:
            versions = view.history(key, first, last, reverse=reverse)
            entries = ({"value": v.value, "from": v.timestamp, "to": v.valid_to} for v in versions)
        case _:
            version = view.get(key, query.number("as_of", 0) if "as_of" in query.options else None)
            return _one(query, partition, key, None if version is None else version.value)
    return _many(query, partition, entries, deadline_s)


def _range(streams: KafkaStreams, query: Query, view: Any, *, reverse: bool) -> Iterable[tuple[Any, Any]]:
    options = query.options
    if "prefix" in options:
        if reverse or "start" in options or "end" in options:
            raise BadQueryError("prefix cannot be combined with start, end or reverse")
        scanned: Iterable[tuple[Any, Any]] = view.prefix_scan(
            key_text_bytes(options["prefix"], options.get("key_serde"))
        )
        return scanned
    start, end = (key_of(streams, query, options[name]) if name in options else None for name in ("start", "end"))
    found: Iterable[tuple[Any, Any]] = (view.reverse_range if reverse else view.range)(start, end)
    return found


def _windowed(windowed: Any, value: Any) -> dict[str, Any]:
    return {"key": windowed.key, "start": windowed.start, "end": windowed.end, "value": value}


def _one(query: Query, partition: int | None, key: Any, value: Any) -> Found:
    if value is None:
        raise AbsentKeyError(f"store {query.store!r} has no key {query.key!r:.200}")
    return Found({"key": key, "value": value, "partition": partition})


def _many(query: Query, partition: int | None, entries: Iterable[dict[str, Any] | None], deadline_s: float) -> Found:
    """Return the first entries up to the limit. None stands for an entry outside the range, whose read took time."""
    found: list[dict[str, Any]] = []
    limit = query.limit
    size = 0
    for number, entry in enumerate(entries):
        if number % 256 == 0 and time.monotonic() > deadline_s:
            raise OwnerTimeoutError(f"reading store {query.store!r} took too long; set a lower limit=, or query a key")
        if entry is None:
            continue
        if len(found) == limit:
            return Found({"entries": found, "complete": False}, size)
        found.append(entry if partition is None else {**entry, "partition": partition})
        size += len(json_text(found[-1]))
        check_size(query, size)
    return Found({"entries": found, "complete": True}, size)


def check_size(query: Query, size_bytes: int) -> None:
    """Raise BadQueryError when the entries of an answer are too large in total."""
    if size_bytes > ANSWER_BYTES_MAX:
        raise BadQueryError(
            f"the requested entries of store {query.store!r} have more than {ANSWER_BYTES_MAX} bytes; set a lower "
            "limit="
        )
