"""Standbys: the exchanges put together.

A client must not hold two copies of a task, and copies should stay apart; with that, the cheapest placement is hard to
find, and every method here is a local search that stops somewhere. What it does first decides where: copies that are
further apart than before must stay so. In large groups there is time for one way only, layers and then pairs. In
smaller ones several ways are gone from the same start, pairs alone among them, which is Kafka Streams' method, and the
cheapest result is taken; of equally cheap ones that with the fewest moves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from streams_py.assignment.rack.copies import Copies
from streams_py.assignment.rack.cost import Costs
from streams_py.assignment.rack.layers import exchange_layers
from streams_py.assignment.rack.swaps import swap_standbys

__all__ = ["exchange_standbys", "moved_standbys"]

_log = logging.getLogger("streams_py.assignment")

_PAIRS_MAX: Final = 50_000
_SEVERAL_WAYS_MAX: Final = 200_000  # standbys times clients: up to here pairs alone take a fraction of a second
_BY_CLIENT_MAX: Final = 100_000  # the same: up to here there is time to treat clients one by one, not by class


def exchange_standbys(start: Callable[[], Copies], costs: Costs) -> Copies:
    """The best placement found from ``start()``, which is called for a fresh one as often as needed."""
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
    """Number of standbys on clients that had none of the task before."""
    return sum(len(hosts.difference(old)) for old, hosts in zip(before, after.hosts))


def _swap(copies: Copies, costs: Costs) -> None:
    if not swap_standbys(copies, costs, pairs_max=_PAIRS_MAX):
        _log.info("rack optimisation of standbys: stopped after %d pairs of clients", _PAIRS_MAX)


def _exchange_by_client(copies: Copies, costs: Costs) -> None:
    while exchange_layers(copies, costs, by_client=True):
        pass  # each round saves traffic, so this ends
