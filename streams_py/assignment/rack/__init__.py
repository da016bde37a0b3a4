"""Rack-aware task assignment (KIP-925): fewer partitions read across racks, with every client keeping its load.

Start with :func:`optimiser_for`. :mod:`~streams_py.assignment.rack.cost` says what is minimised,
:mod:`~streams_py.assignment.rack.transport` why that needs no network of tasks times clients.

The price of a partition is what a consumer pays that reads from a replica in its own rack. Brokers must allow that
(``replica.selector.class``); otherwise every consumer reads from the leader and the savings are on paper only.
"""

from streams_py.assignment.rack.optimiser import NetworkOptimiser, optimiser_for

__all__ = ["NetworkOptimiser", "optimiser_for"]
