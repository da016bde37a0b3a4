"""Removes members of the group whose process has ended, so that the next rebalance does not wait for them.

A group removes a silent member only after its session timeout. Any client with READ permission on the group may send
LeaveGroup for another member. The caller has proven that the process has ended
(:mod:`streams_py.state.directory.member_record`). A member that has left already is unknown to the group, so removing a
member twice does nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final

from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports import GroupAdmin
from streams_py.system.printable import named, text_of

_log = logging.getLogger(__name__)

_REASON: Final = "the process of this member has ended"


class DeadMembers:
    """Removes dead members from one group. Thread-safe.

    Args:
        connect: Returns a client for requests about groups. It is closed after each removal, because removals are rare.
        group: ``application.id``.
        on_removed: Called with the number of the process (None: unknown) and the removed members. Must not raise.
        spares_last: Whether members stay while the group has no others. No member could take their tasks over, and
            their restart would wait for the initial rebalance delay of an empty group.
    """

    def __init__(
        self,
        connect: Callable[[], GroupAdmin],
        group: str,
        on_removed: Callable[[int | None, Collection[str]], None] = lambda pid, members: None,
        *,
        spares_last: bool = False,
    ) -> None:
        self._spares_last = spares_last
        self._connect = connect
        self._group = group
        self._on_removed = on_removed
        self._lock = threading.Lock()
        self.removed = 0
        """Count of members that this instance has removed."""

    def remove(self, member_ids: Collection[str], whose: str, *, pid: int | None = None) -> bool:
        """Remove dynamic members. Never raises an error: without the removal, the group waits a session timeout.

        Args:
            member_ids: Their ids. Ids that the group does not have are ignored.
            whose: Their process, for the log: "a former run of this instance (process 4711)".
            pid: The number of their process on its host; None: unknown.

        Returns:
            False if no broker answered, or the members are spared, so that another attempt is useful.
        """
        if not member_ids:
            return True
        with self._lock:
            try:
                admin = self._connect()
                try:
                    if self._spares_last and self._are_last(admin, member_ids):
                        return False
                    removed = admin.remove_dead_members(self._group, member_ids, _REASON)
                finally:
                    admin.close()
            except BrokerUnavailableError as error:
                _log.info("group %s: members of %s not removed yet: %s", self._group, whose, text_of(error))
                return False
            except Exception as error:  # the READ permission is missing, for example
                if not isinstance(error, StreamsError):
                    _log.debug("removing dead members failed", exc_info=True)
                _log.warning(
                    "group %s: members of %s cannot be removed, so the group waits for them until their session "
                    "timeout: %s",
                    self._group,
                    whose,
                    named(error),
                )
                return True
            self.removed += len(removed)
        if removed:
            self._on_removed(pid, removed)
            members = "1 member" if len(removed) == 1 else f"{len(removed)} members"
            _log.info("%s has ended; removed %s from group %s", whose, members, self._group)
        return True

    def _are_last(self, admin: GroupAdmin, member_ids: Collection[str]) -> bool:
        """Whether the group has some of these members, and no others."""
        group = admin.find_group(self._group)
        members = frozenset() if group is None else frozenset(member.member_id for member in group.members)
        return bool(members) and members <= frozenset(member_ids)
