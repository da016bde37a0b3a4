"""Processes of this host that have ended while the group still has their members.

The group waits for such a member until its session timeout, unless an instance of the application removes it. The
proofs are explained in :mod:`streams_py.state.directory.member_record`. This module only reads: it takes no lock and
removes no member.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass

from streams_py.errors import StateError
from streams_py.state.directory.instances import ask_if_unlocked, instance_directories
from streams_py.state.directory.member_record import MemberRecord, read_record
from streams_py.system.printable import text_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EndedProcess:
    """A process that has ended, and its members.

    Attributes:
        pid: Its process id on this host; None: unknown.
        member_ids: Ids of its members in the group, in order.
        stopped: Whether it has stopped cleanly. Its members then stay in the group until its restart.
    """

    pid: int | None
    member_ids: tuple[str, ...]
    stopped: bool


def ended_processes(
    group: str, cluster_id: str | None, present: Iterable[str], state_dirs: Iterable[str]
) -> tuple[EndedProcess, ...]:
    """Return the processes of this host that have ended, and that have members in the group.

    Args:
        group: The ``application.id``.
        cluster_id: Id of the group's cluster; None: unknown, so that no record counts.
        present: Ids of the members of the group.
        state_dirs: Directories below which instances of the application may have their directories.
    """
    if not cluster_id or group in ("", os.curdir, os.pardir) or os.sep in group or "\0" in group:
        return ()  # the group is not a directory's name, so it is not an application.id
    members = frozenset(present)
    found = []
    for state_dir in state_dirs:
        for directory in _directories(os.path.join(state_dir, group)):
            record = _record(directory)
            if record is None or record.group != group or record.cluster_id != cluster_id:
                continue
            ids = dict.fromkeys((*record.former, *(member.member_id for member in record.members)))
            left = tuple(sorted(members & ids.keys()))
            if left and ask_if_unlocked(directory, record.has_ended):
                pid = None if record.process is None else record.process.pid
                found.append(EndedProcess(pid, left, record.stopped))
    return tuple(found)


def _directories(application: str) -> list[str]:
    try:
        return instance_directories(application)
    except StateError as error:
        _log.debug("instances below %s are not shown: %s", application, text_of(error))
        return []


def _record(directory: str) -> MemberRecord | None:
    try:
        return read_record(directory)
    except (OSError, ValueError) as error:
        _log.debug("the record of group members in %s is ignored: %s", directory, text_of(error))
        return None
