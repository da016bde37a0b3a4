"""The kinds of Kafka clients of an application, and the prefixes of their settings."""

from __future__ import annotations

from enum import Enum
from typing import Final


class ClientRole(Enum):
    """A kind of Kafka client. Its value is the prefixes of its settings; a later prefix overrides an earlier one.

    A setting without a prefix applies to every client, and every prefix overrides it.
    """

    MAIN_CONSUMER = ("consumer.", "main.consumer.")
    """Reads the input of a stream thread, and is its member of the group."""
    RESTORE_CONSUMER = ("consumer.", "restore.consumer.")
    """Reads changelogs."""
    GLOBAL_CONSUMER = ("consumer.", "global.consumer.")
    """Reads the topics of global stores."""
    PRODUCER = ("producer.",)
    """Writes the output of a stream thread."""
    ADMIN = ("admin.",)
    """Sends administrative requests."""
    EVENT_PRODUCER = ("producer.", "assignment.events.producer.")
    """Writes assignment events."""

    def key(self, name: str) -> str:
        """Return the configuration key for this kind of client alone, such as ``main.consumer.client.rack``."""
        return f"{self.value[-1]}{name}"

    def keys(self, name: str) -> tuple[str, ...]:
        """Return all configuration keys of a setting. A later key overrides an earlier one."""
        return (name, *(f"{prefix}{name}" for prefix in self.value))


CLIENT_PREFIXES: Final = (
    "main.consumer.",
    "restore.consumer.",
    "global.consumer.",
    "consumer.",
    "producer.",
    "admin.",
    "assignment.events.producer.",
)
"""The prefixes of all kinds of clients."""


def member_instance_id(configured: object, thread: int) -> str | None:
    """Return the ``group.instance.id`` of a stream thread's member, as in Kafka Streams; None without static members.

    Args:
        configured: ``group.instance.id`` of the application instance, or nothing.
        thread: Number of the thread.
    """
    return f"{configured}-{thread}" if configured else None


def without_prefix(key: str) -> str:
    """Return the name of a client's setting, as in ``client.rack`` for ``main.consumer.client.rack``."""
    return next((key.removeprefix(prefix) for prefix in CLIENT_PREFIXES if key.startswith(prefix)), key)
