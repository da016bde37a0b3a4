"""How much history the newest outputs of a topology depend on: state is made of what came before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streams_py.runtime.tasks.settings.timestamps import EXTRACTORS, partition_time_if_invalid
from streams_py.topology.declare.nodes import SourceNode
from streams_py.topology.declare.stores import StoreKind
from streams_py.topology.operators.processors import ProcessorOperator
from streams_py.topology.operators.table_transforms import TableTransformValues
from streams_py.topology.topology import Topology

__all__ = ["HistoryNeed", "history_needed", "makes_timestamps"]

_DEFAULT_EXTRACTOR = "default.timestamp.extractor"


@dataclass(frozen=True, slots=True)
class HistoryNeed:
    """``before_ms``: how much older than an output the records may be that it is made of; without state nothing, behind
    windows what they keep. None: no record is too old, because of the stores and processors ``endless``, or because
    the timestamps at the sources ``retimed`` are made there: then those of records say nothing about those of
    outputs."""

    before_ms: int | None
    endless: tuple[str, ...] = ()
    retimed: tuple[str, ...] = ()

    def since(self, instant_ms: int) -> int | None:
        """The oldest timestamp that outputs from an instant on depend on; None for the very first."""
        return None if self.before_ms is None else instant_ms - self.before_ms


def history_needed(topology: Topology, config: Mapping[str, Any] | None = None) -> HistoryNeed:
    """What the stores and sources say. Windows may follow one another, so what they keep adds up; a session has no
    longest; what a processor remembers, and which timestamps it gives, nobody knows. Global tables do not count: they
    are filled from all of their topics in any case. ``config``: has the default extractor."""
    default = (config or {}).get(_DEFAULT_EXTRACTOR)
    endless, retimed, before_ms = [], list[str](), 0
    for sub in topology.subtopologies():
        if sub.is_global:
            continue
        sources = [source for source in sub.sources if not source.is_internal]
        retimed += [
            source.name
            for source in sources
            if makes_timestamps(source, default) or _takes_partition_time(source, default)
        ]
        endless += [
            node.name for node in sub.processors if isinstance(node.operator, ProcessorOperator | TableTransformValues)
        ]
        for store in sub.stores:
            if store.windows is None or store.kind is StoreKind.SESSION or store.windows.holds_back:
                endless.append(store.name)
            else:
                before_ms += store.windows.kept_ms
    is_everything = bool(endless or retimed)
    return HistoryNeed(None if is_everything else before_ms, tuple(sorted(endless)), tuple(sorted(retimed)))


def _takes_partition_time(source: SourceNode, default: Any) -> bool:
    return (source.timestamp_extractor or default) in ("use_partition_time", partition_time_if_invalid)


def makes_timestamps(source: SourceNode, default: Any) -> bool:
    """Whether a function of the user makes the timestamps there. ``default``: the extractor of the settings, if any."""
    extractor = source.timestamp_extractor or default
    return extractor is not None and extractor not in (*EXTRACTORS, *EXTRACTORS.values())
