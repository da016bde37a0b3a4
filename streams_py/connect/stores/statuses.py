"""The status topic: the state of every job. Like Kafka's ``KafkaStatusBackingStore``."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from streams_protocol.connect import TaskId
from streams_protocol.types import TopicPartition
from streams_py.connect.stores.log import LoggedStore, TopicLog
from streams_py.ports import RawRecord
from streams_py.system.foreign_json import loads as loads_foreign

_log = logging.getLogger("streams_py.connect")

Job: TypeAlias = "str | TaskId"
"""A connector (its name) or a task."""

_CONNECTOR = "status-connector-"
_TASK = "status-task-"
_DIGITS_MAX = 9


class JobState(Enum):
    """The state of a job.

    STOPPED is for connectors only. DESTROYED is never stored: it removes the status.
    """

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"
    DESTROYED = "DESTROYED"


_CAREFUL = (JobState.UNASSIGNED, JobState.FAILED)
"""States that are written only if no newer status of another worker is known."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job's status.

    ``trace`` is the error of a failed job. ``generation`` is the group's when it was written.
    """

    state: JobState
    worker_id: str
    generation: int
    trace: str | None = None


class StatusStore(LoggedStore):
    """The newest status of every job."""

    def __init__(self, make_log: Callable[[Callable[[RawRecord], None]], TopicLog], partitions: int) -> None:
        super().__init__(make_log, partitions)
        self._known: dict[Job, JobStatus] = {}
        self._sequence: dict[Job, int] = {}

    def get(self, job: Job) -> JobStatus | None:
        with self._lock:
            return self._known.get(job)

    def tasks_of(self, connector: str) -> dict[TaskId, JobStatus]:
        """Return known statuses of a connector's tasks, in ascending order."""
        with self._lock:
            found = {j: s for j, s in self._known.items() if isinstance(j, TaskId) and j.connector == connector}
        return dict(sorted(found.items()))

    def jobs(self) -> set[Job]:
        """Return all jobs with a status."""
        with self._lock:
            return set(self._known)

    def put(self, job: Job, status: JobStatus) -> None:
        """Queue a status. DESTROYED removes it. An outdated UNASSIGNED or FAILED is not written."""
        with self._lock:
            known = self._known.get(job)
            outdated = (
                known is not None and known.worker_id != status.worker_id and known.generation > status.generation
            )
            if status.state in _CAREFUL and outdated:
                return
            sequence = self._sequence[job] = self._sequence.get(job, 0) + 1
        self._send(job, status, sequence)

    def flush(self, timeout_s: float) -> bool:
        """Wait until all queued statuses are in the topic."""
        return self._log.flush(timeout_s)

    def _send(self, job: Job, status: JobStatus, sequence: int) -> None:
        def delivered(error: Exception | None, _partition: TopicPartition) -> None:
            if error is None:
                return
            with self._lock:
                current = self._sequence.get(job) == sequence
            _log.warning("failed to write status %s of %s: %s", status.state.value, job, error)
            if current and getattr(error, "retriable", False):
                threading.Thread(target=self._send, args=(job, status, sequence), daemon=True).start()

        self._log.send(_key(job), _value(status), delivered)

    def _read(self, record: RawRecord) -> None:
        job = _job((record.key() or b"").decode(errors="replace"))
        if job is None:
            return
        value = record.value()
        if value is None:
            with self._lock:
                self._known.pop(job, None)
            return
        try:
            content: dict[str, Any] = loads_foreign(value)
            status = JobStatus(
                JobState(content["state"]),
                str(content["worker_id"]),
                int(content["generation"]),
                None if content.get("trace") is None else str(content["trace"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            _log.warning("the status record of %s is not valid; ignoring it: %r", job, error)
            return
        with self._lock:
            known = self._known.get(job)
            late = (
                isinstance(job, TaskId)
                and known is not None
                and known.state is JobState.RUNNING
                and status.state is JobState.UNASSIGNED
                and known.worker_id != status.worker_id
                and known.generation >= status.generation
            )
            if not late:  # the old worker writes UNASSIGNED after the new one has started the task
                self._known[job] = status


def _key(job: Job) -> bytes:
    return (f"{_TASK}{job}" if isinstance(job, TaskId) else f"{_CONNECTOR}{job}").encode()


def _job(key: str) -> Job | None:
    if key.startswith(_CONNECTOR):
        return key[len(_CONNECTOR) :]
    if key.startswith(_TASK):
        name, _, number = key[len(_TASK) :].rpartition("-")
        if name and number.isdecimal() and len(number) <= _DIGITS_MAX:
            return TaskId(name, int(number))
    return None


def _value(status: JobStatus) -> bytes | None:
    if status.state is JobState.DESTROYED:
        return None
    content = {
        "state": status.state.value,
        "trace": status.trace,
        "worker_id": status.worker_id,
        "generation": status.generation,
    }
    return json.dumps(content, separators=(",", ":")).encode()
