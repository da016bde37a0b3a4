"""Exchange of tasks between places with unchanged numbers of tasks: the reduced network.

Kafka Streams builds a network of every task times every client. A much smaller one is enough. Tasks of one *kind* have
equal costs, so only their number in each place matters. A client keeps its number of tasks, so it has a vacancy for
each task that leaves it. A task that arrives in a rack can take any vacancy there at the same cost, so the individual
clients do not matter either. What remains is a network from kinds to places, with these arcs:

* *stay*: from a kind to a place where it is now, for at most as many tasks, at the cost of the traffic alone;
* *move*: from a kind to a place where a move is useful, at the cost of the traffic plus the move;
* *elsewhere*: from a kind to a hub, and from the hub to every place, for all the places that are equally bad.

Each flow corresponds to a placement of the same cost, and vice versa: keep the tasks that stay, remove the others, and
fill the vacancies of a place with its arrivals in any order. No task returns to the client that it left, because a kind
never both leaves a place and arrives there (staying would be cheaper).

Costs are multiplied by the number of tasks plus one, and each move costs one more. So among the cheapest placements the
one with the fewest moves is found. An optimal input is returned unchanged, and another run does not change a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from streams_py.assignment.rack.cost import Costs
from streams_py.assignment.rack.flow import Arc, min_cost_flow

ARCS_MAX: Final = 2_000_000
"""Maximum number of arcs. Larger networks take longer to solve than a group can wait."""

Counts: TypeAlias = dict[tuple[int, int], int]
"""Number of tasks by (kind, place), without zeros."""


class NetworkTooLargeError(Exception):
    """The network has more than ``ARCS_MAX`` arcs."""


@dataclass(frozen=True, slots=True)
class TaskKind:
    """Tasks with equal costs: the number of partitions that such a task reads from other racks.

    ``foreign`` has the number for each place where a move is useful. ``elsewhere`` is the number in all other places;
    None if tasks of this kind may not go there.
    """

    foreign: Mapping[int, int]
    elsewhere: int | None


def count_here(kinds: Iterable[int], places: Iterable[int]) -> Counts:
    """Count tasks by kind and place, which are given for each task."""
    counts: Counts = {}
    for key in zip(kinds, places):
        counts[key] = counts.get(key, 0) + 1
    return counts


def counts_after(
    kinds: Sequence[TaskKind], here: Counts, foreign_here: Mapping[tuple[int, int], int], places: int, costs: Costs
) -> Counts:
    """Return the cheapest counts in which kinds and places keep their totals.

    ``foreign_here`` has the number of partitions that a task of a kind reads from other racks in its current place.
    """
    scale = sum(here.values()) + 1
    supply = [0] * (len(kinds) + places + 1)
    hub = len(supply) - 1
    arcs: list[Arc] = []
    for (kind, place), count in here.items():
        supply[kind] += count
        supply[len(kinds) + place] -= count
        arcs.append(Arc(kind, len(kinds) + place, costs.traffic * foreign_here[kind, place] * scale, count))
    arrivals: list[tuple[int, int]] = []
    for kind, of_kind in enumerate(kinds):
        for place, foreign in of_kind.foreign.items():
            cost = (costs.traffic * foreign + costs.non_overlap) * scale + 1
            arcs.append(Arc(kind, len(kinds) + place, cost, supply[kind]))
            arrivals.append((kind, place))
        if of_kind.elsewhere is not None:
            cost = (costs.traffic * of_kind.elsewhere + costs.non_overlap) * scale + 1
            arcs.append(Arc(kind, hub, cost, supply[kind]))
            arrivals.append((kind, hub))
        if len(arcs) > ARCS_MAX:
            raise NetworkTooLargeError
    arcs += [Arc(hub, len(kinds) + place, 0, -supply[len(kinds) + place]) for place in range(places)]
    flow = min_cost_flow(supply, arcs)
    after = {key: units for key, units in zip(here, flow) if units}
    from_hub = [(place, units) for place, units in enumerate(flow[len(here) + len(arrivals) :]) if units]
    for (kind, place), units in zip(arrivals, flow[len(here) :]):
        for target, share in deal(from_hub, units) if place == hub else ((place, units),):
            if share:
                after[kind, target] = after.get((kind, target), 0) + share
    return after


def deal(stock: list[tuple[int, int]], units: int) -> list[tuple[int, int]]:
    """Take ``units`` units from the end of a stock of (place, units)."""
    dealt = []
    while units:
        place, left = stock.pop()
        share = min(units, left)
        dealt.append((place, share))
        if left > share:
            stock.append((place, left - share))
        units -= share
    return dealt


def moves_between(
    here: Counts, after: Counts, kinds: Sequence[int], places: Sequence[int], clients: Sequence[int]
) -> list[tuple[int, int]]:
    """Return (task, new client) pairs that turn the counts ``here`` into ``after``.

    ``kinds``, ``places`` and ``clients`` are given for each task. The highest tasks leave. Within a place and kind the
    lowest of them go to the lowest vacant clients.
    """
    leaving = {key: count - after.get(key, 0) for key, count in here.items() if count > after.get(key, 0)}
    arriving: dict[int, list[tuple[int, int]]] = {}
    for (kind, place), count in sorted(after.items()):
        if count > here.get((kind, place), 0):
            arriving.setdefault(kind, []).append((place, count - here.get((kind, place), 0)))
    leavers: dict[int, list[int]] = {}
    vacant: dict[int, list[int]] = {}
    for task in range(len(kinds) - 1, -1, -1):
        key = (kinds[task], places[task])
        if leaving.get(key):
            leaving[key] -= 1
            leavers.setdefault(key[0], []).append(task)
            vacant.setdefault(key[1], []).append(clients[task])
    for free in vacant.values():
        free.sort(reverse=True)
    return [
        (leavers[kind].pop(), vacant[place].pop())
        for kind in sorted(leavers)
        for place, count in arriving[kind]
        for _ in range(count)
    ]
