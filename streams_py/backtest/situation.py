"""Converts a recorded situation to the input of an assignor, with the leader's values in the leader's order.

The sticky assignors depend on the order of clients and tasks. In Kafka Streams this is the order of Java's hash maps,
which follows from the ids, so it can be reproduced. Racks come from the record and are not looked up.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from streams_protocol import UNKNOWN_OFFSET_SUM
from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.api import ApplicationState
from streams_py.assignment.configs import STRATEGY_NONE, AssignmentConfigs
from streams_py.assignment.java_order import HashSizing, in_hash_order, process_hash
from streams_py.assignment.problem import AssignmentProblem, ClientInput, RackOptimiser, lag_from_offsets
from streams_py.backtest.inputs import FUTURE_CLIENT, ReplayClient, ReplayInput
from streams_py.config.endpoint import parse_endpoint
from streams_py.errors import ConfigError
from streams_py.events.model import SubtopologySlice
from streams_py.leader.steps.application_state import application_state
from streams_py.leader.steps.decode import consumer_order
from streams_py.leader.steps.racks import RackQuestion
from streams_py.leader.steps.tasks import TaskTable, task_table
from streams_py.ports import PartitionInfo
from streams_py.topology.physical.metadata import InternalTopic, InternalTopicKind, SubtopologyTopics, TopologyMetadata

_SIZING: Final = HashSizing.JDK_19_AND_NEWER
_FUTURE_PROCESS: Final = ProcessId(uuid.uuid5(uuid.NAMESPACE_DNS, FUTURE_CLIENT))
_A_BROKER: Final = (0,)  # brokers of a partition are not recorded; one broker means that its racks are known


def configs_of(recorded: Mapping[str, Any], overrides: Mapping[str, object]) -> AssignmentConfigs:
    """Return the recorded settings, overridden by a candidate's. Raises ConfigError for a value that is not valid."""
    return AssignmentConfigs.of({**recorded, **overrides})


class Plan:
    """Tasks, topics and racks. They do not change when clients join or leave."""

    def __init__(self, subs: Sequence[SubtopologySlice]) -> None:
        self.topics = _topics(subs)
        self.table: TaskTable = task_table(_topology(subs), self.topics, hash_sizing=_SIZING)
        self.weights: dict[TaskId, float] = {
            TaskId(int(piece.sub), piece.first + n): weight
            for piece in subs
            for n, weight in enumerate(piece.weight or ())
        }
        self.knows_racks = any(piece.racks is not None for piece in subs)


def ends_of(subs: Sequence[SubtopologySlice]) -> dict[TaskId, int]:
    """Return the sum of end offsets of each task with a changelog; -3 if it is unknown."""
    return {
        TaskId(int(piece.sub), piece.first + n): piece.end[n] if piece.end is not None else UNKNOWN_OFFSET_SUM
        for piece in subs
        if piece.logged
        for n in range(piece.count)
    }


class Situation:
    """A recorded situation with a candidate's settings, as the input of an assignor.

    ``names`` maps process ids to the recorded names of clients.
    """

    def __init__(
        self, replay: ReplayInput, overrides: Mapping[str, object] | None = None, plan: Plan | None = None
    ) -> None:
        self.replay = replay
        self.plan = plan if plan is not None else Plan(replay.subs)
        self.configs = configs_of(replay.configs, overrides or {})
        ends = ends_of(replay.subs)
        self.ends: dict[TaskId, int] = {task: ends[task] for task in self.plan.table.stateful}
        self._process_of = {client.client: _process_id(client.client) for client in replay.clients}
        self.names: dict[ProcessId, str] = {process: name for name, process in self._process_of.items()}
        self.clients: dict[str, ReplayClient] = {client.client: client for client in replay.clients}

    def process_id(self, name: str) -> ProcessId:
        """Return the process id of a client."""
        return self._process_of[name]

    @cached_property
    def problem(self) -> AssignmentProblem:
        """The input of a built-in assignor, including racks."""
        return replace(self.fresh_problem(), racks=self._racks())

    def fresh_problem(self) -> AssignmentProblem:
        """Create the input without racks. The caller may change it without changing the situation."""
        return AssignmentProblem(
            clients=[self._client_input(self.clients[self.names[process]]) for process in self._in_java_order()],
            tasks=self.plan.table.tasks,
            end_offset_sums=dict(self.ends),
            configs=self.configs,
            hash_sizing=_SIZING,
        )

    def application_state(self, problem: AssignmentProblem) -> ApplicationState:
        """Return the problem in the form of KIP-924, with the recorded racks."""
        return application_state(problem, self.plan.table, self.plan.topics)

    @cached_property
    def lags(self) -> dict[str, dict[TaskId, int]]:
        """Client -> lag of each stateful task that it reported."""
        ends = self.ends
        return {
            name: {
                task: lag_from_offsets(value, ends[task])
                for task, value in zip(client.sums.tasks, client.sums.v, strict=True)
                if task in ends
            }
            for name, client in self.clients.items()
        }

    def lag(self, client: str, task: TaskId) -> int | None:
        """Return the lag of a client in a task, in records.

        -2 if the task runs on the client. None if the lag is unknown, or the task has no changelog.
        """
        end = self.ends.get(task)
        if end is None:
            return None
        lag = self.lags[client].get(task, end)
        return None if lag == UNKNOWN_OFFSET_SUM else lag

    @staticmethod
    def reported_by(client: ReplayClient) -> dict[str, set[TaskId]]:
        """Return the tasks that each consumer of a client reported, in the leader's order of consumers.

        :mod:`streams_py.backtest.inputs` describes the rule.
        """
        consumers = sorted((consumer.member for consumer in client.consumers), key=consumer_order)
        reported: dict[str, set[TaskId]] = {member: set() for member in consumers}
        owner = {task: consumer.member for consumer in client.consumers for task in consumer.owned}
        for task in client.sums.tasks:
            reported[owner.get(task, consumers[0])].add(task)
        return reported

    def _in_java_order(self) -> list[ProcessId]:
        """Return process ids in the order of the leader's hash map, which is filled in the order of member ids."""
        members = sorted(
            ((consumer.member, client.client) for client in self.replay.clients for consumer in client.consumers),
            key=lambda pair: consumer_order(pair[0]),
        )
        filled = dict.fromkeys(self._process_of[name] for _, name in members)
        return in_hash_order(filled, process_hash)

    def _client_input(self, client: ReplayClient) -> ClientInput:
        reported = self.reported_by(client)
        return ClientInput(
            process_id=self._process_of[client.client],
            capacity=len(reported),
            tags=dict(client.tags),
            rack=client.rack,
            previous_active=list(client.prev_active),
            previous_standby=list(client.prev_standby),
            lags=dict(self.lags[client.client]),
            consumers=tuple(reported),
            consumer_tasks=reported,
            host=_host(client.host),
        )

    def _racks(self) -> RackOptimiser | None:
        configs, replay = self.configs, self.replay
        if configs.rack_aware_assignment_strategy == STRATEGY_NONE or not replay.lag_ok:
            return None
        racks = {self._process_of[client.client]: client.rack for client in replay.clients}
        known = {process: rack for process, rack in sorted(racks.items()) if rack}
        if len(known) < len(racks):
            return None
        return RackQuestion(known, (), self.plan.table, self.plan.topics, configs).answer({})[0]


def _process_id(name: str) -> ProcessId:
    if name == FUTURE_CLIENT:
        return _FUTURE_PROCESS
    try:
        return ProcessId.parse(name)
    except ValueError:
        return ProcessId(uuid.uuid5(uuid.NAMESPACE_DNS, name))  # a user-defined name, in a test or an experiment


def _host(text: str | None) -> Any:
    try:
        return parse_endpoint(text)
    except ConfigError:
        return None


def _topology(subs: Sequence[SubtopologySlice]) -> TopologyMetadata:
    made = {}
    for piece in subs:
        sources = frozenset(piece.sources)
        own = [name for name in piece.changelogs if name not in sources]
        made[int(piece.sub)] = SubtopologyTopics(
            source_topics=sources,
            sink_topics=frozenset(),
            repartition_sources={},
            changelogs={name: InternalTopic(name, InternalTopicKind.CHANGELOG) for name in own},
            source_changelogs=frozenset(piece.changelogs) & sources,
            stores=frozenset(piece.stores),
        )
    return TopologyMetadata(made)


def _topics(subs: Sequence[SubtopologySlice]) -> dict[str, tuple[PartitionInfo, ...]]:
    """Return the partitions of every topic with their racks.

    If a topic has fewer partitions than its sub-topology has tasks, its last recorded partitions have no racks.
    """
    topics: dict[str, tuple[PartitionInfo, ...]] = {}
    for piece in subs:
        for name in (*piece.sources, *piece.changelogs):
            racks: list[frozenset[str]] = [frozenset()] * piece.count
            recorded = piece.racks.p.get(name) if piece.racks is not None else None
            if piece.racks is not None and recorded is not None:
                names = piece.racks.names
                racks = [frozenset(names[place] for place in of) for of in recorded]
                while len(racks) > 1 and not racks[-1] and any(racks):
                    racks.pop()
            if len(racks) > len(topics.get(name, ())):
                topics[name] = tuple(
                    PartitionInfo(name, number, None, _A_BROKER if of else (), of) for number, of in enumerate(racks)
                )
    return topics
