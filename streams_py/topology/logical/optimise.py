"""Changes of the logical graph before it is written: always some, more on request.

Two changes are always made. Streams of the same topics get one common source. Repartitions forward records without a
key if a later operation uses such records (KIP-962). The following changes are made on request
(``topology.optimization``, KIP-295). They affect which internal topics exist, so all members of a group must use the
same setting:

* ``reuse.ktable.source.topics``: a stored source table has no changelog, because its source topic serves as one.
* ``merge.repartition.topics``: several repartitions after one key-changing operation become one repartition directly
  after it. This applies only to repartitions whose closest key- or value-changing ancestor is that operation; the
  records of others are different. An explicit ``repartition()`` stays. If the repartitions follow a ``merge`` of
  key-changed streams, they move up to the merge.
* ``single.store.self.join``: a stream that is joined with itself is stored only once, if the results are the same.

Source: Kafka Streams' ``InternalStreamsBuilder.buildAndOptimizeTopology``. The search order is the same, because it
determines which topics exist.

With ``__reference.behaviour__`` the topology has the topics of Kafka Streams even if its optimisation changes results.
Kafka Streams moves a repartition above a processor or a join with a global table, and out of one branch of a merge. It
also stores the records of every self join only once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from streams_py.errors import ConfigError, TopologyError
from streams_py.serdes import Serde
from streams_py.topology.declare.caller import locate
from streams_py.topology.declare.names import RepartitionNames
from streams_py.topology.logical.graph import GraphNode, LogicalGraph, RepartitionStep, SourceStep, TableSourceStep
from streams_py.topology.logical.join_steps import StreamJoinStep

_KEY: Final = "topology.optimization"
_REFERENCE_KEY: Final = "__reference.behaviour__"
_REFERENCE: Final = "as Kafka Streams"
"""Pseudo-optimisation: optimise like Kafka Streams, even if that changes results."""


class Optimization(StrEnum):
    """The values of ``topology.optimization``."""

    REUSE_SOURCE_TOPICS = "reuse.ktable.source.topics"
    MERGE_REPARTITIONS = "merge.repartition.topics"
    SINGLE_STORE_SELF_JOIN = "single.store.self.join"
    ALL = "all"
    NONE = "none"


_EACH: Final = frozenset(
    {Optimization.REUSE_SOURCE_TOPICS, Optimization.MERGE_REPARTITIONS, Optimization.SINGLE_STORE_SELF_JOIN}
)


def optimizations_in(config: Mapping[str, object] | None) -> frozenset[str]:
    """Return the optimisations of a configuration. Raises ConfigError for an unknown value."""
    reference = frozenset({_REFERENCE} if (config or {}).get(_REFERENCE_KEY) is True else ())
    value = str((config or {}).get(_KEY) or Optimization.NONE)
    wanted = {part.strip() for part in value.split(",")}
    if len(wanted) == 1 and wanted <= {Optimization.NONE, Optimization.ALL}:
        return reference | (_EACH if Optimization.ALL in wanted else frozenset())
    if not wanted <= _EACH:
        raise ConfigError(
            f"{_KEY} = {value!r}: expected 'none', 'all', or a comma-separated list of {', '.join(sorted(_EACH))}",
            key=_KEY,
        )
    return reference | wanted


def optimise(graph: LogicalGraph, wanted: frozenset[str]) -> None:
    """Optimise the graph in place."""
    _merge_equal_sources(graph)
    if Optimization.REUSE_SOURCE_TOPICS in wanted:
        for node in graph.attached:
            if isinstance(node, TableSourceStep):
                node.reuses_source_topic = True
    if Optimization.MERGE_REPARTITIONS in wanted:
        _merge_repartitions(graph, reference=_REFERENCE in wanted)
    if Optimization.SINGLE_STORE_SELF_JOIN in wanted:
        _keep_records_of_self_joins_once(graph, reference=_REFERENCE in wanted)
    _let_null_keys_pass(graph.root)


# -- sources -------------------------------------------------------------------------------------------------


def _merge_equal_sources(graph: LogicalGraph) -> None:
    first_of_topic: dict[str, SourceStep] = {}
    first_of_pattern: dict[re.Pattern[str], SourceStep] = {}
    for node in list(graph.root.children):
        if not isinstance(node, SourceStep):
            continue
        if node.source.pattern is not None:
            first = first_of_pattern.setdefault(node.source.pattern, node)
        else:
            for topic in node.source.topics:
                first = first_of_topic.setdefault(topic, node)
                if set(first.source.topics) != set(node.source.topics):
                    error = TopologyError(
                        f"topic {topic!r} is read by two streams that read different sets of topics: "
                        f"{_listed(first)}, at {first.where}, and {_listed(node)}; read equal sets, or merge streams "
                        "of single topics"
                    )
                    locate(error, node.where)
                    raise error
        if first is not node:
            _merge_source(graph, first, node)


def _merge_source(graph: LogicalGraph, first: SourceStep, other: SourceStep) -> None:
    if first.source.reset_policy is not other.source.reset_policy:
        error = TopologyError(
            f"{_listed(first)} is read twice with different reset policies, first at {first.where}; give both the same"
        )
        locate(error, other.where)
        raise error
    for child in list(other.children):
        other.remove_child(child)
        first.add_child(child)
    graph.root.remove_child(other)


def _listed(node: SourceStep) -> str:
    pattern = node.source.pattern
    return f"pattern {pattern.pattern}" if pattern is not None else f"[{', '.join(sorted(node.source.topics))}]"


# -- self joins ----------------------------------------------------------------------------------------------


def _keep_records_of_self_joins_once(graph: LogicalGraph, *, reference: bool) -> None:
    for node in graph.attached:
        if isinstance(node, StreamJoinStep) and (node.is_of_one_stream if reference else node.needs_one_store):
            for parent in node.parents:
                parent.remove_child(node.right.keeper)
            node.is_self_join = True


# -- null keys -----------------------------------------------------------------------------------------------


def _let_null_keys_pass(root: GraphNode) -> None:
    verdicts: dict[GraphNode, bool] = {}

    def accepts(node: GraphNode) -> bool:
        if node not in verdicts:
            below = [
                accepts(child) for child in node.children
            ]  # a list, because each repartition below needs its verdict
            verdicts[node] = node.traits.accepts_null_keys or any(below)
            if isinstance(node, RepartitionStep):
                node.null_key_filter.pass_all = any(below)
        return verdicts[node]

    accepts(root)


# -- repartitions --------------------------------------------------------------------------------------------


def _merge_repartitions(graph: LogicalGraph, *, reference: bool) -> None:
    for changer, repartitions in _mergeable(graph, reference=reference).items():
        if not reference:
            repartitions = [node for node in repartitions if _gets_only_what_leaves(changer, node)]
        if repartitions:
            _move_up(graph, changer, repartitions)


def _mergeable(graph: LogicalGraph, *, reference: bool) -> dict[GraphNode, list[RepartitionStep]]:
    """Map each key-changing (or merge) node to the repartitions that one repartition can replace."""

    def changes_key(node: GraphNode) -> bool:
        return node.traits.changes_key and not (reference and node.traits.is_overlooked)

    def changes_any(node: GraphNode) -> bool:
        return (node.traits.changes_key or node.traits.changes_value) and not (reference and node.traits.is_overlooked)

    found: dict[GraphNode, list[RepartitionStep]] = {node: [] for node in graph.attached if changes_key(node)}
    for node in graph.attached:
        if isinstance(node, RepartitionStep) and not node.is_explicit:
            changer = _ancestor(node, changes_key)
            if changer is not None and changer is _ancestor(node, changes_any):
                found[changer].append(node)
    # The lowest merge first: of several consecutive merges, the one that all records pass gets the repartitions.
    for merge in reversed([node for node in graph.attached if node.traits.is_merge]):
        changers = [
            changer
            for changer, repartitions in found.items()
            if all(_is_below(node, merge) for node in repartitions) and _is_below(merge, changer)
        ]
        moved = [node for changer in changers for node in found.pop(changer)]
        if moved:
            found[merge] = moved
    return found


def _gets_only_what_leaves(target: GraphNode, node: GraphNode) -> bool:
    """Whether all records of ``node`` passed ``target``, with unchanged keys and values since."""
    return bool(node.parents) and all(
        parent is target
        or (not (parent.traits.changes_key or parent.traits.changes_value) and _gets_only_what_leaves(target, parent))
        for parent in node.parents
    )


def _is_below(node: GraphNode, above: GraphNode) -> bool:
    return _ancestor(node, lambda between: above in between.parents) is not None


def _ancestor(node: GraphNode, matches: Callable[[GraphNode], bool]) -> GraphNode | None:
    """Return the node itself or an ancestor that matches, or None.

    Parents are searched in order, and the first match ends the search. Source: Kafka Streams'
    ``findParentNodeMatching``.
    """
    if matches(node):
        return node
    for parent in node.parents:
        found = _ancestor(parent, matches)
        if found is not None:
            return found
    return None


def _move_up(graph: LogicalGraph, changer: GraphNode, repartitions: list[RepartitionStep]) -> None:
    """Replace repartitions by one directly below ``changer``, with the topic of the first one."""
    single = RepartitionStep(
        RepartitionNames(repartitions[0].names.topic, graph.index),
        _first(node.key_serde for node in repartitions),
        _first(node.value_serde for node in repartitions),
    )
    single.priority = changer.priority  # written before all nodes below the replaced repartitions
    for old in repartitions:
        entry = _ancestor(old, lambda node: changer in node.parents)
        if entry is not None:  # otherwise the branch moved with an earlier repartition of it
            single.add_child(entry)
            changer.remove_child(entry)
        for child in list(old.children):
            old.remove_child(child)
            for parent in old.parents:
                parent.add_child(child)
        for parent in list(old.parents):
            parent.remove_child(old)
        graph.replace_source(old.name, single.name)
    changer.add_child(single)


def _first(serdes: Iterable[Serde[Any] | None]) -> Serde[Any] | None:
    return next((serde for serde in serdes if serde is not None), None)
