"""The exchange of standbys, which combines layers and swaps.

A client must not have two copies of a task, and copies should be separate. Under these rules the cheapest placement is
hard to find, so every method here is a local search that ends in some local optimum. The first steps decide which one,
because copies with more different tags than before must keep them. Large groups have time for one method only: layers,
then pairs. For smaller groups several methods start from the same placement, including pairs alone, which is Kafka
Streams' method. The cheapest result is used, and of equally cheap results the one with the fewest moves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from streams_py.assignment.rack.copies import Copies
from streams_py.assignment.rack.cost import Costs
from streams_py.assignment.rack.layers import exchange_layers
from streams_py.assignment.rack.swaps import swap_standbys

_log = logging.getLogger("streams_py.assignment")

_PAIRS_MAX: Final = 50_000
_SEVERAL_WAYS_MAX: Final = 200_000  # standbys times clients; up to this, pairs alone take a fraction of a second
_BY_CLIENT_MAX: Final = 100_000
"""Standbys times clients; up to this, there is time to use clients as places, not classes."""


def exchange_standbys(start: Callable[[], Copies], costs: Costs) -> Copies:
    """Return the best placement found. Each call of ``start()`` returns a new initial placement."""
    copies = start()
    before = [frozenset(hosts) for hosts in copies.hosts]
    if costs.traffic == 0 or copies.foreign_total() == 0:  # nothing to save
        return copies
    exchange_layers(copies, costs)
    _swap(copies, costs)
    clients = len(copies.home)
    if copies.foreign_total() == 0 or sum(map(len, before)) * clients > _SEVERAL_WAYS_MAX:
        return copies
    found = [copies, start()]
    _swap(found[1], costs)
    if sum(map(len, before)) * clients <= _BY_CLIENT_MAX and len(copies.class_racks) < clients:
        found.append(start())
        _exchange_by_client(found[2], costs)
        _swap(found[2], costs)
        for copies in found:
            _exchange_by_client(copies, costs)
    return min(found, key=lambda copies: (copies.foreign_total(), moved_standbys(before, copies)))


def moved_standbys(before: Sequence[Collection[int]], after: Copies) -> int:
    """Return the number of standbys on clients that had no standby of the task before."""
    return sum(len(hosts.difference(old)) for old, hosts in zip(before, after.hosts))


def _swap(copies: Copies, costs: Costs) -> None:
    if not swap_standbys(copies, costs, pairs_max=_PAIRS_MAX):
        _log.info("rack optimisation of standbys: stopped after %d pairs of clients", _PAIRS_MAX)


def _exchange_by_client(copies: Copies, costs: Costs) -> None:
    while exchange_layers(copies, costs, by_client=True):
        pass  # each round reduces the traffic, so the loop terminates
