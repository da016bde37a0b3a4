"""How much history the newest outputs of a topology depend on. State depends on earlier records."""

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

_DEFAULT_EXTRACTOR = "default.timestamp.extractor"


@dataclass(frozen=True, slots=True)
class HistoryNeed:
    """The age of records that an output may depend on.

    Attributes:
        before_ms: how much older than an output its input records may be, in ms. 0 without state; with windows, the
            time that they are kept. None: records of any age matter.
        endless: stores and processors because of which records of any age matter.
        retimed: sources that create new timestamps. The timestamps of outputs then do not depend on those in the
            records.
    """

    before_ms: int | None
    endless: tuple[str, ...] = ()
    retimed: tuple[str, ...] = ()

    def since(self, instant_ms: int) -> int | None:
        """Return the oldest timestamp on which outputs since ``instant_ms`` depend; None for the first record."""
        return None if self.before_ms is None else instant_ms - self.before_ms


def history_needed(topology: Topology, config: Mapping[str, Any] | None = None) -> HistoryNeed:
    """Determine the need from the stores and sources of a topology.

    Windows may follow each other, so the times that they are kept add up. A session may have any length. A processor
    may store any record and may choose any timestamps. Global tables do not count, because they are always filled from
    their whole topics.

    Args:
        topology: the topology.
        config: settings, for the default timestamp extractor.
    """
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
    """Whether a user function creates the timestamps at a source. ``default``: extractor of the settings, if any."""
    extractor = source.timestamp_extractor or default
    return extractor is not None and extractor not in (*EXTRACTORS, *EXTRACTORS.values())
