"""Metrics of a worker, with Kafka Connect's names where it has the same metric."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.jobs import Jobs
from streams_py.connect.group.member import GroupMember
from streams_py.connect.stores.statuses import Job, JobState
from streams_py.connect.worker.jobs import RunningJobs

Metrics: TypeAlias = "dict[str, dict[str, int | str]]"
"""Metrics by metric group, as in ``KafkaStreams.metrics()``."""


class WorkerCounters:
    """Counters since the worker's start.

    Thread-safe: each counter is changed by one thread, or only incremented under the interpreter's lock.
    """

    def __init__(self) -> None:
        self.rebalances = 0
        self.unexpected = 0
        self._generation = -1
        self._failures: Counter[str] = Counter()
        self._known_unexpected = Jobs()

    def completed(self, generation: int) -> None:
        """Count a completed join. The broker may report it twice."""
        if generation != self._generation:
            self._generation = generation
            self.rebalances += 1

    def note_unexpected(self, jobs: Jobs) -> Jobs:
        """Count jobs that this worker runs although its lists apply and lack them.

        Returns the new ones.
        """
        new, self._known_unexpected = jobs - self._known_unexpected, jobs
        self.unexpected += len(new.connectors) + len(new.tasks)
        return new

    def reported(self, job: Job, state: JobState) -> None:
        if state is JobState.FAILED:
            self._failures["task" if isinstance(job, TaskId) else "connector"] += 1

    def failures(self, kind: str) -> int:
        """Return the number of failures of ``connector`` or ``task``."""
        return self._failures[kind]


def worker_metrics(member: GroupMember, jobs: RunningJobs, counters: WorkerCounters) -> Metrics:
    """Return all present metrics."""
    held = member.held
    alive = jobs.alive
    unassignable = member.unassignable
    return {
        "connect-worker-metrics": {
            "connector-count": len(alive.connectors),
            "task-count": len(alive.tasks),
            "assigned-connectors": 0 if held is None else len(held.connectors),
            "assigned-tasks": 0 if held is None else len(held.tasks),
            "connector-failures-total": counters.failures("connector"),
            "task-failures-total": counters.failures("task"),
        },
        "connect-worker-rebalance-metrics": {
            "connect-protocol": member.mode.name.lower(),
            "leader-name": "" if held is None else held.leader_url,
            "completed-rebalances-total": counters.rebalances,
            "unassignable-jobs": len(unassignable.connectors) + len(unassignable.tasks),
            "unexpected-static-assignments": counters.unexpected,
        },
    }
