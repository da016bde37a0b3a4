"""Rack-aware task assignment (KIP-925): fewer partitions read across racks, same load.

Start with :func:`optimiser_for`. :mod:`~streams_py.assignment.rack.cost` defines the costs to minimise.
:mod:`~streams_py.assignment.rack.transport` explains why this needs no network of tasks times clients.

The costs assume that a consumer reads from a replica in its own rack. The brokers must be configured for that
(``replica.selector.class``). Otherwise every consumer reads from the leader, and nothing is saved.
"""

from streams_py.assignment.rack.optimiser import NetworkOptimiser, optimiser_for

__all__ = ["NetworkOptimiser", "optimiser_for"]
