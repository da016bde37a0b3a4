"""The observers that a client passes to its group protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streams_py.events.observers import InstanceObserver
from streams_py.runtime.group.timeline import RebalanceListener
from streams_py.runtime.group.transport import JoinObserver


@dataclass(frozen=True, slots=True)
class GroupObservers:
    """The observers of one client's rebalances.

    Args:
        events: Creates the observers of assign steps.
        listeners: Called after each rebalance of each thread. The list may change.
        joins: Called around each JoinGroup request.
    """

    events: InstanceObserver
    listeners: Sequence[RebalanceListener]
    joins: JoinObserver
