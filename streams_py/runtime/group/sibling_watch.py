"""Instances of one application on one host watch one another, and remove the members of an instance that dies.

They find one another by their directories (:mod:`streams_py.state.directory.instances`). A process with the same pid
namespace is watched with a pidfd, which reports its end immediately. Others are checked every second. The end of a
process is proven as for a predecessor (:mod:`streams_py.state.directory.member_record`), and its lock must be free: if
another process has it already, that process removes its predecessor itself.

The instances do not talk about who removes the members. The one with the first directory does it immediately. The
others follow at intervals, in case it cannot. Removing a member twice does nothing. The supervisor of several
processes watches them in the same way, without a directory. It is the last one to remove members.

A clean stop is not a death: the members of a stopped instance stay, so that its restart moves no tasks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
from collections.abc import Callable
from typing import Final, Protocol

from streams_py.errors import StateError
from streams_py.runtime.group.dead_members import DeadMembers
from streams_py.state.directory.instances import ask_if_unlocked, instance_directories
from streams_py.state.directory.member_record import MemberRecord, read_record
from streams_py.system.printable import text_of
from streams_py.system.process_proof import Life, ProcessIdentity

_log = logging.getLogger(__name__)

_CHECK_S: Final = 1.0
"""Interval of checks for new instances, and for instances without a pidfd."""
_TURN_S: Final = 0.3
"""Time between the removals by two instances."""


class OwnInstance(Protocol):
    """The instance that watches the others."""

    @property
    def directory(self) -> str | None:
        """The directory that this instance has locked; None without one."""

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None until it is known."""


class SiblingWatch:
    """Watches the other instances of the application on this host, on a background thread.

    Args:
        application: The directory of the application, below ``state.dir``.
        own: This instance.
        group: ``application.id``.
        dead: Removes members.
        on_end: Called when another instance has died or stopped. A rebalance follows soon.
    """

    def __init__(
        self,
        application: str,
        own: OwnInstance,
        group: str,
        dead: DeadMembers,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._application = application
        self._own = own
        self._group = group
        self._dead = dead
        self._on_end = on_end
        self._living: set[str] = set()
        self._pidfds: dict[ProcessIdentity, int] = {}
        self._handled: dict[str, MemberRecord] = {}
        self._rank = 0
        self._stopping, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._run, name="sibling-watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, and wait until it has stopped."""
        os.close(self._stop)
        self._thread.join()
        os.close(self._stopping)

    def _run(self) -> None:
        try:
            while not self._wait(_CHECK_S):
                for directory, record in self._look().items():
                    self._remove(directory, record)
        except Exception:
            _log.exception("the watch for instances that die has failed; the group waits for their session timeout")
        finally:
            for pidfd in self._pidfds.values():
                os.close(pidfd)

    def _wait(self, timeout_s: float, *, for_ends: bool = True) -> bool:
        """Wait until a watched process ends, unless ``for_ends`` is False. Return whether to stop."""
        poll = select.poll()
        poll.register(self._stopping, select.POLLIN)
        if for_ends:
            for pidfd in self._pidfds.values():
                poll.register(pidfd, select.POLLIN)
        return any(descriptor == self._stopping for descriptor, _ in poll.poll(timeout_s * 1_000))

    def _look(self) -> dict[str, MemberRecord]:
        """Look at all directories. Return the records of instances that have died, and watch the living ones."""
        died: dict[str, MemberRecord] = {}
        processes: set[ProcessIdentity] = set()
        living: set[str] = set()
        own, has_passed_own, rank = self._own.directory, False, 0
        for directory in self._directories():
            has_passed_own = has_passed_own or directory == own
            record = None if directory == own else self._record(directory)
            if record is None:
                continue
            has_ended = ask_if_unlocked(directory, record.has_ended)
            if has_ended is None:  # another process has the lock, so an instance lives there
                living.add(directory)
                rank += not has_passed_own
                if record.process is not None and record.process.life() is Life.ALIVE:
                    processes.add(record.process)
            elif has_ended and self._handled.get(directory) != record:
                died[directory] = record
        self._watch(processes)
        if self._living - living:
            self._on_end()
        self._living, self._rank = living, rank
        return died

    def _directories(self) -> list[str]:
        try:
            return instance_directories(self._application)
        except StateError as error:
            _log.debug("other instances are not watched: %s", text_of(error))
            return []

    def _record(self, directory: str) -> MemberRecord | None:
        """Return the record in a directory, unless it is another group's, or its instance has stopped cleanly."""
        try:
            record = read_record(directory)
        except (OSError, ValueError) as error:
            _log.debug("the record of group members in %s is ignored: %s", directory, text_of(error))
            return None
        if record is None or record.stopped or record.group != self._group:
            return None
        return record if record.cluster_id == self._own.cluster_id else None

    def _watch(self, living: set[ProcessIdentity]) -> None:
        for process in self._pidfds.keys() - living:
            os.close(self._pidfds.pop(process))
        for process in living - self._pidfds.keys():
            with contextlib.suppress(OSError):  # without a pidfd, the next check notices the end
                self._pidfds[process] = os.pidfd_open(process.pid)

    def _remove(self, directory: str, record: MemberRecord) -> None:
        if self._wait(self._rank * _TURN_S, for_ends=False):
            return
        # First the lock, then the record: an instance that stops cleanly marks its record before it releases the lock.
        if not ask_if_unlocked(directory, record.has_ended) or self._record(directory) != record:
            return  # a new process has the directory, and removes its predecessor itself
        pid = None if record.process is None else record.process.pid
        whose = f"process {'unknown' if pid is None else pid} of this host"
        if self._dead.remove(record.dynamic_ids(), whose, pid=pid):
            self._handled[directory] = record
