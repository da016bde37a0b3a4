"""The members of this instance on record, and the removal of the members of its predecessor.

A process that dies cannot leave its group. So each instance keeps the ids of its members in its directory
(:mod:`streams_py.state.directory.member_record`). The next process with this directory removes them as soon as it has
sent its own JoinGroup request: the group then has one rebalance, in which the tasks return to this instance. It does
not remove them earlier, because a group without members waits ``group.initial.rebalance.delay.ms`` (3 s) when a member
joins, and longer if others join meanwhile.

The instance records the id of a member before it sends a JoinGroup request with this id. So the record is complete
whenever the process dies. An id is not recorded while no broker has reported the cluster's id, or if the record cannot
be written. The group then waits for the session timeout of this member.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable

from streams_py.config.client_keys import member_instance_id
from streams_py.errors import BrokerUnavailableError
from streams_py.runtime.group.dead_members import DeadMembers
from streams_py.state.directory.member_record import (
    LockIdentity,
    MemberRecord,
    RecordedMember,
    mark_stopped,
    read_record,
    write_record,
)
from streams_py.state.directory.run_directory import LockedFolder
from streams_py.system.printable import text_of
from streams_py.system.process_proof import ProcessIdentity

_log = logging.getLogger(__name__)


class OwnMembers:
    """Keeps the record of this instance's members. Thread-safe.

    Args:
        folder: Returns the directory that this instance has locked. It changes if the directory was deleted. None: the
            members are not on record.
        group: ``application.id``.
        cluster_id: Requests the id of the cluster. Raises BrokerUnavailableError.
        dead: Removes the members of the predecessor.
        instance_id: ``group.instance.id``; None unless the members are static.
    """

    def __init__(
        self,
        folder: Callable[[], LockedFolder | None],
        group: str,
        cluster_id: Callable[[], str | None],
        dead: DeadMembers,
        *,
        instance_id: str | None,
    ) -> None:
        self._folder = folder
        self._group = group
        self._ask_cluster_id = cluster_id
        self._dead = dead
        self._instance_id = instance_id
        self._process = ProcessIdentity.of(os.getpid())
        self._lock = threading.Lock()
        self._removing = threading.Lock()
        self._cluster_id: str | None = None
        self._predecessor = self._read_predecessor()
        self._former: tuple[str, ...] = ()  # members of the predecessor, not removed yet
        self._former_pid: int | None = None
        self._members: dict[int, RecordedMember] = {}
        self._written: tuple[str, MemberRecord] | None = None
        self._has_failed = False
        self._is_closed = False

    @property
    def directory(self) -> str | None:
        """The directory that this instance has locked; None without one."""
        folder = self._folder()
        return None if folder is None else folder.path

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None before the first join."""
        return self._cluster_id

    def ids(self) -> frozenset[str]:
        """Return the ids of the members on record."""
        with self._lock:
            return frozenset(member.member_id for member in self._members.values())

    def joining(self, thread: int, member_id: str, generation: int) -> None:
        """Put the member of a thread on record.

        Called before each JoinGroup request of the thread. Never raises errors of brokers or of the disk.

        Args:
            thread: Number of the stream thread.
            member_id: The id in the request; "" if the member has none yet.
            generation: The last generation of the member, or -1.
        """
        with self._lock:
            if self._is_closed or self._folder() is None or not self._know_cluster():
                return
            self._adopt_predecessor()
            if not member_id:
                return
            known = self._members.get(thread)
            if known is not None and known.member_id == member_id and not self._is_moved():
                return
            static_id = member_instance_id(self._instance_id, thread)
            self._members[thread] = RecordedMember(thread, member_id, generation, static_id)
            self._write()

    def remove_predecessor(self) -> None:
        """Remove the predecessor's members, if that is not done yet.

        Called while JoinGroup waits for the group, so that the group is not empty without them. Never raises errors of
        brokers or of the disk.
        """
        if not self._removing.acquire(blocking=False):
            return  # another thread removes them
        try:
            former = self._former
            if not former or self._is_closed:
                return
            pid = self._former_pid
            whose = "the former run of this instance" + ("" if pid is None else f" (process {pid})")
            if not self._dead.remove(former, whose, pid=pid):
                return
            with self._lock:
                self._former = ()
                if self._members and not self._is_closed:
                    self._write()
        finally:
            self._removing.release()

    def close(self) -> None:
        """Note that all members have stopped. The directory must still be locked."""
        with self._lock:
            self._is_closed = True
            if self._written is not None and not self._is_moved():
                # Without the mark, the next process must prove that this process has ended. If it cannot, the group
                # waits for the session timeout.
                with contextlib.suppress(OSError):
                    mark_stopped(*self._written)

    def _know_cluster(self) -> bool:
        if self._cluster_id is None:
            try:
                self._cluster_id = self._ask_cluster_id() or ""
            except BrokerUnavailableError as error:
                _log.debug("members not on record yet: %s", error)
                return False
        return True

    # -- the predecessor -----------------------------------------------------------------------------------------------

    def _read_predecessor(self) -> MemberRecord | None:
        folder = self._folder()
        if folder is None:
            return None
        try:
            found = read_record(folder.path)
            if found is None or found.group != self._group or not found.has_ended(folder.lock.fileno()):
                return None
        except (OSError, ValueError) as error:
            _log.warning("ignoring the record of group members in %s: %s", folder.path, text_of(error))
            return None
        return found

    def _adopt_predecessor(self) -> None:
        """Make the predecessor's members the former members of this instance, unless they are of another cluster."""
        found, self._predecessor = self._predecessor, None
        if found is None:
            return
        if found.cluster_id != self._cluster_id:
            _log.info("ignoring the record of group members: it belongs to cluster %s", found.cluster_id)
            return
        self._former_pid = None if found.process is None else found.process.pid
        self._former = found.dynamic_ids()

    # -- the record ----------------------------------------------------------------------------------------------------

    def _is_moved(self) -> bool:
        """Whether the directory lacks the record, because it was deleted and created again, or writing failed."""
        folder = self._folder()
        if self._written is None or folder is None:
            return True
        path, record = self._written
        return path != folder.path or record.lock != LockIdentity.of(folder.lock.fileno())

    def _write(self) -> None:
        folder = self._folder()
        if folder is None or self._cluster_id is None:
            return
        record = MemberRecord(
            self._group,
            self._cluster_id,
            self._process,
            LockIdentity.of(folder.lock.fileno()),
            tuple(self._members[thread] for thread in sorted(self._members)),
            self._former,
        )
        try:
            write_record(folder.path, record)
        except OSError as error:
            level = logging.DEBUG if self._has_failed else logging.WARNING
            self._has_failed = True
            _log.log(level, "the group members of this instance are not on record: %s", text_of(error))
            return
        self._written = (folder.path, record)
