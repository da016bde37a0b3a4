"""Finds everything in a topology that cannot run over a history, with the node, the rule and a remedy.

A history has no clock and cannot wait for other systems. A task may run twice, because Spark repeats lost tasks. So
operators that depend on the time of day, on other services, or on exactly one call are refused. Operators that depend
on stream time are supported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from streams_py.errors import TopologyError
from streams_py.history.needs import makes_timestamps
from streams_py.history.plan import circles, looped_topics
from streams_py.runtime.tasks.settings.timestamps import wall_clock_time
from streams_py.topology.declare.nodes import ProcessorNode, SinkNode, SourceNode
from streams_py.topology.operators.asynchronous import CallAsync, CallInBatches
from streams_py.topology.operators.processors import ProcessorOperator
from streams_py.topology.operators.stateless import Foreach, Peek, Print
from streams_py.topology.operators.table_transforms import TableTransformValues
from streams_py.topology.physical.subtopologies import Subtopology
from streams_py.topology.topology import Topology

_FREEZE: Final = (
    "join a table (table()) instead, or use its contents at the end (--global-tables as-of-end, or global_tables=)"
)


class Finding(NamedTuple):
    """One obstacle, and its remedy."""

    node: str
    rule: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.node}: {self.rule}; {self.remedy}"


class RefusedTopologyError(TopologyError):
    """A topology cannot run over a history. ``findings`` has all obstacles.

    ``name`` and ``what`` are for the message: the topology, and what it cannot do.
    """

    def __init__(
        self, found: Collection[Finding], name: str = "this topology", what: str = "run over a history"
    ) -> None:
        listed = "".join(f"\n  {finding}" for finding in found)
        super().__init__(f"{name} cannot {what}:{listed}")
        self.findings = tuple(found)


@dataclass(frozen=True, slots=True)
class Allowances:
    """Permissions that the user gives.

    Attributes:
        outputs: topics that functions may choose.
        side_effects: whether peek, foreach and print may be called again for the same record.
        frozen_tables: whether every record may see global tables with their contents at the end.
    """

    outputs: Collection[str] = ()
    side_effects: bool = False
    frozen_tables: bool = False

    def check(
        self,
        topology: Topology,
        application_id: str,
        config: Mapping[str, Any],
        *,
        to_topics: bool = False,
        name: str = "this topology",
    ) -> None:
        """Raise RefusedTopologyError with all findings, if there are any.

        See :func:`findings` for the arguments. ``name`` is the topology's name in the message.
        """
        found = findings(topology, application_id, config, self, to_topics=to_topics)
        if found:
            raise RefusedTopologyError(found, name)


NOTHING_ALLOWED: Final = Allowances()


def findings(
    topology: Topology,
    application_id: str,
    config: Mapping[str, Any],
    allowed: Allowances = NOTHING_ALLOWED,
    *,
    warm_start: bool = False,
    to_topics: bool = False,
    global_remedy: str = _FREEZE,
) -> list[Finding]:
    """Return all obstacles of a topology.

    Args:
        topology: the topology.
        application_id: the application.
        config: settings of the application.
        allowed: permissions of the user.
        warm_start: whether a live application continues from the state.
        to_topics: whether outputs are written to their topics.
        global_remedy: remedy for global tables that are not allowed.
    """
    found: list[Finding] = []
    default = config.get("default.timestamp.extractor")
    if default in ("wall_clock", wall_clock_time):
        found.append(_clock("default.timestamp.extractor"))
    for sub in topology.subtopologies():
        if sub.is_global:
            found += (
                _of_filled(topology, sub, application_id, config)
                if allowed.frozen_tables
                else _of_global(sub, global_remedy)
            )
            continue
        found += _of_order(sub, default)
        for node in sub.nodes:
            if isinstance(node, SourceNode):
                found += _of_source(node)
            elif isinstance(node, SinkNode):
                found += _of_sink(node, allowed.outputs)
            else:
                found += _of_processor(node, allow_side_effects=allowed.side_effects)
        if warm_start:
            found += _of_stores(sub)
    if not topology.has_patterns:
        metadata = topology.metadata(application_id, config)
        if warm_start or to_topics:
            for topic in sorted(looped_topics(metadata) | (set(allowed.outputs) & metadata.source_topics)):
                rule = "this topology writes and reads it, and a live application would read all of it again"
                found.append(Finding(f"topic {topic}", rule, "use repartition() in between"))
        for topics in circles(metadata):
            rule = "a stage would read records that the same stage or a later one writes"
            why = "the cause is a foreign-key join, or a join of a re-keyed stream with its origin"
            found.append(Finding(f"topic {', '.join(topics)}", rule, f"run this part live ({why})"))
    return found


def _clock(node: str) -> Finding:
    return Finding(node, "timestamps come from the time of day", "use the records' own timestamps")


def _of_global(sub: Subtopology, remedy: str) -> Iterator[Finding]:
    names = ", ".join(source.name for source in sub.sources)
    topics = ", ".join(topic for source in sub.sources for topic in source.topics)
    yield Finding(names, f"which updates of the global table of {topics} a record has seen is not recorded", remedy)


def _of_filled(
    topology: Topology, sub: Subtopology, application_id: str, config: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yield obstacles of global stores that are filled before the first record."""
    for store in sub.stores:
        if not topology.global_stores[store.name].is_table:
            yield Finding(f"store {store.name}", "it is filled by a custom processor", "use a global table")
    if not topology.has_patterns:
        subs = topology.metadata(application_id, config).subtopologies.values()
        for topic in sorted(sub.source_topics & {topic for other in subs for topic in other.sink_topics}):
            yield Finding(
                f"topic {topic}",
                "this topology writes it, but a global table must be filled from it before the first record",
                "join it as a table (table()) instead",
            )


def _of_source(node: SourceNode) -> Iterator[Finding]:
    if node.pattern is not None:
        yield Finding(node.name, f"topics are matched by pattern {node.pattern.pattern!r}", "name the topics")
    if node.timestamp_extractor is wall_clock_time:
        yield _clock(node.name)


def _of_order(sub: Subtopology, default: Any) -> Iterator[Finding]:
    """Refuse timestamp functions with several topics: records are ordered before any function has seen them."""
    if sum(len(source.topics) for source in sub.sources) < 2:
        return
    for source in sub.sources:
        if makes_timestamps(source, default):
            yield Finding(
                source.name,
                "a function creates its timestamps, but records of several topics are ordered by their own timestamps",
                "write records with these timestamps to a topic first, with a separate application",
            )


def _of_sink(node: SinkNode, outputs: Collection[str]) -> Iterator[Finding]:
    if node.chooser is not None and not outputs:
        yield Finding(
            node.name,
            "a function chooses the topic of each record",
            "name all topics that it may choose as outputs (--output, or partitions=)",
        )


def _of_processor(node: ProcessorNode, *, allow_side_effects: bool) -> Iterator[Finding]:
    operator: Any = node.operator
    match operator:
        case ProcessorOperator() | TableTransformValues() if not operator.replayable:
            yield Finding(
                node.name,
                "it runs a custom processor, which may use punctuators, the clock or other services",
                "set batch_safe = True on the supplier (or function) if it does not",
            )
        case CallAsync() | CallInBatches():
            yield Finding(
                node.name, "it waits for another system", "call that system before, and read its answers as a topic"
            )
        case Foreach() | Peek() | Print():
            if allow_side_effects:
                return
            yield Finding(
                node.name,
                "its function is called again when Spark repeats a task",
                "remove it, or allow side effects (--allow-side-effects, or allow_side_effects=True) if they do no "
                "harm",
            )
        case _ if not operator.replayable:
            yield Finding(node.name, f"{type(operator).__qualname__} must not process a record twice", "use the DSL")


def _of_stores(sub: Subtopology) -> Iterator[Finding]:
    for store in sub.stores:
        if not store.logging and store.source_topic is None:
            yield Finding(
                f"store {store.name}",
                "it has no changelog, so its state cannot be transferred",
                "enable logging, or start the application without a warm start",
            )
