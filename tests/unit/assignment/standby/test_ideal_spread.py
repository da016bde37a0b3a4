"""Standbys are spread over client tags wherever possible (KIP-708); otherwise a warning names the task."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

import pytest

from streams_protocol.types import TaskId
from streams_py.assignment.assignors.cluster import Cluster
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, ClientInput, NoteKind, sentences
from streams_py.assignment.standby.ideal_spread import spread_as_a_whole
from streams_py.assignment.standby.tag_aware import TagAwareStandbys
from tests.support.assignment.clusters import place_active
from tests.support.assignment.scenario_language import process_id

Tags = dict[str, str]

# With the active task on the first client, the first standby would go to the second client, and then no client differs
# from both. The third and the fourth client fit.
DEAD_END: list[Tags] = [
    {"zone": "a", "cluster": "x"},
    {"zone": "b", "cluster": "z"},
    {"zone": "b", "cluster": "y"},
    {"zone": "c", "cluster": "z"},
]


def placed(
    tags: Sequence[Tags], replicas: int, *, tasks: int = 1, one_by_one: bool = False
) -> tuple[Cluster, list[str]]:
    """Task number t is active on client t modulo the number of clients; the warnings."""
    cluster = Cluster(
        [process_id(n) for n in range(1, len(tags) + 1)], [1] * len(tags), [TaskId(0, n) for n in range(tasks)]
    )
    for task in range(tasks):
        place_active(cluster, task, task % len(tags))
    keys = sorted({key for own in tags for key in own})
    notes = TagAwareStandbys(cluster, tags, keys, one_by_one=one_by_one).assign(range(tasks), replicas)
    return cluster, sentences(notes)


def differ(tags: Sequence[Tags], hosts: Sequence[int]) -> bool:
    """Whether no value occurs twice among the hosts, of keys whose values are not all used."""
    for key in {key for own in tags for key in own}:
        values = [tags[host][key] for host in hosts if key in tags[host]]
        if len(set(values)) not in (len(values), len({own[key] for own in tags if key in own})):
            return False
    return True


def test_hosts_that_fit_are_found_when_the_least_loaded_ones_are_a_dead_end() -> None:
    cluster, warnings = placed(DEAD_END, 2)
    assert sorted(cluster.standby[0]) == [2, 3]
    assert warnings == []
    assert sum(cluster.count) == 3
    kafka, warnings = placed(DEAD_END, 2, one_by_one=True)
    assert sorted(kafka.standby[0]) != [2, 3]
    assert len(warnings) == 1


@pytest.mark.parametrize("every_client_tagged", [True, False])
def test_hosts_that_fit_are_found_whenever_there_are_any(every_client_tagged: bool) -> None:
    source, found, kafka_missed = random.Random(708), 0, 0
    for _ in range(400):
        tags = _random_tags(source, every_client_tagged)
        replicas, tasks = source.randint(1, min(3, len(tags) - 1)), source.randint(1, 8)
        ours, _ = placed(tags, replicas, tasks=tasks)
        kafka, _ = placed(tags, replicas, tasks=tasks, one_by_one=True)
        for task in range(tasks):
            active = task % len(tags)
            others = [client for client in range(len(tags)) if client != active]
            if any(differ(tags, (active, *some)) for some in combinations(others, replicas)):
                found += 1
                assert differ(tags, (active, *ours.standby[task])), (tags, replicas, task)
                kafka_missed += not differ(tags, (active, *kafka.standby[task]))
            assert len(set(ours.standby[task]) - {active}) == replicas
    assert found > 500
    assert kafka_missed > 0


def _random_tags(source: random.Random, complete: bool) -> list[Tags]:
    values = {key: source.randint(1, 4) for key in ("zone", "cluster", "host")[: source.randint(1, 3)]}
    return [
        {key: str(source.randrange(n)) for key, n in values.items() if complete or source.random() < 0.9}
        for _ in range(source.randint(2, 8))
    ]


def test_most_values_are_taken_when_not_all_copies_can_differ() -> None:
    tags = [{"zone": "a"}, {"zone": "a"}, {"zone": "b"}, {"zone": "c", "cluster": "x"}, {"zone": "a", "cluster": "x"}]
    cluster, warnings = placed([*tags, {"zone": "a", "cluster": "y"}], 3)
    assert {2, 3} <= set(cluster.standby[0])
    assert warnings == []  # all zones are used, and the known clusters differ
    two_zones = [
        {"zone": "a", "rack": "1"},
        {"zone": "a", "rack": "1"},
        {"zone": "a", "rack": "2"},
        {"zone": "b", "rack": "1"},
    ]
    cluster, warnings = placed(two_zones, 1)
    assert cluster.standby[0] != (1,)
    assert len(warnings) == 1


NOTHING_FITS: list[Tags] = [{"zone": "a", "cluster": "x"}, {"zone": "b", "cluster": "x"}, {"zone": "a", "cluster": "y"}]


def test_warning_names_task_and_tags_and_what_would_help() -> None:
    [text] = placed(NOTHING_FITS, 1)[1]
    assert text == (
        "1 of 1 standby replicas of task 0_0 cannot differ from its other copies in cluster, zone; start an instance "
        "with cluster other than x and zone other than a, or remove a key from rack.aware.assignment.tags"
    )


def test_no_warning_is_left_when_such_an_instance_has_started() -> None:
    cluster, warnings = placed([*NOTHING_FITS, {"zone": "c", "cluster": "z"}], 1)
    assert cluster.standby[0] == (3,)
    assert warnings == []


def test_search_ends_when_it_may_not_go_on() -> None:
    source = random.Random(1)
    values = [[str(source.randrange(30)) for _ in range(4)] for _ in range(60)]
    impossible = [[*row, "same"] for row in values]
    distinct = [*(len({row[key] for row in values}) for key in range(4)), 9]
    chosen, tried = spread_as_a_whole(impossible, distinct, 0, range(1, 60), 5, partial_sets_max=40)
    assert (chosen, tried) == (None, 40)


def test_warning_is_one_when_it_is_about_ten_thousand_tasks() -> None:
    ids = [TaskId(0, n) for n in range(10_000)]
    decision = HighAvailabilityAssignor().decide(
        AssignmentProblem(
            [ClientInput(process_id(n), tags=own) for n, own in enumerate(NOTHING_FITS, 1)],
            ids,
            dict.fromkeys(ids, 0),
            AssignmentConfigs(num_standby_replicas=1, rack_aware_assignment_tags=("zone", "cluster")),
        )
    )
    assert {note.kind for note in decision.notes} == {NoteKind.TAGS_RELAXED}
    [text] = sentences(decision.notes)
    assert "likewise for" in text
    assert len(text) < 500
