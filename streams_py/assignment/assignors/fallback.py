"""The assignor for a rebalance without lags: give every active back to its previous owner.

Used by the leader when the end offsets of the changelogs could not be fetched. Nobody can say then who is caught up, so
nothing moves that runs; tasks without an owner and standbys are placed by the sticky rules; and a probing rebalance
follows. Answers to Kafka Streams' ``FallbackPriorTaskAssignor``.
"""

from __future__ import annotations

from dataclasses import replace

from streams_py.assignment.assignors.sticky import LegacyStickyAssignor
from streams_py.assignment.problem import AssignmentProblem, Decision

__all__ = ["FallbackPriorAssignor"]


class FallbackPriorAssignor:
    """Keeps previous actives whatever the imbalance, ignores lags and racks, always asks for a probing rebalance."""

    def decide(self, problem: AssignmentProblem, *, explain: bool = False) -> Decision:
        """Leave active tasks where they were as far as that goes, and ask for a probing rebalance."""
        decision = LegacyStickyAssignor(preserve_actives=True).decide(problem, explain=explain)
        return replace(decision, probing=True)
