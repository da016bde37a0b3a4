"""KIP-924's ``ApplicationState`` for a custom assignor, over the values of this assign step.

"Stateful" has two meanings here: ``TaskInfo.is_stateful`` asks for a state store, logged or not, while lags exist only
for tasks with a changelog.

Racks of changelog topics, and of topics whose metadata knows no replicas (repartition topics), are known when those
were described before (:func:`undescribed_topics`); the rest is in the metadata. When they cannot be described, their
racks stay unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from streams_protocol.types import TopicPartition
from streams_py.assignment.application_state import ProblemState, RackLookup, TaskDescription
from streams_py.assignment.problem import AssignmentProblem
from streams_py.leader.steps.racks import named_racks
from streams_py.leader.steps.tasks import TaskTable
from streams_py.ports import AdminError, PartitionInfo

__all__ = ["application_state", "undescribed_topics"]


def application_state(
    problem: AssignmentProblem,
    table: TaskTable,
    topics: Mapping[str, Sequence[PartitionInfo]],
    described: Mapping[str, tuple[PartitionInfo, ...] | AdminError] = MappingProxyType({}),
) -> ProblemState:
    """What the assignor may look at. ``described``: internal topics that were looked up for their racks."""
    lookup = RackLookup(lambda: _racks(topics, described))

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


def undescribed_topics(table: TaskTable, topics: Mapping[str, Sequence[PartitionInfo]]) -> tuple[str, ...]:
    """Topics to describe before an assignor can know all racks."""
    inputs = {tp.topic for tp in table.task_of}
    wanted = {tp.topic for parts in table.changelogs.values() for tp in parts}
    return tuple(sorted(wanted | {name for name in inputs if any(not info.replicas for info in topics.get(name, ()))}))


def _racks(
    topics: Mapping[str, Sequence[PartitionInfo]], described: Mapping[str, tuple[PartitionInfo, ...] | AdminError]
) -> dict[TopicPartition, frozenset[str]]:
    known: dict[str, Sequence[PartitionInfo]] = dict(topics)
    known |= {name: answer for name, answer in described.items() if not isinstance(answer, AdminError)}
    return {
        TopicPartition(info.topic, info.partition): named_racks(info)
        for infos in known.values()
        for info in infos
        if info.replicas
    }
