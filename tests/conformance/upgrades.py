"""Pairs of versions of the recorded programs. They differ in one change whose consequence is known.

The consequence is known from the change itself and from the names in the programs, not from the check under test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from streams_py.errors import TopologyError
from streams_py.serdes import BYTES, FLOAT64
from streams_py.topology.declare.nodes import ProcessorNode, SinkNode, SourceNode
from streams_py.topology.declare.stores import StoreBuilder, StoreKind
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.kstream import KStream
from streams_py.topology.operators.stateless import Filter, MapValues
from streams_py.topology.physical.assembly import Node
from streams_py.topology.topology import Topology
from tests.conformance.programs import Program, all_programs
from tests.conformance.programs.registry import descriptions

_GENERATED = re.compile(r".*\d{10}.*")


@dataclass(frozen=True)
class Pair:
    """Two versions, and whether the new one may continue with the old one's state.

    ``names``: it depends only on names, which descriptions also contain.
    """

    id: str
    old: Topology
    new: Topology
    safe: bool
    names: bool = False


def pairs() -> Iterator[Pair]:
    """All pairs."""
    for program in all_programs():
        yield from _of_whole_programs(program)
        yield from _of_nodes(program)
        yield from _of_stores(program)
        yield from _of_repartitions(program)
    yield from _of_two_programs()


# -- what the truth is made of -------------------------------------------------------------------------------


def _made(program: Program) -> Topology:
    return program.make(program.optimization)


def _lasting(topology: Topology) -> set[str]:
    """Names that old data depends on: stores with tasks, and repartition topics."""
    stores = set(topology.stores) - set(topology.global_stores)
    sources = (node for node in topology.nodes if isinstance(node, SourceNode) and node.is_internal)
    return stores.union(*(source.topics for source in sources))


def _has_generated(topology: Topology) -> bool:
    return any(_GENERATED.fullmatch(name) for name in _lasting(topology))


# -- programs as wholes --------------------------------------------------------------------------------------


def _of_whole_programs(program: Program) -> Iterator[Pair]:
    old = _made(program)
    yield Pair(f"{program.id} unchanged", old, _made(program), True, names=True)
    describe = descriptions().get(program.id)
    if describe is None:
        return

    def with_more(*, before: bool, named: bool) -> Topology:
        builder = StreamsBuilder()

        def more() -> None:
            stream: KStream[str, str] = builder.stream("new-topic", name="new-source" if named else None)
            stream.map_values(str, name="new-map" if named else None).to("new-out", name="new-sink" if named else None)

        if before:
            more()
        describe(builder)
        if not before:
            more()
        return builder.build({"topology.optimization": program.optimization, "__reference.behaviour__": True})

    for named in (False, True):  # names given elsewhere do not keep numbers from shifting
        try:
            new = with_more(before=True, named=named)
        except KeyError:  # the program has a generated name written in it
            continue
        what = "named operators" if named else "operators"
        yield Pair(f"{program.id} {what} before it", old, new, not _has_generated(old), names=True)
    yield Pair(f"{program.id} operators behind it", old, with_more(before=False, named=False), True, names=True)
    lasting = _lasting(old)
    for optimization in {"none", "all"} - {program.optimization}:
        new = program.make(optimization)
        logged = {name: store.source_topic for name, store in old.stores.items() if name in lasting}
        safe = lasting <= _lasting(new) and all(new.stores[name].source_topic == logged[name] for name in logged)
        yield Pair(f"{program.id} optimization {optimization}", old, new, safe)


def _of_two_programs() -> Iterator[Pair]:
    """Two programs in one, in either order."""
    known = [(program, descriptions()[program.id]) for program in all_programs() if program.id in descriptions()]
    for (first, describe_first), (second, describe_second) in pairwise(known):
        if describe_first is describe_second or "all" in (first.optimization, second.optimization):
            continue

        def both(*describes: Callable[[StreamsBuilder], None]) -> tuple[Topology, list[set[str]]]:
            builder = StreamsBuilder()
            parts: list[set[str]] = []
            for count in range(1, len(describes) + 1):  # what each part adds
                so_far = StreamsBuilder()
                for describe in describes[:count]:
                    describe(so_far)
                parts.append(_lasting(so_far.build()))
            for describe in describes:
                describe(builder)
            return builder.build(), parts

        try:
            old, (of_first, of_both) = both(describe_first, describe_second)
            new, _ = both(describe_second, describe_first)
            without, _ = both(describe_first)
        except (TopologyError, KeyError):  # they name the same things, or have a generated name written in them
            continue
        moved = _GENERATED.fullmatch
        safe = not any(map(moved, of_first)) and not any(map(moved, of_both - of_first))
        yield Pair(f"{first.id} and {second.id} reordered", old, new, safe, names=True)
        removed = of_both - of_first
        yield Pair(f"{second.id} taken out behind {first.id}", old, without, not removed, names=True)
        yield Pair(f"{second.id} added behind {first.id}", without, old, True, names=True)


# -- parts of programs ---------------------------------------------------------------------------------------


def _nodes(topology: Topology) -> dict[str, Node]:
    """Return the nodes of a topology, which may be changed. No public call changes a topology after it was built."""
    return topology._assembly._nodes  # see above


def _stores(topology: Topology) -> dict[str, StoreBuilder]:
    return topology._assembly._stores  # see _nodes


def _repartitions(topology: Topology) -> dict[str, int | None]:
    """Return the repartition topics with their numbers of partitions."""
    return topology._assembly._repartitions  # see _nodes


def _changed(program: Program, change: Callable[[Topology], None]) -> Topology:
    topology = _made(program)
    change(topology)
    return topology


def _of_nodes(program: Program) -> Iterator[Pair]:
    """Code of functions, targets: neither is state."""
    old = _made(program)

    def other_code(topology: Topology) -> None:
        nodes = _nodes(topology)
        for name, node in nodes.items():
            if isinstance(node, ProcessorNode) and isinstance(node.operator, Filter):
                nodes[name] = replace(node, operator=Filter(lambda key, value: key is not None or value == 7))
            if isinstance(node, ProcessorNode) and isinstance(node.operator, MapValues):
                nodes[name] = replace(node, operator=MapValues(lambda value: [value, "other code"]))

    def other_targets(topology: Topology) -> None:
        nodes = _nodes(topology)
        for name, node in nodes.items():
            if isinstance(node, SinkNode) and node.topic is not None and not node.is_internal:
                nodes[name] = replace(node, topic=f"{node.topic}-v2")

    if any(isinstance(node, ProcessorNode) and isinstance(node.operator, Filter | MapValues) for node in old.nodes):
        yield Pair(f"{program.id} other functions", old, _changed(program, other_code), True)
    if any(isinstance(node, SinkNode) and node.topic and not node.is_internal for node in old.nodes):
        yield Pair(f"{program.id} other targets", old, _changed(program, other_targets), True, names=True)


_Change = Callable[[StoreBuilder], StoreBuilder | None]


def _other_span(store: StoreBuilder) -> StoreBuilder | None:
    windows = store.windows
    if windows is None or not _has_size(store):
        return None
    return replace(store, windows=replace(windows, span_ms=windows.span_ms * 2 + 1))


def _has_size(store: StoreBuilder) -> bool:
    return store.windows is not None and store.kind is not StoreKind.SESSION


_STORE_CHANGES: list[tuple[str, bool, _Change]] = [
    ("key serde", False, lambda store: replace(store, key_serde=BYTES)),
    ("value serde", False, lambda store: replace(store, value_serde=FLOAT64)),
    ("window size", False, _other_span),
    ("kind", False, lambda store: replace(store, kind=StoreKind.SESSION) if _has_size(store) else None),
    ("no changelog", False, lambda store: replace(store, logging=False) if store.logging else None),
    ("in memory", True, lambda store: replace(store, persistent=False)),
    ("cached", True, lambda store: replace(store, caching=not store.caching)),
    ("topic settings", True, lambda store: replace(store, logging_config={"retention.bytes": "1"})),
]


def _of_stores(program: Program) -> Iterator[Pair]:
    old = _made(program)
    for name in sorted(_lasting(old) & old.stores.keys()):
        for what, safe, change in _STORE_CHANGES:
            new = _made(program)
            changed = change(new.stores[name])
            if changed is not None and changed != new.stores[name]:
                _stores(new)[name] = changed
                yield Pair(f"{program.id} {name}: {what}", old, new, safe)
        yield Pair(f"{program.id} {name}: renamed", old, _changed(program, partial(_rename, name)), False, names=True)


def _rename(name: str, topology: Topology) -> None:
    other, all_stores, nodes = f"{name}-v2", _stores(topology), _nodes(topology)
    for stores in (all_stores, topology._assembly._processors_of_store):  # see _nodes
        items = [(other if key == name else key, value) for key, value in stores.items()]
        stores.clear()
        stores.update(items)  # type: ignore[arg-type]
    all_stores[other] = replace(all_stores[other], name=other)
    for node in topology.nodes:
        if isinstance(node, ProcessorNode) and name in node.stores:
            stores_of = tuple(other if store == name else store for store in node.stores)
            nodes[node.name] = replace(node, stores=stores_of)


def _of_repartitions(program: Program) -> Iterator[Pair]:
    old = _made(program)
    for topic in sorted(_repartitions(old)):

        def other_count(topology: Topology, topic: str = topic) -> None:
            counts = _repartitions(topology)
            counts[topic] = (counts[topic] or 0) + 3

        def other_name(topology: Topology, topic: str = topic) -> None:
            counts, nodes = _repartitions(topology), _nodes(topology)
            counts[f"v2-{topic}"] = counts.pop(topic)
            for node in topology.nodes:
                if isinstance(node, SourceNode) and topic in node.topics:
                    nodes[node.name] = replace(node, topics=(f"v2-{topic}",))
                if isinstance(node, SinkNode) and node.topic == topic:
                    nodes[node.name] = replace(node, topic=f"v2-{topic}")

        def other_serde(topology: Topology, topic: str = topic) -> None:
            for node in topology.nodes:
                if isinstance(node, SourceNode) and topic in node.topics:
                    _nodes(topology)[node.name] = replace(node, value_serde=FLOAT64)

        yield Pair(f"{program.id} {topic}: partitions", old, _changed(program, other_count), False)
        yield Pair(f"{program.id} {topic}: renamed", old, _changed(program, other_name), False, names=True)
        yield Pair(f"{program.id} {topic}: serde", old, _changed(program, other_serde), False)
