"""Which processes have a member in the application's group; processes without one can no longer commit."""

from __future__ import annotations

import logging
from collections.abc import Callable

from streams_protocol import DecodeError, decode_subscription, decode_subscription_info
from streams_py.errors import StreamsError
from streams_py.ports import GroupAdmin
from streams_py.ports.described_groups import DescribedGroup

_log = logging.getLogger(__name__)


def processes_of(group: DescribedGroup) -> frozenset[str] | None:
    """Return the process ids of all members; None during a rebalance or if a subscription cannot be decoded."""
    if group.state != "Stable":
        return None
    try:
        sent = [decode_subscription(member.subscription).user_data for member in group.members]
        return frozenset(str(decode_subscription_info(user_data).process_id) for user_data in sent)
    except DecodeError as error:
        _log.debug("processes in group %s are not known: %s", group.group, error)
        return None


class GroupProcesses:
    """Requests the process ids in ``group``. Connects at the first request. For one thread at a time."""

    def __init__(self, connect: Callable[[], GroupAdmin], group: str) -> None:
        self._connect = connect
        self._group = group
        self._client: GroupAdmin | None = None

    def __call__(self) -> frozenset[str] | None:
        """Return the process ids; None if they are not known, e.g. without the right to describe the group."""
        try:
            if self._client is None:
                self._client = self._connect()
            return processes_of(self._client.describe_group(self._group))
        except StreamsError as error:
            _log.debug("processes in group %s are not known: %s", self._group, error)
            return None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
