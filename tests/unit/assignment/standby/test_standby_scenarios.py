"""Standby placement with known results: by load, over client tags (KIP-708), and its move rules."""

from __future__ import annotations

import re

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.assignment.api import AssignedTask, KafkaStreamsAssignment, TaskType
from streams_py.assignment.application_state import ProblemState, TaskDescription
from streams_py.assignment.assignors.cluster import Cluster
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.java_order import in_hash_order, task_hash
from streams_py.assignment.problem import AssignmentProblem, ClientInput, Note, NoteKind, Placement
from streams_py.assignment.rack.copies import Copies
from streams_py.assignment.rack.cost import Signatures
from streams_py.assignment.standby.default import assign_default_standbys
from streams_py.assignment.standby.tag_aware import TagAwareStandbys
from streams_py.assignment.task_assignment_utils import default_standby_task_assignment
from tests.support.assignment.clusters import place_active
from tests.support.assignment.scenario_language import ClientRow, as_outcome, clients, outcome, process_id, rows, tasks

ALL = {row[0]: row for row in rows("standby.txt")}
WHOLE_ASSIGNOR = [name for name in ALL if name.startswith("HT")]
PUBLIC_HELPER = ["TA-16", "TA-17", "TA-18"]
DIRECT = [name for name in ALL if name not in WHOLE_ASSIGNOR and name not in PUBLIC_HELPER]


class Scenario:
    """A scenario: clients with tags and active tasks, stateful tasks, settings."""

    def __init__(self, row: list[str]) -> None:
        replicas, _, keys = row[2].partition(",")
        self.replicas = int(replicas)
        self.keys = [key.strip() for key in keys.split(",") if key.strip()]
        text, _, stateful = row[1].partition("; stateful ")
        text, _, only = text.partition("; tasks ")
        if text.startswith("nine"):
            text = self._nine(text)
        self.named = clients(text.replace(" empty", ""))
        self.actives = {row.name: tasks(self._take_tags(row)) for row in self.named}
        placed = sorted(task for own in self.actives.values() for task in own)
        self.stateful = tasks(stateful or only) or placed
        self.placed = placed

    @staticmethod
    def _nine(text: str) -> str:
        """Three zones times three clusters: nodes 1 to 9, row by row."""
        active = dict(re.findall(r"(P\d) ([\d_. ]+)", text.replace("; ", " ")))
        nodes = [(n, "abc"[(n - 1) % 3], (n - 1) // 3 + 1) for n in range(1, 10)]
        return "; ".join(f"P{n} cap 2 zone={z}, cluster={c} {active.get(f'P{n}', '')}" for n, z, c in nodes)

    @staticmethod
    def _take_tags(row: ClientRow) -> str:
        words = []
        for word in row.words.replace(",", " ").split():
            short = re.fullmatch(r"z(\d)k(\d)", word)
            if short:
                row.tags = {"zone": f"zone{short[1]}", "cluster": f"cluster{short[2]}"}
            elif "=" in word:
                key, value = word.split("=")
                row.tags[key] = value
            elif word.startswith("rack"):
                row.tags["rack"] = word
            else:
                words.append(word)
        return " ".join(words)

    def place(self, order: list[TaskId]) -> tuple[dict[str, tuple[list[str], list[str]]], list[Note]]:
        """Return the standbys of the tasks in this order, placed by the assignor that the keys select."""
        ids = [row.process_id for row in self.named]
        cluster = Cluster(ids, [row.capacity for row in self.named], self.stateful)
        number_of = {task: number for number, task in enumerate(self.stateful)}
        for client, row in enumerate(self.named):
            for task in self.actives[row.name]:
                if task in number_of:
                    place_active(cluster, number_of[task], client)
                else:
                    cluster.count[client] += 1
        numbers = [number_of[task] for task in order]
        keys = self.keys or (["rack"] if self.named[0].tags.get("rack") else [])
        if keys:
            tags = [row.tags for row in self.named]
            notes = TagAwareStandbys(cluster, tags, keys, one_by_one=True).assign(numbers, self.replicas)
        else:
            notes = assign_default_standbys(cluster, numbers, self.replicas)
        standby = cluster.standby_lists()
        placements = {
            row.process_id: Placement(self.actives[row.name], [self.stateful[t] for t in standby[client]])
            for client, row in enumerate(self.named)
        }
        return as_outcome(self.named, placements), notes


@pytest.mark.parametrize("name", DIRECT)
def test_standbys_are_placed_as_known_in_task_order(name: str) -> None:
    scenario = Scenario(ALL[name])
    assert scenario.place(scenario.stateful)[0] == outcome(ALL[name][3])


@pytest.mark.parametrize("name", DIRECT)
def test_standbys_are_placed_as_known_in_hash_order(name: str) -> None:
    scenario = Scenario(ALL[name])
    assert scenario.place(in_hash_order(scenario.stateful, task_hash))[0] == outcome(ALL[name][4])


@pytest.mark.parametrize("name", PUBLIC_HELPER)
def test_public_helper_places_standbys_as_known(name: str) -> None:
    scenario = Scenario(ALL[name])
    problem = AssignmentProblem(
        [ClientInput(row.process_id, row.capacity, row.tags) for row in scenario.named],
        scenario.placed,
        dict.fromkeys(scenario.stateful, 0),
        AssignmentConfigs(num_standby_replicas=scenario.replicas, rack_aware_assignment_tags=tuple(scenario.keys)),
    )
    state = ProblemState(
        problem,
        lambda: [
            TaskDescription.of(
                task, changelogs=[TopicPartition("log", task.partition)] if task in scenario.stateful else []
            )
            for task in scenario.placed
        ],
    )
    # Only clients with actives have an entry: the helper adds the others.
    assignments = {
        row.process_id: KafkaStreamsAssignment(
            row.process_id, [AssignedTask(task, TaskType.ACTIVE) for task in scenario.actives[row.name]]
        )
        for row in scenario.named
        if scenario.actives[row.name]
    }
    default_standby_task_assignment(state, assignments)
    assert set(assignments) == {row.process_id for row in scenario.named}
    placements = {
        process_id: Placement(
            sorted(t for t, a in entry.tasks.items() if a.type is TaskType.ACTIVE),
            sorted(t for t, a in entry.tasks.items() if a.type is TaskType.STANDBY),
        )
        for process_id, entry in assignments.items()
    }
    assert as_outcome(scenario.named, placements) == outcome(ALL[name][3])


@pytest.mark.parametrize("name", WHOLE_ASSIGNOR)
def test_whole_assignor_keeps_tags_apart_as_known(name: str) -> None:
    scenario = Scenario(ALL[name])
    ids = scenario.stateful
    problem = AssignmentProblem(
        [ClientInput(r.process_id, r.capacity, r.tags, lags=dict.fromkeys(ids, 0)) for r in scenario.named],
        ids,
        dict.fromkeys(ids, 1000),
        AssignmentConfigs(
            acceptable_recovery_lag=0,
            max_warmup_replicas=1,
            num_standby_replicas=scenario.replicas,
            rack_aware_assignment_tags=tuple(scenario.keys),
        ),
    )
    decision = HighAvailabilityAssignor().decide(problem)
    assert as_outcome(scenario.named, decision.placements) == outcome(ALL[name][3])


def kinds(notes: list[Note]) -> list[str]:
    return [note.kind for note in notes]


def test_default_warns_for_each_task_when_clients_are_too_few() -> None:  # SR-02
    scenario = Scenario(ALL["SB-02"])
    notes = scenario.place(scenario.stateful)[1]
    assert kinds(notes) == [NoteKind.NOT_ENOUGH_CLIENTS] * 3
    assert "cannot place 1 of 3 standby replicas of task 0_0" in notes[0].text


def test_default_warns_about_nothing_when_all_standbys_fit() -> None:  # SR-03
    scenario = Scenario(ALL["SB-01"])
    assert scenario.place(scenario.stateful)[1] == []


def test_tag_aware_warns_twice_when_even_the_fallback_cannot_place_all() -> None:  # TA-03
    scenario = Scenario(ALL["TA-03"])
    found = kinds(scenario.place(scenario.stateful)[1])
    assert found == [NoteKind.TAGS_RELAXED] * 3 + [NoteKind.NOT_ENOUGH_CLIENTS] * 3


def test_tag_aware_names_the_unused_key_once() -> None:  # TA-10
    scenario = Scenario(ALL["TA-10"])
    notes = scenario.place(scenario.stateful)[1]
    assert kinds(notes) == [NoteKind.TAG_NOT_CONFIGURED]
    assert "'zone'" in notes[0].text


def tag_aware(*own: dict[str, str]) -> TagAwareStandbys:
    cluster = Cluster([process_id(n) for n in range(1, len(own) + 1)], [1] * len(own), [TaskId(0, 0)])
    return TagAwareStandbys(cluster, own, ["zone", "cluster"])


def zk(zone: int, cluster: int) -> dict[str, str]:
    return {"zone": f"zone{zone}", "cluster": f"cluster{cluster}"}


@pytest.mark.parametrize(
    ("src", "dst", "allowed"),
    [
        pytest.param(zk(1, 1), zk(1, 1), True, id="SM-01"),
        pytest.param(zk(1, 1), zk(2, 1), False, id="SM-02"),
        pytest.param({"zone": "a"}, {"zone": "a", "x": "1"}, True, id="SM-03"),
        pytest.param({"zone": "a", "x": "1"}, {"zone": "a"}, False, id="SM-03-reversed"),
        pytest.param({}, zk(1, 1), True, id="untagged-source"),
    ],
)
def test_balancing_moves_standbys_only_to_clients_with_all_tags_of_the_source(
    src: dict[str, str], dst: dict[str, str], allowed: bool
) -> None:
    assert tag_aware(src, dst).may_move(0, 1) is allowed


@pytest.mark.parametrize(
    ("dst", "allowed"),
    [
        pytest.param(zk(1, 1), True, id="SM-04"),
        pytest.param(zk(2, 1), True, id="SM-05"),
        pytest.param(zk(3, 1), False, id="SM-06"),
    ],
)
def test_rack_swaps_may_not_make_the_copies_of_a_task_less_diverse(dst: dict[str, str], allowed: bool) -> None:
    tags = [frozenset(own.items()) for own in (zk(3, 2), zk(1, 1), dst)]
    task = TaskId(0, 0)
    copies = Copies(Signatures([task], {task: []}, {}), [0], [[1]], [0, 0, 0], 1, tags)
    assert copies.keeps_apart(0, copies.class_of[1], copies.class_of[2]) is allowed


def test_racks_act_as_tag_when_a_strategy_is_set_and_no_tags_are() -> None:
    ids = tasks("0_0..2")
    racks = ["r1", "r1", "r2"]
    problem = AssignmentProblem(
        [ClientInput(process_id(n), rack=rack) for n, rack in enumerate(racks, 1)],
        ids,
        dict.fromkeys(ids, 0),
        AssignmentConfigs(num_standby_replicas=1, rack_aware_assignment_strategy="min_traffic"),
    )
    spread = HighAvailabilityAssignor().decide(problem).placements
    rack_of = {process_id(n): rack for n, rack in enumerate(racks, 1)}
    for task in ids:
        hosts = {rack_of[p] for p, place in spread.items() if task in place.active or task in place.standby}
        assert hosts == {"r1", "r2"}
    kafka = HighAvailabilityAssignor(reference_behaviour=True).decide(problem).placements
    assert kafka != spread
