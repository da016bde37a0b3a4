"""How much history the newest outputs of a topology depend on: state is made of what came before."""

from __future__ import annotations

from dataclasses import dataclass

from streams_py.topology.stores import StoreKind
from streams_py.topology.topology import Topology

__all__ = ["HistoryNeed", "history_needed"]


@dataclass(frozen=True, slots=True)
class HistoryNeed:
    """``before_ms``: how much older than an output the records may be that it is made of; without state nothing, behind
    windows what they keep. None: no record is too old, because of the stores ``endless``."""

    before_ms: int | None
    endless: tuple[str, ...] = ()

    def since(self, instant_ms: int) -> int | None:
        """The oldest timestamp that outputs from an instant on depend on; None for the very first."""
        return None if self.before_ms is None else instant_ms - self.before_ms


def history_needed(topology: Topology) -> HistoryNeed:
    """What the stores say. Windows may follow one another, so what they keep adds up; a session has no longest. Global
    tables do not count: they are filled from all of their topics in any case."""
    endless, before_ms = [], 0
    for sub in topology.subtopologies():
        for store in () if sub.is_global else sub.stores:
            if store.windows is None or store.kind is StoreKind.SESSION or store.windows.holds_back:
                endless.append(store.name)
            else:
                before_ms += store.windows.retention_ms
    return HistoryNeed(None, tuple(sorted(endless))) if endless else HistoryNeed(before_ms)
