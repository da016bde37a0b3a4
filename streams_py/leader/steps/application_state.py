"""KIP-924's ``ApplicationState`` for a custom assignor, built from one assign step.

"Stateful" has two meanings here. ``TaskInfo.is_stateful`` means that the task has a state store, with or without a
changelog. Lags exist only for tasks with a changelog.

The leader's metadata does not have changelog topics, and has no replicas for repartition topics. Their racks are known
only if the topics were described before (:func:`undescribed_topics`). Racks of topics that cannot be described stay
unknown.
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


def application_state(
    problem: AssignmentProblem,
    table: TaskTable,
    topics: Mapping[str, Sequence[PartitionInfo]],
    described: Mapping[str, tuple[PartitionInfo, ...] | AdminError] = MappingProxyType({}),
) -> ProblemState:
    """Return the state that the assignor may read.

    ``described`` are the internal topics that were described for their racks.
    """
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
    """Return the topics to describe so that an assignor can know all racks."""
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
