"""Calls from a transport to its stream thread: they wait for the result, but not longer than the group allows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from streams_protocol.types import TaskId, TopicPartition
from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import TaskMigratedError, TimeoutExceededError
from streams_py.member.tasks import Tasks
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.group.inbox import Inbox, InboxClosedError
from streams_py.runtime.group.transport import MemberSignals, TaskListener

T = TypeVar("T")

_MAX_POLL_INTERVAL_MS: Final = 300_000


def max_poll_interval_ms(config: StreamsConfig) -> int:
    """Return how long a stream thread may be busy before its member leaves the group, in ms.

    Raises:
        ConfigError: The setting is not a number.
    """
    return config.number_for(ClientRole.MAIN_CONSUMER, "max.poll.interval.ms", _MAX_POLL_INTERVAL_MS)


class ThreadCalls:
    """The listener of a stream thread, for calls from the polling thread of its transport (``TaskListener``).

    The calls run on the stream thread, through its inbox. They do nothing once the stream thread is stopping.

    Args:
        wait_ms: Time limit for a call, in ms (``max.poll.interval.ms``). A thread that is busy for longer gives up its
            tasks, as any consumer does: the call raises TaskMigratedError.
    """

    def __init__(self, inbox: Inbox[TaskListener], signals: MemberSignals, *, wait_ms: int) -> None:
        self.wait_ms = wait_ms
        self._inbox = inbox
        self._signals = signals
        self._has_ended = False

    def revoke(self, tasks: Collection[TaskId]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Stop and flush these tasks. Return the offsets to commit."""
        return self._ask(lambda thread: thread.revoke(tasks), {})

    def revoked(self, error: Exception | None) -> None:
        """Suspend the revoked tasks; ``error`` if their offsets were not committed."""
        self._ask(lambda thread: thread.revoked(error), None)

    def assign(self, tasks: Tasks | None, error: Exception | None) -> None:
        """Make ``tasks`` the tasks of the thread (None: no change), or let it fail with ``error``."""
        self._ask(lambda thread: thread.assign(tasks, error), None)

    def lose(self, tasks: Collection[TaskId]) -> None:
        """Close these tasks without a commit."""
        self._ask(lambda thread: thread.lose(tasks), None)

    def end(self) -> None:
        """Make all further calls return immediately, because the stream thread is stopping."""
        self._has_ended = True

    def halt(self) -> None:
        """Prevent the record that keeps the stream thread busy from writing anything. Thread-safe."""
        self._signals.halt(
            f"the stream thread was busy for more than max.poll.interval.ms ({self.wait_ms} ms) and left the group: "
            "other members may own its tasks, so nothing is written"
        )

    def _ask(self, action: Callable[[TaskListener], T], otherwise: T) -> T:
        if self._has_ended:
            return otherwise
        try:
            return self._inbox.call(action, timeout_ms=self.wait_ms)
        except InboxClosedError:
            return otherwise
        except TimeoutExceededError as error:
            self.halt()
            raise TaskMigratedError(f"{error} (max.poll.interval.ms)") from error
