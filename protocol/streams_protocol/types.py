"""The basic types of the assignment protocol: tasks, partitions, processes, hosts.

All of them are tuples, so hashing and comparing is fast: a leader with 100,000 tasks looks up ids hundreds of thousands
of times. Their natural order *is* the protocol's order, so ``sorted(ids)`` is always correct.
"""

from __future__ import annotations

import re
import uuid
from typing import Final, NamedTuple

__all__ = ["HostInfo", "ProcessId", "TaskId", "TopicPartition"]

_TASK_ID: Final = re.compile(r"(?:(?P<name>.+)__)?(?P<sub>\d+)_(?P<part>\d+)")
_SIGN_BIT: Final = 1 << 63
_TWO_64: Final = 1 << 64


class TopicPartition(NamedTuple):
    """A partition of a topic. The order is by topic name, then by partition number."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition, from 0."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class _TaskIdFields(NamedTuple):
    # The name comes first, so that the tuple order is the task order. "" means "no topology name".
    name: str
    """Name of the topology, or ""."""
    subtopology: int
    """Number of the sub-topology."""
    partition: int
    """Number of the partition."""


class TaskId(_TaskIdFields):
    """One partition of one sub-topology; ``TaskId(0, 3)`` has the text form ``0_3``.

    A task of a named topology has the text form ``name__0_3``. The order is by topology name, sub-topology, partition.
    """

    __slots__ = ()

    def __new__(cls, subtopology: int, partition: int, topology_name: str | None = None) -> TaskId:
        return super().__new__(cls, topology_name or "", subtopology, partition)

    def __getnewargs__(self) -> tuple[int, int, str | None]:  # copy and pickle use our argument order
        return (self.subtopology, self.partition, self.topology_name)

    @property
    def topology_name(self) -> str | None:
        """Name of the named topology, or None."""
        return self.name or None

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Parse a task id ``[name__]subtopology_partition``. Raises ValueError for other text."""
        match = _TASK_ID.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a task id; expected [topology__]subtopology_partition, e.g. 0_3")
        return cls(int(match["sub"]), int(match["part"]), match["name"])

    def __str__(self) -> str:
        plain = f"{self.subtopology}_{self.partition}"
        return f"{self.name}__{plain}" if self.name else plain

    def __repr__(self) -> str:
        return f"TaskId({self})"


class _ProcessIdFields(NamedTuple):
    high: int
    """The first 64 bits, as a signed number."""
    low: int
    """The last 64 bits, as a signed number."""


class ProcessId(_ProcessIdFields):
    """Identity of one application instance (process), a UUID.

    The order is the same as for Java's ``UUID``: two *signed* 64-bit halves. The order of ``uuid.UUID`` is unsigned,
    which differs for half of all random ids, so never sort plain UUIDs.
    """

    __slots__ = ()

    def __new__(cls, id: uuid.UUID) -> ProcessId:
        high, low = id.int >> 64, id.int & (_TWO_64 - 1)
        return super().__new__(
            cls, high - _TWO_64 if high & _SIGN_BIT else high, low - _TWO_64 if low & _SIGN_BIT else low
        )

    def __getnewargs__(self) -> tuple[uuid.UUID]:  # copy and pickle use our constructor
        return (self.id,)

    @property
    def id(self) -> uuid.UUID:
        """The UUID itself."""
        return uuid.UUID(int=(self.high % _TWO_64) << 64 | (self.low % _TWO_64))

    @classmethod
    def random_process_id(cls) -> ProcessId:
        """Return a new random id, as in KIP-924: for a starting instance, and for tests of assignors.

        Do not use it in an assignor, which places tasks on the clients that it receives.
        """
        return cls(uuid.uuid4())

    @classmethod
    def parse(cls, text: str) -> ProcessId:
        """Parse a process id written as a UUID. Raises ValueError for other text."""
        return cls(uuid.UUID(text))

    def __str__(self) -> str:
        return str(self.id)

    def __repr__(self) -> str:
        return f"ProcessId({self})"


class HostInfo(NamedTuple):
    """Endpoint of a client for interactive queries (``application.server``)."""

    host: str
    """Host name or address."""
    port: int
    """Port."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
