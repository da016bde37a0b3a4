"""The assignor for a rebalance without lags: each active task returns to its previous owner.

The leader uses it when the end offsets of the changelogs could not be fetched. Then it is unknown which clients are
caught up, so no running task moves. Tasks without an owner and standbys are placed by the rules of the sticky assignor.
A probing rebalance follows. Source: Kafka Streams' ``FallbackPriorTaskAssignor``.
"""

from __future__ import annotations

from dataclasses import replace

from streams_py.assignment.assignors.sticky import LegacyStickyAssignor
from streams_py.assignment.problem import AssignmentProblem, Decision


class FallbackPriorAssignor:
    """Keeps previous active tasks and requests a probing rebalance; ignores lags and racks."""

    def decide(self, problem: AssignmentProblem, *, explain: bool = False) -> Decision:
        """Leave active tasks where they were if possible, and request a probing rebalance."""
        decision = LegacyStickyAssignor(preserve_actives=True).decide(problem, explain=explain)
        return replace(decision, probing=True)
