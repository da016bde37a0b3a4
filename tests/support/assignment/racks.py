"""The small cluster of most scenarios, and a short notation for placements.

Tasks ``g_p`` read partition p of topic g. With state, they also have partition p of a changelog. A placement is written
``P1: 0_0 1_1``, with one line for each client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from uuid import UUID

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.problem import Tags
from streams_py.assignment.rack import optimiser_for

PATTERNS = {"α": "01", "β": "12", "γ": "02", "δ": "13", "ε": "34"}
TOPICS = ["αββγδεγ", "γδαβ", "εδεα", "γδε"]
CHANGELOGS = ["αββγδεα", "γδαε", "βγεδ", "εδβ"]
RACKS = {"P1": "rack0", "P2": "rack1", "P3": "rack2", "P4": "rack3", "P5": "rack4", "P6": "rack0", "P7": "rack1"}

Placement = dict[str, list[str]]
Costs = tuple[int, int]
STRATEGIES = ("min_traffic", "balance_subtopology")


def process_id(name: str) -> ProcessId:
    """P1 < P2 < ..."""
    return ProcessId(UUID(int=int(name[1:])))


def racks(letter: str) -> frozenset[str]:
    return frozenset(f"rack{digit}" for digit in PATTERNS[letter])


def table(letters: Sequence[str]) -> dict[TaskId, list[frozenset[str]]]:
    return {TaskId(g, p): [racks(letter)] for g, row in enumerate(letters) for p, letter in enumerate(row)}


ACTIVE = table(TOPICS)
STANDBY = table(CHANGELOGS)


def placement(text: str) -> Placement:
    """Parse ``P1: 0_0 1_1; P2:``."""
    result: Placement = {}
    for part in text.split(";"):
        name, _, tasks = part.partition(":")
        result[name.strip()] = tasks.split()
    return result


def traffic(
    found: Mapping[str, Iterable[str]],
    partitions: Mapping[TaskId, Sequence[frozenset[str]]] = ACTIVE,
    racks_of: Mapping[str, str] = RACKS,
) -> int:
    return sum(
        racks_of[client] not in replicas
        for client, tasks in found.items()
        for task in tasks
        for replicas in partitions[TaskId.parse(task)]
    )


def moves(before: Mapping[str, Iterable[str]], after: Mapping[str, Iterable[str]]) -> int:
    return sum(len(set(tasks) - set(after[client])) for client, tasks in before.items())


def cost(
    before: Mapping[str, Iterable[str]],
    after: Mapping[str, Iterable[str]],
    costs: Costs,
    partitions: Mapping[TaskId, Sequence[frozenset[str]]] = ACTIVE,
    racks_of: Mapping[str, str] = RACKS,
) -> int:
    return costs[0] * traffic(after, partitions, racks_of) + costs[1] * moves(before, after)


def optimise(
    before: Placement,
    costs: Costs,
    strategy: str = "min_traffic",
    *,
    only: Iterable[str] | None = None,
    partitions: Mapping[TaskId, Sequence[frozenset[str]]] = ACTIVE,
    racks_of: Mapping[str, str] = RACKS,
    factory: object = optimiser_for,
) -> Placement:
    """Return active tasks after the optimisation; with ``only``, other tasks keep their place."""
    names = sorted(before, key=process_id)
    owner = {task: names.index(name) for name, own in before.items() for task in own}
    tasks = sorted(map(TaskId.parse, owner if only is None else only))
    optimiser = factory(  # type: ignore[operator]  # one of two factories
        active_racks=partitions,
        standby_racks={},
        client_racks={process_id(name): racks_of[name] for name in names},
        strategy=strategy,
    )
    new = optimiser.optimise_active(
        tasks,
        [process_id(name) for name in names],
        [owner[str(task)] for task in tasks],
        traffic_cost=costs[0],
        non_overlap_cost=costs[1],
    )
    owner |= {str(task): client for task, client in zip(tasks, new)}
    after: Placement = {name: [] for name in before}
    for task in sorted(owner, key=TaskId.parse):
        after[names[owner[task]]].append(task)
    return after


def optimise_standbys(
    active: Placement,
    standby: Placement,
    costs: Costs,
    strategy: str = "min_traffic",
    *,
    tags: Mapping[str, Tags] | None = None,
    partitions: Mapping[TaskId, Sequence[frozenset[str]]] = STANDBY,
    racks_of: Mapping[str, str] = RACKS,
    factory: object = optimiser_for,
) -> Placement:
    """Return the standbys after the optimisation."""
    names = sorted(active, key=process_id)
    tasks = sorted({TaskId.parse(task) for own in active.values() for task in own})
    optimiser = factory(  # type: ignore[operator]  # one of two factories
        active_racks={},
        standby_racks=partitions,
        client_racks={process_id(name): racks_of[name] for name in names},
        strategy=strategy,
    )
    new = optimiser.optimise_standby(
        tasks,
        [process_id(name) for name in names],
        [next(n for n, name in enumerate(names) if str(task) in active[name]) for task in tasks],
        [{n for n, name in enumerate(names) if str(task) in standby.get(name, ())} for task in tasks],
        traffic_cost=costs[0],
        non_overlap_cost=costs[1],
        tags=None if tags is None else [tags[name] for name in names],
    )
    after: Placement = {name: [] for name in active}
    for task, hosts in zip(tasks, new):
        for host in sorted(hosts):
            after[names[host]].append(str(task))
    return after


def rack_tags(names: Iterable[str], racks_of: Mapping[str, str] = RACKS) -> dict[str, Tags]:
    """Each client's rack as its only tag."""
    return {name: frozenset({("rack", racks_of[name])}) for name in names}


def sizes(found: Mapping[str, Sequence[str]]) -> dict[str, int]:
    return {client: len(tasks) for client, tasks in found.items()}


def cheapest(
    before: Placement,
    costs: Costs,
    partitions: Mapping[TaskId, Sequence[frozenset[str]]],
    racks_of: Mapping[str, str],
    cap: Mapping[tuple[str, int], int] | None = None,
) -> tuple[int, int]:
    """Return (cost, moves) of the best placement with unchanged task counts, by trying all."""
    tasks = sorted((task for own in before.values() for task in own), key=TaskId.parse)
    best: tuple[int, int] | None = None
    for owners in product(before, repeat=len(tasks)):
        after: Placement = {name: [] for name in before}
        for task, name in zip(tasks, owners):
            after[name].append(task)
        if sizes(after) != sizes(before):
            continue
        if cap is not None and any(
            sum(TaskId.parse(task).subtopology == group for task in after[name]) > most
            for (name, group), most in cap.items()
        ):
            continue
        found = (cost(before, after, costs, partitions, racks_of), moves(before, after))
        best = found if best is None else min(best, found)
    assert best is not None
    return best
