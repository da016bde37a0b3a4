"""Input and output of a built-in assignor, as plain values.

The group leader builds an :class:`AssignmentProblem` from the members' subscriptions. A built-in assignor turns it into
a :class:`Decision`. KIP-924's ``ApplicationState`` is a view of the same problem.

Lags are *sparse*. Kafka Streams fills a table of every stateful task times every client. But a client that did not
report a task lags by the whole changelog, which is one number per task. So a client lists only the tasks that it
reported, and ``end_offset_sums`` has the shared numbers. Its keys also define "stateful" here: tasks with a changelog.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from streams_protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from streams_protocol.types import HostInfo, ProcessId, TaskId
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.java_order import HashSizing
from streams_py.errors import IllegalStateError

if TYPE_CHECKING:
    from streams_py.assignment.explanation import TaskExplanation

_NAMED_MAX: Final = 5  # tasks named in one warning


def lag_from_offsets(offset_sum: int, end_offset_sum: int) -> int:
    """Return the lag, in records, of a client that reported ``offset_sum`` for a task.

    The task's changelogs end at ``end_offset_sum``. If the offset is beyond the end, the local state cannot be trusted,
    and the lag is the whole changelog. So an unknown end (-3) makes every reported offset an unknown lag.
    """
    if offset_sum in (LATEST_OFFSET, UNKNOWN_OFFSET_SUM):
        return offset_sum
    return end_offset_sum if end_offset_sum < offset_sum else end_offset_sum - offset_sum


def reported_lag(offset_sum: int, end_offset_sum: int) -> int | None:
    """Return the lag that a reported offset sum shows outside of the leader, in records.

    The leader's rule applies, also to an offset beyond the end. None if one of the sums is unknown, and
    :data:`LATEST_OFFSET` if the task runs on the client.
    """
    if offset_sum == LATEST_OFFSET:
        return LATEST_OFFSET
    if UNKNOWN_OFFSET_SUM in (offset_sum, end_offset_sum):
        return None
    return lag_from_offsets(max(offset_sum, 0), end_offset_sum)


@dataclass(frozen=True, slots=True)
class ClientInput:
    """One application instance (process) of the group.

    Attributes:
        capacity: its number of member consumers, at least 1.
        lags: lags of the stateful tasks that the client reported. Any other stateful task lags by its end-offset sum.
        previous_active: previous active tasks, ascending; may include tasks that no longer exist.
        previous_standby: the same for standbys.
        consumer_tasks: the previous stateful tasks that each consumer reported.
    """

    process_id: ProcessId
    capacity: int = 1
    tags: Mapping[str, str] = field(default_factory=dict)
    rack: str | None = None
    previous_active: Sequence[TaskId] = ()
    previous_standby: Sequence[TaskId] = ()
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    consumers: Sequence[str] = ()
    consumer_tasks: Mapping[str, Collection[TaskId]] = field(default_factory=dict)
    host: HostInfo | None = None

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise IllegalStateError(f"client {self.process_id} has capacity {self.capacity}; it must be at least 1")


Tags: TypeAlias = frozenset[tuple[str, str]]
"""(key, value) pairs of one client, whether the keys are configured or not."""


class RackOptimiser(Protocol):
    """KIP-925's optimiser for the built-in assignors; present only if all racks are known.

    Tasks and clients are ascending. Owners are positions in ``clients``. No call changes a client's number of tasks.
    """

    def optimise_active(
        self,
        tasks: Sequence[TaskId],
        clients: Sequence[ProcessId],
        owners: Sequence[int],
        *,
        traffic_cost: int,
        non_overlap_cost: int,
    ) -> Sequence[int]:
        """Return the new owner of each task; ``owners`` itself is not changed."""

    def optimise_standby(
        self,
        tasks: Sequence[TaskId],
        clients: Sequence[ProcessId],
        actives: Sequence[int],
        standbys: Sequence[Collection[int]],
        *,
        traffic_cost: int,
        non_overlap_cost: int,
        tags: Sequence[Tags] | None,
    ) -> Sequence[Collection[int]]:
        """Return the new standby hosts of each task (stateful tasks only).

        With the ``tags`` of each client, no move reduces the number of different tags of a task's hosts. None allows
        every move.
        """


class RackOptimiserFactory(Protocol):
    """Creates an optimiser from complete rack information.

    The implementation is ``streams_py.assignment.rack.optimiser_for``.
    """

    def __call__(
        self,
        *,
        active_racks: Mapping[TaskId, Sequence[frozenset[str]]],
        standby_racks: Mapping[TaskId, Sequence[frozenset[str]]],
        client_racks: Mapping[ProcessId, str],
        strategy: str,
    ) -> RackOptimiser:
        """Create an optimiser.

        Args:
            active_racks: racks of each partition that counts for a task as active.
            standby_racks: racks of each partition that counts for a task as standby.
            client_racks: rack of each client.
        """


@dataclass(frozen=True, slots=True)
class AssignmentProblem:
    """Input of a built-in assignor.

    The high-availability assignor sorts everything first. The sticky assignors depend on the order of ``clients``,
    ``tasks`` and ``end_offset_sums``, which is the insertion order of Kafka Streams' containers.
    """

    clients: Sequence[ClientInput]
    tasks: Collection[TaskId]
    end_offset_sums: Mapping[TaskId, int]
    configs: AssignmentConfigs = field(default_factory=AssignmentConfigs)
    racks: RackOptimiser | None = None
    hash_sizing: HashSizing = HashSizing.JDK_19_AND_NEWER

    def __post_init__(self) -> None:
        if len({client.process_id for client in self.clients}) != len(self.clients):
            raise IllegalStateError("two clients have the same process id")

    def lag(self, client: ClientInput, task: TaskId) -> int:
        """Return the lag of a stateful task on a client, in records.

        Raises:
            KeyError: the task has no changelog.
        """
        found = client.lags.get(task)
        return self.end_offset_sums[task] if found is None else found


class Placement(NamedTuple):
    """The tasks of one client, each list ascending. Warm-ups are among the standbys."""

    active: list[TaskId]
    standby: list[TaskId]


class NoteKind(StrEnum):
    """The subject of a :class:`Note`."""

    NOT_ENOUGH_CLIENTS = "not enough clients"
    TAGS_RELAXED = "tags relaxed"
    TAG_NOT_CONFIGURED = "tag not configured"


class Note(NamedTuple):
    """A fact that the operator should know; ``text`` is the sentence for the log."""

    kind: NoteKind
    task: TaskId | None
    text: str


def sentences(notes: Iterable[Note]) -> list[str]:
    """Return log lines for the notes: one for each kind, however many tasks it concerns."""
    by_kind: dict[NoteKind, list[Note]] = {}
    for note in notes:
        by_kind.setdefault(note.kind, []).append(note)
    found = []
    for first, *others in by_kind.values():
        more = ""
        if others:
            named = ", ".join(str(note.task) for note in others[:_NAMED_MAX] if note.task is not None)
            dots = ", ..." if len(others) > _NAMED_MAX else ""
            more = f" (likewise for {len(others)} more{f': {named}{dots}' if named else ''})"
        found.append(first.text + more)
    return found


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer of an assignor: a placement for every client of the problem, maybe empty.

    ``probing`` requests another rebalance after the probing interval. ``warmups`` are the additional copies of this
    decision.
    """

    placements: Mapping[ProcessId, Placement]
    probing: bool = False
    warmups: tuple[tuple[TaskId, ProcessId], ...] = ()
    notes: tuple[Note, ...] = ()
    explanation: Mapping[TaskId, TaskExplanation] = field(default_factory=dict)


class BuiltInAssignor(Protocol):
    """A built-in assignor. A new instance decides one rebalance; it keeps nothing between calls."""

    def decide(self, problem: AssignmentProblem, *, explain: bool = False) -> Decision:
        """Place all tasks. ``explain`` also records why each task is where it is."""
