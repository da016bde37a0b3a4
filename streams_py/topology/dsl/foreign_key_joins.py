"""Assembly of a foreign-key join: names, topics, store, nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from streams_py.serdes import BYTES, Serde, serde_or_default
from streams_py.topology.declare.names import changelog_topic, suffixed_or_generate
from streams_py.topology.declare.nodes import SinkNode, SourceNode
from streams_py.topology.declare.stores import StoreBuilder, StoreKind
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.dsl.place import Place
from streams_py.topology.formats.foreign_keys import ResponseSerde, SubscriptionSerde
from streams_py.topology.logical.graph import (
    GraphNode,
    LogicalGraph,
    ProcessorStep,
    SinkStep,
    SourceStep,
    StoreStep,
    TableStep,
)
from streams_py.topology.operators.foreign_key_joins import (
    ForeignKeySerdes,
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from streams_py.topology.operators.tables import TableOperator, TableSource
from streams_py.topology.physical.assembly import TopologyAssembly

_PREFIX = "KTABLE-FK-JOIN-"
_REGISTRATION = f"{_PREFIX}SUBSCRIPTION-REGISTRATION-"
_PROCESSOR = f"{_PREFIX}SUBSCRIPTION-PROCESSOR-"
_RESPONSE = f"{_PREFIX}SUBSCRIPTION-RESPONSE-"
_RESOLVER = f"{_PREFIX}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"
_STORE = f"{_PREFIX}SUBSCRIPTION-STATE-STORE-"
_OUTPUT = f"{_PREFIX}OUTPUT-"
_SINK = "KTABLE-SINK-"
_SOURCE = "KTABLE-SOURCE-"


class _InternalSinkStep(SinkStep):
    """Writes to an internal topic and declares this topic."""

    def write(self, assembly: TopologyAssembly) -> None:
        assembly.add_repartition_topic(self.sink.topic or "")
        super().write(assembly)


def join_on_foreign_key(
    left: tuple[Place, TableOperator],
    right: tuple[Place, TableOperator],
    extractor: Callable[[Any, Any], Any],
    joiner: Callable[[Any, Any, Any], Any],
    options: Materialized[Any, Any] | None,
    name: str | None,
    *,
    keeps_left: bool,
) -> tuple[Place, TableSource]:
    """Return the place and the operator of the joined table.

    Names are taken in the order of Kafka Streams' ``KTableImpl``.
    """
    (here, left_table), (there, right_table) = left, right
    here, there = _with_known_serdes(here), _with_known_serdes(there)
    right_table.enable_old_values(force=True)
    left_table.enable_old_values(force=True)
    steps = _Steps(here.graph, name)
    subscriptions = _subscribe(steps, here, there, left_table, extractor, keeps_left=keeps_left)
    answers = _answer(steps, there, right_table, subscriptions)
    response_topic = f"{steps.named('-subscription-response', _RESPONSE)}-topic"
    responses = _through_topic(
        steps.named("-subscription-response-sink", _SINK),
        steps.named("-subscription-response-source", _SOURCE),
        response_topic,
        here.key_serde,
        ResponseSerde(there.value_serde),
        here,
        answers,
        to_partition=True,
    )
    resolver = steps.process(
        steps.named("-subscription-response-resolver", _RESOLVER),
        ResponseJoin(left_table, joiner, subscriptions.serdes, keeps_left=keeps_left),
        [responses],
        left_table.readable_stores(),
    )
    sources = here.graph.copartition(here.sources | {responses.name}, resolver.name)
    result_name = steps.named("-result", _OUTPUT)
    kept = options or Materialized()
    result_store = kept.store or here.graph.index.store_name(_OUTPUT)
    operator = TableSource(result_store, is_stored=kept.store is not None)
    builder = kept.builder(result_store, here.key_serde, None)
    step = TableStep(result_name, operator, builder)
    here.graph.attach(step, resolver)
    # Later operations use the left table's key serde, even if the store of the result sets another one.
    place = replace(here, node=step, value_serde=builder.value_serde, sources=sources)
    return place, operator


class _Steps:
    """Creates the steps of one join, with names that begin with ``name`` or are generated."""

    def __init__(self, graph: LogicalGraph, name: str | None) -> None:
        self.graph = graph
        self._name = name

    def named(self, suffix: str, prefix: str) -> str:
        return suffixed_or_generate(self._name, suffix, self.graph.index, prefix)

    def process(
        self, label: str, operator: Any, parents: Iterable[GraphNode], stores: Iterable[str] = ()
    ) -> ProcessorStep:
        step = ProcessorStep(label, operator, stores=stores)
        self.graph.attach(step, *parents)
        return step


class _Subscriptions(NamedTuple):
    """The topic of subscriptions, read back where the right table is, and the store that keeps them there."""

    source: SourceStep
    store: str
    serdes: ForeignKeySerdes


def _subscribe(
    steps: _Steps,
    here: Place,
    there: Place,
    left_table: TableOperator,
    extractor: Callable[[Any, Any], Any],
    *,
    keeps_left: bool,
) -> _Subscriptions:
    """Send each row of the left table to the partition of its foreign key."""
    topic = f"{steps.named('-subscription-registration', _REGISTRATION)}-topic"
    serdes = ForeignKeySerdes(topic, here.key_serde, there.key_serde, here.value_serde)
    sender = steps.process(
        steps.named("-subscription-registration-processor", _REGISTRATION),
        SubscriptionSend(left_table, extractor, serdes, keeps_left=keeps_left),
        [here.node],
    )
    sink_name = steps.named("-subscription-registration-sink", _SINK)
    source_name = steps.named("-subscription-registration-source", _SOURCE)
    store_name = steps.named("-subscription-store", _STORE)
    serde = SubscriptionSerde(here.key_serde, topic, changelog_topic(store_name))
    source = _through_topic(sink_name, source_name, topic, there.key_serde, serde, here, [sender])
    store = StoreBuilder(store_name, StoreKind.TIMESTAMPED_KEY_VALUE, BYTES, serde, logs_headers=True)
    steps.graph.attach(StoreStep(store), steps.graph.root)
    return _Subscriptions(source, store_name, serdes)


def _answer(
    steps: _Steps, there: Place, right_table: TableOperator, subscriptions: _Subscriptions
) -> list[ProcessorStep]:
    """Answer a subscription when it arrives, and all subscriptions of a key when the right table changes."""
    source, store, serdes = subscriptions
    receiver = steps.process(
        steps.named("-subscription-receive", _PROCESSOR), SubscriptionReceive(store, serdes), [source], [store]
    )
    steps.graph.copartition(there.sources | {source.name}, receiver.name)
    at_arrival = steps.process(
        steps.named("-subscription-join-foreign", _PROCESSOR),
        SubscriptionJoin(right_table),
        [receiver],
        right_table.readable_stores(),
    )
    at_change = steps.process(
        steps.named("-foreign-join-subscription", _PROCESSOR),
        ForeignTableJoin(right_table, store, serdes),
        [there.node],
        [store],
    )
    return [at_arrival, at_change]


def _with_known_serdes(place: Place) -> Place:
    """Set the builder's default serdes, because inner serdes must be known here.

    A serde that is still None is set by the configuration.
    """
    defaults = place.graph.defaults
    return place.with_serdes(
        serde_or_default(place.key_serde, defaults, is_key=True),
        serde_or_default(place.value_serde, defaults, is_key=False),
    )


def _through_topic(
    sink: str,
    source: str,
    topic: str,
    key: Serde[Any] | None,
    value: Serde[Any],
    place: Place,
    parents: Iterable[GraphNode],
    *,
    to_partition: bool = False,
) -> SourceStep:
    """Write to an internal topic and read it.

    ``to_partition``: the value has the number of the partition.
    """
    partitioner = _to_asking_partition if to_partition else None
    written = _InternalSinkStep(
        SinkNode(sink, (), topic, None, key, value, partitioner, is_internal=True, by_inner_key=True)
    )
    place.graph.attach(written, *parents)
    read = SourceStep(SourceNode(source, (topic,), None, key, value, is_internal=True))
    place.graph.attach(read, written)
    return read


def _to_asking_partition(topic: str, key: Any, response: Any, count: int) -> int | None:
    partition: int | None = response.partition
    return partition
