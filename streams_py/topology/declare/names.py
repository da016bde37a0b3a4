"""Names of nodes, stores and internal topics, on which other members and old data depend.

Kafka Streams generates missing names from one counter per builder. Every DSL call takes numbers of the counter in a
fixed order, even if the user sets a name. So a name set in one place never changes names elsewhere (KIP-307). Topic and
store names come from the same counter, so a member that counts differently would read and write other topics. The
prefixes are the same as in Kafka Streams' ``KStreamImpl`` and ``KTableImpl``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from streams_py.errors import TopologyError

_MAX_NAME_LENGTH: Final = 249  # the longest legal topic name (Kafka's Topic.MAX_NAME_LENGTH)
_SHOWN_MAX: Final = 40
_LEGAL_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_GENERATED_STREAM_NAME: Final = re.compile(r"KSTREAM.*-[0-9]{10}")
_REPARTITION: Final = "-repartition"
_CHANGELOG: Final = "-changelog"
_KAFKAS_TOPICS: Final = "__consumer_offsets|__transaction_state|__share_group_state"
_INTERNAL_NAME: Final = (
    rf".+(?:{_CHANGELOG}|{_REPARTITION}|-subscription-registration-topic|-subscription-response-topic)"
    r"|(?:.+-)?KTABLE-FK-JOIN-SUBSCRIPTION-(?:REGISTRATION|RESPONSE)-\d+-topic"
)


class Prefix(StrEnum):
    """Prefixes of generated names."""

    SOURCE = "KSTREAM-SOURCE-"
    SINK = "KSTREAM-SINK-"
    FILTER = "KSTREAM-FILTER-"
    MAP = "KSTREAM-MAP-"
    MAP_VALUES = "KSTREAM-MAPVALUES-"
    MAP_ASYNC = "KSTREAM-MAPASYNC-"
    MAP_VALUES_ASYNC = "KSTREAM-MAPVALUESASYNC-"
    MAP_BATCH = "KSTREAM-MAPBATCH-"
    FLAT_MAP = "KSTREAM-FLATMAP-"
    FLAT_MAP_VALUES = "KSTREAM-FLATMAPVALUES-"
    PEEK = "KSTREAM-PEEK-"
    FOREACH = "KSTREAM-FOREACH-"
    PRINT = "KSTREAM-PRINTER-"
    SELECT_KEY = "KSTREAM-KEY-SELECT-"
    MERGE = "KSTREAM-MERGE-"
    BRANCH = "KSTREAM-BRANCH-"
    PROCESS = "KSTREAM-PROCESSOR-"
    PROCESS_VALUES = "KSTREAM-PROCESSVALUES-"
    TO_TABLE = "KSTREAM-TOTABLE-"
    REPARTITION = "KSTREAM-REPARTITION-"
    AGGREGATE = "KSTREAM-AGGREGATE-"
    REDUCE = "KSTREAM-REDUCE-"
    JOIN = "KSTREAM-JOIN-"
    LEFT_JOIN = "KSTREAM-LEFTJOIN-"
    WINDOWED = "KSTREAM-WINDOWED-"
    JOIN_THIS = "KSTREAM-JOINTHIS-"
    JOIN_OTHER = "KSTREAM-JOINOTHER-"
    OUTER_THIS = "KSTREAM-OUTERTHIS-"
    OUTER_OTHER = "KSTREAM-OUTEROTHER-"
    OUTER_SHARED = "KSTREAM-OUTERSHARED-"
    COGROUP_AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"
    COGROUP_MERGE = "COGROUPKSTREAM-MERGE-"
    TABLE_SUPPRESS = "KTABLE-SUPPRESS-"
    TABLE_TRANSFORM_VALUES = "KTABLE-TRANSFORMVALUES-"
    TABLE_SOURCE = "KTABLE-SOURCE-"
    TABLE_FILTER = "KTABLE-FILTER-"
    TABLE_MAP_VALUES = "KTABLE-MAPVALUES-"
    TABLE_TO_STREAM = "KTABLE-TOSTREAM-"
    TABLE_SELECT = "KTABLE-SELECT-"
    TABLE_AGGREGATE = "KTABLE-AGGREGATE-"
    TABLE_REDUCE = "KTABLE-REDUCE-"
    TABLE_MERGE = "KTABLE-MERGE-"
    TABLE_JOIN_THIS = "KTABLE-JOINTHIS-"
    TABLE_JOIN_OTHER = "KTABLE-JOINOTHER-"


class Named(str):
    """A checked name. ``name="x"`` and ``name=Named("x")`` mean the same.

    Raises:
        TopologyError: the name is not valid.
    """

    __slots__ = ()

    def __new__(cls, name: str) -> Named:
        return super().__new__(cls, check_name(name))


class NameIndex:
    """The counter of one builder. Each call takes one number."""

    def __init__(self) -> None:
        self._next = 0

    def node_name(self, prefix: str) -> str:
        """Return ``prefix`` and the next number with ten digits."""
        value = self._next
        self._next += 1
        return f"{prefix}{value:010d}"

    def store_name(self, prefix: str) -> str:
        """Return a store name: operator prefix, ``STATE-STORE-``, next number."""
        return self.node_name(f"{prefix}STATE-STORE-")


def check_name(name: str) -> str:
    """Return the name. Raises TopologyError unless it can be part of a topic name.

    Source: Kafka Streams' ``Named.validate``.
    """
    if not name:
        raise TopologyError("a name must not be empty; omit it to get a generated name")
    if name in (".", ".."):
        raise TopologyError(f"a name must not be {name!r}")
    if len(name) > _MAX_NAME_LENGTH:
        raise TopologyError(
            f"the name {name[:40]}... has {len(name)} characters; at most {_MAX_NAME_LENGTH} are allowed"
        )
    if not _LEGAL_NAME.fullmatch(name):
        raise TopologyError(f"the name {name!r} has characters other than letters, digits, '.', '_' and '-'")
    return name


def check_topic(name: str) -> str:
    """Return the name. Raises TopologyError unless Kafka accepts it as a topic name."""
    if name in ("", ".", "..") or len(name) > _MAX_NAME_LENGTH or not _LEGAL_NAME.fullmatch(name):
        shown = repr(name if len(name) <= _SHOWN_MAX else f"{name[:_SHOWN_MAX]}...")
        raise TopologyError(
            f"{shown} is not a valid topic name: it must have 1 to {_MAX_NAME_LENGTH} of the characters A-Z a-z 0-9 "
            ". _ -, and must not be . or .."
        )
    return name


def name_or_generate(name: str | None, index: NameIndex, prefix: str) -> str:
    """Return the user's name or a generated one. A number is taken in both cases."""
    generated = index.node_name(prefix)
    return generated if name is None else check_name(name)


def suffixed_or_generate(name: str | None, suffix: str, index: NameIndex, prefix: str) -> str:
    """Return the user's name with a suffix, or a generated one. A number is taken in both cases."""
    generated = index.node_name(prefix)
    return generated if name is None else check_name(name + suffix)


def names_of(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return one or several names as a tuple, without duplicates, in order."""
    return (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))


class RepartitionNames:
    """Topic and node names of one repartition. Takes three numbers: for sink, filter and source."""

    __slots__ = ("filter", "sink", "source", "topic")

    def __init__(self, base: str, index: NameIndex) -> None:
        self.topic = repartition_topic(base)
        generated = [index.node_name(prefix) for prefix in (Prefix.SINK, Prefix.FILTER, Prefix.SOURCE)]
        if _GENERATED_STREAM_NAME.fullmatch(base):
            self.sink, self.filter, self.source = generated
        else:
            self.sink, self.filter, self.source = (f"{self.topic}-{part}" for part in ("sink", "filter", "source"))


def repartition_topic(base: str) -> str:
    """Return the short name of a stream's repartition topic."""
    return base if base.endswith(_REPARTITION) else base + _REPARTITION


def table_repartition_topic(base: str) -> str:
    """Return the short name of a grouped table's repartition topic.

    Unlike for streams, the suffix is always added (Kafka Streams' ``KGroupedTableImpl``).
    """
    return base + _REPARTITION


def changelog_topic(store: str) -> str:
    """Return the short name of a store's changelog topic."""
    return store + _CHANGELOG


def full_topic_name(application_id: str, short_name: str) -> str:
    """Return the name of an internal topic on the broker.

    No other code combines application id and topic name.
    """
    return f"{application_id}-{short_name}"


def internal_topics(application_id: str) -> re.Pattern[str]:
    """Return a pattern (for ``fullmatch``) of Kafka's topics and the application's internal topics.

    It includes the internal topics of earlier versions of the topology. A pattern source never reads these topics. The
    criteria are the same as in Kafka's reset tool (``StreamsResetter``).
    """
    return re.compile(rf"{_KAFKAS_TOPICS}|{re.escape(application_id)}-(?:{_INTERNAL_NAME})")


def topic_on_broker(application_id: str, name: str, *, is_internal: bool) -> str:
    """Return the name of a node's topic on the broker; internal names contain the application id."""
    return full_topic_name(application_id, name) if is_internal else name
