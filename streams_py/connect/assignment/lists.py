"""``static.connectors`` and ``static.tasks``: the jobs that a worker may run (KIP-987)."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.jobs import Jobs
from streams_py.errors import ConfigError

_log = logging.getLogger("streams_py.connect")

_TASK = re.compile(r"(.+)-(0|[1-9][0-9]*)", re.DOTALL)
_NUMBER_MAX = 2**31 - 1


def parse_static_connectors(value: str | Sequence[str] | None) -> frozenset[str] | None:
    """Parse connector names from comma-separated text or a list.

    None stays None; empty text is an empty list.
    """
    items = _items("static.connectors", value)
    return None if items is None else frozenset(items)


def parse_static_tasks(value: str | Sequence[str] | None) -> frozenset[TaskId] | None:
    """Parse task ids of the form ``connector-number``.

    The tasks need not exist. Raises ConfigError.
    """
    items = _items("static.tasks", value)
    return None if items is None else frozenset(_task(item) for item in items)


def listed_jobs(connectors: Collection[str] | None, tasks: Collection[TaskId] | None) -> Jobs | None:
    """Return both lists as one, or None for a worker without lists, which may run any job."""
    return None if connectors is None and tasks is None else Jobs.of(connectors or (), tasks or ())


def _items(key: str, value: str | Sequence[str] | None) -> list[str] | None:
    if value is None:
        return None
    items = [item for item in map(str.strip, value.split(",")) if item] if isinstance(value, str) else list(value)
    once = list(dict.fromkeys(items))
    if len(once) < len(items):
        repeated = sorted({item for item in items if items.count(item) > 1})
        _log.warning("%s lists %s more than once", key, ", ".join(repeated))
    return once


def _task(item: str) -> TaskId:
    found = _TASK.fullmatch(item)
    if found is None or int(found[2]) > _NUMBER_MAX:
        raise ConfigError(
            f"static.tasks: {item!r} is not a task; use connector-number, for example orders-0 (no leading zeros)"
        )
    return TaskId(found[1], int(found[2]))
