"""Conversion of an assignor's answer to values that can be trusted.

User code may return anything: values of wrong types, ids without a hash, containers whose iteration raises or never
ends, dates out of range. It may also keep the returned objects and change them later. So the answer is *copied*, item
by item, into plain values of this library's types. If something cannot be copied, an AssignorError names the class, the
client and the task. Reading the answer runs user code (a container's ``__iter__``, an id's ``__eq__``). So it must run
under the same time limit as :meth:`~streams_py.assignment.api.TaskAssignor.assign` itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.api import AssignedTask, KafkaStreamsAssignment, TaskAssignment, TaskType
from streams_py.errors import AssignorError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_ENTRIES_MAX: Final = 1_000_000
"""Maximum number of entries of an answer, more than any group has clients.

It stops an iteration that never ends.
"""
_NUMBER_MAX: Final = 2**31 - 1  # sub-topologies and partitions are 32-bit numbers on the wire


def described(error: BaseException) -> str:
    """Return ``Type: text``. The text of a user's exception may itself raise an error."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__} (without a usable text)"


def trusted_answer(name: str, returned: object) -> TaskAssignment:
    """Return a copy of the answer of the assignor ``name``.

    The function :func:`~streams_py.assignment.validation.validate_task_assignment` checks whether the answer is
    *valid*.

    Raises:
        AssignorError: the answer or a part of it has a wrong type.
    """
    try:
        return TaskAssignment(_entries(name, returned))
    except AssignorError:
        raise
    except Exception as error:
        raise AssignorError(
            f"task assignor {name} returned an answer that cannot be read ({described(error)}); "
            "assign must return a TaskAssignment with a list of KafkaStreamsAssignment in it"
        ) from error


def _entries(name: str, returned: object) -> list[KafkaStreamsAssignment]:
    if not isinstance(returned, TaskAssignment):
        raise AssignorError(f"task assignor {name} returned {_shown(returned)}; assign must return a TaskAssignment")
    given: object = returned.assignment
    if not isinstance(given, Collection) or isinstance(given, str | bytes | Mapping):
        raise AssignorError(
            f"task assignor {name} returned a TaskAssignment of {_shown(given)}; "
            "give it a list with one KafkaStreamsAssignment for each client"
        )
    entries: list[KafkaStreamsAssignment] = []
    for entry in given:
        if not isinstance(entry, KafkaStreamsAssignment):
            raise AssignorError(
                f"task assignor {name} returned a TaskAssignment with {_shown(entry)} in it; "
                "give it a list with one KafkaStreamsAssignment for each client"
            )
        if len(entries) == _ENTRIES_MAX:
            raise AssignorError(f"task assignor {name} returned more than {_ENTRIES_MAX} entries")
        entries.append(_entry(name, entry))
    return entries


def _entry(name: str, entry: KafkaStreamsAssignment) -> KafkaStreamsAssignment:
    client = _process_id(entry.process_id)
    if client is None:
        raise AssignorError(
            f"task assignor {name} returned an entry for client {_shown(entry.process_id)}; "
            "use the process ids of ApplicationState.kafka_streams_states"
        )
    tasks: dict[TaskId, AssignedTask] = {}
    try:
        for key, assigned in entry.tasks.items():
            task = _assigned(key, assigned)
            if task is None:
                raise AssignorError(
                    f"task assignor {name} gave client {client} {_shown(assigned)} as task {_shown(key)}; "
                    "use AssignedTask(TaskId, TaskType) with the ids of ApplicationState.all_tasks"
                )
            tasks[task.id] = task
        deadline = _instant(entry.followup_rebalance_deadline)
    except AssignorError:
        raise
    except _NoInstantError as error:
        raise AssignorError(f"task assignor {name}, client {client}: {error}") from error.__cause__
    except Exception as error:
        raise AssignorError(
            f"task assignor {name}: the entry for client {client} cannot be read ({described(error)})"
        ) from error
    copy = KafkaStreamsAssignment(client, tasks.values())
    return copy if deadline is None else copy.with_followup_rebalance(deadline)


def _process_id(value: object) -> ProcessId | None:
    if not isinstance(value, ProcessId) or not (_is_int(value.high) and _is_int(value.low)):
        return None
    return value if type(value) is ProcessId else ProcessId(value.id)


def _assigned(key: object, value: object) -> AssignedTask | None:
    if not isinstance(value, AssignedTask) or not isinstance(value.type, TaskType):
        return None
    task = _task_id(value.id)
    if task is None or _task_id(key) != task:
        return None
    return value if type(value) is AssignedTask and task is value.id else AssignedTask(task, value.type)


def _task_id(value: object) -> TaskId | None:
    """Return the id itself if it is a plain, immutable one: a hundred thousand ids are common."""
    if not isinstance(value, TaskId) or type(value.name) is not str:
        return None
    if not all(_is_int(number) and 0 <= number <= _NUMBER_MAX for number in value[1:]):
        return None
    return value if type(value) is TaskId else TaskId(value.subtopology, value.partition, value.name)


def _is_int(value: object) -> bool:
    return type(value) is int


class _NoInstantError(Exception):  # never leaves this module: becomes an AssignorError
    """A follow-up deadline that is not a valid time. The text says why and what to use instead."""


def _instant(deadline: object) -> datetime | None:
    """Return the time in UTC, in whole milliseconds."""
    if deadline is None:
        return None
    advice = "use datetime.now(timezone.utc) + delay"
    if not isinstance(deadline, datetime):
        raise _NoInstantError(f"the follow-up deadline is {_shown(deadline)}; {advice}")
    if deadline.tzinfo is None or deadline.utcoffset() is None:
        raise _NoInstantError(f"the follow-up deadline {deadline.isoformat()} has no time zone; {advice}")
    try:
        return _EPOCH + (deadline - _EPOCH) // _MILLISECOND * _MILLISECOND
    except OverflowError as error:
        raise _NoInstantError(f"the follow-up deadline {deadline.isoformat()} is out of range") from error


def _shown(value: object) -> str:
    try:
        text = f"{value!r:.100}"
    except Exception:  # the repr of a user's object may fail, too
        text = "without a usable repr"
    return f"a {type(value).__name__}, {text}"
