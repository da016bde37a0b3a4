"""The movement queue compared with the heap that it replaces, and the rules of that heap."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Collection
from itertools import pairwise

import pytest

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.assignors.movement_queue import MovementQueue, enough_pushes
from streams_py.assignment.java_order import process_hash
from tests.support.assignment.binary_heap import BinaryHeap
from tests.support.assignment.reference import Client, PriorityQueue
from tests.support.assignment.scenario_language import process_id

TASK = TaskId(0, 0)


class Fake(Client):
    """A client with only an id and a load."""

    def __init__(self, id: ProcessId, load: int) -> None:
        self.id = id
        self.tasks = load

    @property
    def load(self) -> float:
        return self.tasks


def is_among(chosen: set[int], number: dict[ProcessId, int]) -> Callable[[Client], bool]:
    return lambda client: number[client.id] in chosen


# -- the set of clients itself -------------------------------------------------------------------------------


def polls(weights: dict[int, float], allowed: set[int], wanted: list[set[int]], *, twice: bool = False) -> list[int]:
    """Return the winners' numbers, 0 for no winner; each element of ``wanted`` restricts one poll."""
    fakes = {n: Fake(process_id(n), 0) for n in weights}
    number = {fake.id: n for n, fake in fakes.items()}
    queue = PriorityQueue(lambda client, _task: number[client.id] in allowed, lambda client: weights[number[client.id]])
    for _ in range(2 if twice else 1):
        queue.offer_all(fakes.values())
    found = []
    for chosen in wanted:
        winner = queue.poll(TASK, is_among(chosen, number))
        found.append(number[winner.id] if winner else 0)
    return found


EVERY = {1, 2, 3}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(lambda: polls({1: 1}, EVERY, [EVERY] * 2), [1, 0], id="Q-01"),
        pytest.param(lambda: polls({1: 1}, set(), [EVERY]), [0], id="Q-02"),
        pytest.param(lambda: polls({1: 3, 2: 2, 3: 1}, EVERY, [EVERY] * 4), [3, 2, 1, 0], id="Q-03"),
        pytest.param(lambda: polls({1: 1}, EVERY, [EVERY] * 2, twice=True), [1, 0], id="Q-04"),
        pytest.param(lambda: polls({1: 1, 2: 1}, {1}, [EVERY] * 2), [1, 0], id="Q-05"),
        pytest.param(lambda: polls({1: 1, 2: 1}, EVERY, [{1}, {1}, EVERY, EVERY]), [1, 0, 2, 0], id="Q-06"),
    ],
)
def test_priority_set_polls_least_weight_first_then_id(found: Callable[[], list[int]], expected: list[int]) -> None:
    assert found() == expected


def test_heap_keeps_javas_slots_when_keys_tie() -> None:
    heap: BinaryHeap[str] = BinaryHeap(len)
    for word in ("aa", "b", "c", "dd", "e"):
        heap.push(word)
    assert [heap.pop() for _ in range(5)] == ["b", "e", "c", "dd", "aa"]


def test_heap_refuses_to_remove_what_it_does_not_hold() -> None:
    heap: BinaryHeap[int] = BinaryHeap(lambda number: number)
    heap.push(1)
    with pytest.raises(ValueError, match="2 is not in the heap"):
        heap.remove(2)


# -- the queue without a heap --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "pushes"), [(64, 32), (100, 4), (500, 6), (999, 7), (1000, 503), (1001, 7), (1024, 740), (1500, 8)]
)
def test_enough_pushes_is_the_known_threshold(size: int, pushes: int) -> None:
    assert enough_pushes(size) == pushes


class Counted(MovementQueue):
    """Counts how often it needs the literal array. Results do not show this."""

    arrays_built = 0

    def _poll_literally(self, candidates: Collection[int]) -> int:
        self.arrays_built += 1
        return super()._poll_literally(candidates)


def run_both(seed: int, size: int, movements: int) -> int:
    """Apply random movements to queue and heap; return how many arrays the queue built."""
    rng = random.Random(seed)
    ids = sorted(ProcessId(uuid.UUID(int=rng.getrandbits(128))) for _ in range(size))
    top = rng.choice((2, 4, 12))
    fakes = [Fake(id, rng.randint(1, top)) for id in ids]
    literal = PriorityQueue(lambda _client, _task: True)
    literal.offer_all(fakes)
    hashes = [(h := process_hash(id)) ^ (h >> 16) for id in ids]
    keys = [fake.tasks * size + client for client, fake in enumerate(fakes)]

    queue = Counted(list(keys), hashes)
    number = {id: client for client, id in enumerate(ids)}
    for _ in range(movements):
        candidates = set(rng.sample(range(size), rng.choice((0, 1, 2, 3, size // 2, size - 1))))
        expected = literal.poll(TASK, is_among(candidates, number))
        src = queue.poll(sorted(candidates))
        assert src == (None if expected is None else number[expected.id]), f"seed {seed}"
        polled = src is not None
        if src is None:
            if rng.random() < 0.3:
                continue
            src = rng.randrange(size)
        dest = rng.choice([client for client in range(size) if client != src])
        change = rng.choice(((0, 0), (1, 0), (1, -1), (1, -1), (1, -1)))
        if fakes[dest].tasks + change[1] < 0:
            change = (1, 0)
        fakes[src].tasks += change[0]
        fakes[dest].tasks += change[1]
        literal.offer_all([fakes[src], fakes[dest]])
        queue.put_back(src, fakes[src].tasks * size + src, dest, fakes[dest].tasks * size + dest, polled=polled)
        intervals = queue.doubtful
        assert all(low <= high for low, high in intervals)
        assert all(a[1] < b[0] for a, b in pairwise(intervals))
    return queue.arrays_built


def test_queue_picks_whom_the_heap_picks() -> None:
    built = sum(run_both(seed, random.Random(seed).randint(5, 130), 40) for seed in range(150))
    assert built > 20, "the runs must reach the case that keys alone cannot decide"


@pytest.mark.weekly
def test_queue_picks_whom_the_heap_picks_in_many_runs() -> None:
    for seed in range(1000, 2500):
        run_both(seed, random.Random(seed).randint(5, 130), 60)
