"""A row of the sticky table as a problem."""

from __future__ import annotations

import re

from streams_protocol.types import TopicPartition
from streams_py.assignment.application_state import ProblemState, TaskDescription
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.java_order import HashSizing, in_hash_order, task_hash
from streams_py.assignment.problem import AssignmentProblem, ClientInput
from tests.support.assignment.scenario_language import ClientRow, clients, tasks


def problem(text: str, wanted: str) -> tuple[list[ClientRow], AssignmentProblem]:
    """Return a problem with ascending clients; tasks are Java hash sets filled in ascending order."""
    named = clients(text.replace(" new", ""))
    own = [dict(re.findall(r"([AS])\{([\d_. ]+)\}", row.words)) for row in named]
    names, _, replicas = wanted.partition(", r=")
    match = re.fullmatch(r"(.*) \(stateful (.*)\)", names)
    every = tasks(match[1] if match else names)
    stateful = tasks(match[2]) if match else every
    return named, AssignmentProblem(
        [
            ClientInput(
                row.process_id,
                row.capacity,
                previous_active=tasks(words.get("A", "")),
                previous_standby=tasks(words.get("S", "")),
            )
            for row, words in zip(named, own)
        ],
        in_hash_order(every, task_hash),
        dict.fromkeys(in_hash_order(stateful, task_hash), 0),
        AssignmentConfigs(acceptable_recovery_lag=0, max_warmup_replicas=1, num_standby_replicas=int(replicas or 0)),
        hash_sizing=HashSizing.JDK_18_AND_OLDER,
    )


def state(given: AssignmentProblem) -> ProblemState:
    return ProblemState(
        given,
        lambda: [
            TaskDescription.of(
                task,
                stores=["store"] if task in given.end_offset_sums else [],
                changelogs=[TopicPartition("log", task.partition)] if task in given.end_offset_sums else [],
            )
            for task in given.tasks
        ],
    )
