"""Logs for whom a member waits while its JoinGroup request is in flight, and for how long at most.

The coordinator answers JoinGroup once all members have joined. A living member joins with its next heartbeat. A member
whose process has ended without leaving the group keeps the others waiting until its session timeout. Such a member is
named if its process has left a record on this host (:mod:`streams_py.state.directory.member_record`), for example a
process that has stopped and was not started again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Final

from streams_py.errors import StateError, StreamsError
from streams_py.ports import GroupAdmin
from streams_py.state.directory.instances import ask_if_unlocked, instance_directories
from streams_py.state.directory.member_record import RECORD_FILE, read_record
from streams_py.system.printable import printable, text_of

_log = logging.getLogger(__name__)

_FIRST_S: Final = 4.0
"""Wait that is not logged, in seconds. The default of ``heartbeat.interval.ms`` is 3 s."""
_INTERVAL_S: Final = 10.0
_SHOWN_MAX: Final = 3


class JoinWait:
    """Reports the waits of one instance's members. Thread-safe.

    Args:
        connect: Returns a client for requests about groups. It is closed after each report.
        group: ``application.id``.
        session_s: ``session.timeout.ms``, in seconds.
        own: Returns the ids of this instance's members.
        application: Returns the directory of the application; None without one.
    """

    def __init__(
        self,
        connect: Callable[[], GroupAdmin],
        group: str,
        session_s: float,
        own: Callable[[], Collection[str]],
        application: Callable[[], str | None],
    ) -> None:
        self._connect = connect
        self._group = group
        self._session_s = session_s
        self._own = own
        self._application = application
        self._reporting = threading.Lock()
        self._reported_s = -float("inf")

    def note(self, waited_s: float) -> None:
        """Report the wait of a member on a background thread, if a report is due. Never blocks.

        Args:
            waited_s: Time since its JoinGroup was sent, in seconds.
        """
        if waited_s < _FIRST_S or time.monotonic() - self._reported_s < _INTERVAL_S:
            return
        if self._reporting.acquire(blocking=False):
            self._reported_s = time.monotonic()
            threading.Thread(target=self._report_and_release, name="join-wait", daemon=True).start()

    def _report_and_release(self) -> None:
        try:
            self.report()
        except Exception as error:
            level = logging.DEBUG if isinstance(error, StreamsError) else logging.WARNING
            _log.log(level, "group %s: its members are unknown: %s", self._group, text_of(error))
        finally:
            self._reporting.release()

    def report(self) -> None:
        """Log which members the group has besides those of this instance.

        Raises:
            StreamsError: The group cannot be described.
        """
        admin = self._connect()
        try:
            group = admin.find_group(self._group)
        finally:
            admin.close()
        own = frozenset(self._own())
        others = [] if group is None else [member for member in group.members if member.member_id not in own]
        former = dict(self._find_former())
        stopped = sorted(member.member_id for member in others if member.member_id in former)
        if stopped:
            left_s = max(former[member_id] for member_id in stopped)
            _log.info(
                "group %s: waiting for %s of a former run, up to %.0f s; start its process again with its state.dir, "
                "or set leave.group.on.close=always before the next stop",
                self._group,
                _listed(stopped),
                left_s,
            )
        elif others:
            _log.info(
                "group %s: waiting for other members to join; the group has %s; up to %.0f s if one of them has died",
                self._group,
                _listed(sorted(f"{member.member_id} at {member.client_host}" for member in others)),
                self._session_s,
            )

    def _find_former(self) -> Iterator[tuple[str, float]]:
        """Yield the members on record of ended processes of this host, and the seconds until their session timeout."""
        application = self._application()
        if application is None:
            return
        try:
            directories = instance_directories(application)
        except StateError as error:
            _log.debug("other instances are unknown: %s", text_of(error))
            return
        for directory in directories:
            try:
                record = read_record(directory)
                if record is None or record.group != self._group or not ask_if_unlocked(directory, record.has_ended):
                    continue
                age_s = time.time() - os.stat(os.path.join(directory, RECORD_FILE)).st_mtime
            except (OSError, ValueError) as error:
                _log.debug("the record of group members in %s is ignored: %s", directory, text_of(error))
                continue
            left_s = min(self._session_s, max(0.0, self._session_s - age_s))
            ids = (*record.former, *(member.member_id for member in record.members))
            yield from ((member_id, left_s if record.stopped else self._session_s) for member_id in ids)


def _listed(names: list[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:_SHOWN_MAX])
    more = f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else ""
    return f"member{'s' if len(names) > 1 else ''} {shown}{more}"
