"""KIP-924's ``ApplicationState`` for a custom assignor, over the values of this assign step.

"Stateful" has two meanings here: ``TaskInfo.is_stateful`` asks for a state store, logged or not, while lags exist only
for tasks with a changelog.

Racks of partitions are looked up on first demand, because that may need a request to the brokers: changelog topics, and
topics whose metadata knows no replicas (repartition topics), are described; the rest is in the metadata. When they
cannot be described, their racks stay unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from streams_protocol.types import TopicPartition
from streams_py.assignment.application_state import ProblemState, RackLookup, TaskDescription
from streams_py.assignment.problem import AssignmentProblem
from streams_py.leader.effects import DescribeNow
from streams_py.leader.racks import named_racks
from streams_py.leader.tasks import TaskTable
from streams_py.ports import AdminError, PartitionInfo

__all__ = ["application_state"]


def application_state(
    problem: AssignmentProblem,
    table: TaskTable,
    topics: Mapping[str, Sequence[PartitionInfo]],
    describe: DescribeNow | None = None,
) -> ProblemState:
    """What the assignor may look at. Without ``describe``, racks of internal topics stay unknown."""

    def look_up() -> Mapping[TopicPartition, frozenset[str]]:
        return _racks(table, topics, describe)

    lookup = RackLookup(look_up)

    def describe_tasks() -> Iterable[TaskDescription]:
        for task in problem.tasks:
            changelogs = (*table.changelogs.get(task, ()), *table.source_changelogs.get(task, ()))
            yield TaskDescription.of(
                task,
                stores=table.stores[task.subtopology],
                sources=table.inputs[task],
                changelogs=changelogs,
                racks=lookup,
            )

    return ProblemState(problem, describe_tasks)


def _racks(
    table: TaskTable, topics: Mapping[str, Sequence[PartitionInfo]], describe: DescribeNow | None
) -> dict[TopicPartition, frozenset[str]]:
    inputs = {tp.topic for tp in table.task_of}
    wanted = {tp.topic for parts in table.changelogs.values() for tp in parts}
    wanted |= {name for name in inputs if any(not info.replicas for info in topics.get(name, ()))}
    known: dict[str, Sequence[PartitionInfo]] = dict(topics)
    if wanted and describe is not None:
        answers = describe(tuple(sorted(wanted)))
        known |= {name: answer for name, answer in answers.items() if not isinstance(answer, AdminError)}
    return {
        TopicPartition(info.topic, info.partition): named_racks(info)
        for infos in known.values()
        for info in infos
        if info.replicas
    }
