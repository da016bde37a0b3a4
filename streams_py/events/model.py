"""The content of assignment event records, version 1. :mod:`streams_py.events.codec` encodes them.

Every event has an :class:`Envelope` (writer, time, sequence number) and a body. There are seven kinds of bodies:

* One assign step of a group leader is *several* records with the same ``rebalance_id``: a :class:`RebalanceHeader`,
  then :class:`TasksPart` records (the tasks to assign), then :class:`ClientPart` records (each client with its previous
  state and its new tasks). Together they contain the whole input of the assignor, so that the assignment can be
  repeated elsewhere.
* :class:`TaskEvent`: a task changed on a member.
* :class:`Sample`: regular measurements of the tasks of a member.
* :class:`ClientEvent`: an instance started or stopped.
* :class:`Eviction`: an instance removed members of an ended process from the group.

Compatibility: an optional field may be added without a new version. A field never changes its meaning or unit, and its
name is never reused. A reader keeps unknown fields (``Event.extra``). Field names are those in the JSON. Times are in
``_ms`` since the epoch, or in ``_us`` of the writer's monotonic clock. As in the assignment protocol, an offset sum of
``-2`` means "running here", and ``-3`` means "unknown".
"""

# ruff: noqa: RUF009  # `form` is `dataclasses.field` with one more argument, not a shared default value
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

from streams_protocol.types import TaskId
from streams_py.events.fields import (
    BOOL,
    FLOAT,
    INT,
    INT32,
    SETTING,
    TASK,
    TASKS,
    TEXT,
    TIME,
    form,
    list_of,
    map_of,
    optional,
    record,
)

VERSION: Final = 1

Tasks: TypeAlias = Sequence[TaskId]
"""A set of tasks. In ascending order when read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The fields of all events.

    ``seq`` counts the events that the process *offered* since ``run`` started, so a dropped event leaves a gap. All
    records of one rebalance have the same number. ``run`` changes with every start, because the process id survives a
    restart together with the state directory, but the count does not.
    """

    group: str = form(TEXT)
    process: str = form(TEXT)
    run: str = form(TEXT, default="")
    seq: int = form(INT)
    at_ms: int = form(TIME)
    mono_us: int = form(TIME)
    dropped: int = form(INT)


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """The reason for a failed assignment. ``code`` is the protocol's error code; 0 if none was sent to the members."""

    code: int = form(INT)
    type: str = form(TEXT)
    text: str = form(TEXT)


@dataclass(frozen=True, slots=True)
class Assignor:
    """The assignor that made the assignment, as ``package.module:Class``."""

    name: str = form(TEXT, key="class")
    module_version: str | None = form(optional(TEXT))
    custom: bool = form(BOOL)


@dataclass(frozen=True, slots=True)
class Versions:
    """The protocol versions in the group."""

    min_received: int = form(INT)
    min_supported: int = form(INT)
    future: bool = form(BOOL)


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A client that will trigger a follow-up rebalance."""

    process: str = form(TEXT)
    deadline_ms: int = form(INT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceHeader:
    """Part 0 of an assign step. ``parts`` is the total number of records.

    * ``trigger`` results from a comparison with the leader's previous step: ``first member_joined member_left
      metadata_changed followup revocation_done subscription_changed``, or ``unknown`` after a step of another leader.
      A new leader sees from the subscriptions whether the group is new and which members joined. It also knows that the
      former leader left.
    * ``counts`` has ``clients consumers tasks stateful active standby warmup withheld moved``.
    * ``duration_us`` has ``decode topics end_offsets assign threads encode total``.
    * ``outcome`` is ``ok``, ``error_assignment``, ``retriable`` or ``raised``.
    """

    KIND: ClassVar[str] = "rebalance"

    rebalance_id: str = form(TEXT)
    part: int = form(INT32, default=0)
    parts: int = form(INT32)
    generation: int = form(INT32)
    leader_member: str = form(TEXT)
    trigger: Sequence[str] = form(list_of(TEXT))
    assignor: Assignor = form(record(Assignor))
    configs: Mapping[str, Any] = form(map_of(SETTING))
    versions: Versions | None = form(optional(record(Versions)))
    lag_ok: bool = form(BOOL)
    counts: Mapping[str, int] = form(map_of(INT))
    duration_us: Mapping[str, int] = form(map_of(INT))
    followups: Sequence[FollowUp] = form(list_of(record(FollowUp)))
    outcome: str = form(TEXT)
    error: ErrorInfo | None = form(optional(record(ErrorInfo)))
    seed: int | None = form(optional(INT), default=None)
    library: str = form(TEXT)


@dataclass(frozen=True, slots=True)
class Racks:
    """The racks of partitions. For each topic and partition of a slice, it has ascending indexes into ``names``."""

    names: Sequence[str] = form(list_of(TEXT))
    p: Mapping[str, Sequence[Sequence[int]]] = form(map_of(list_of(list_of(INT))))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtopologySlice:
    """The partitions ``first`` to ``first + count - 1`` of one sub-topology. ``sub`` is as in a task id: ``[name__]n``.

    ``end`` (end-offset sums, -3: unknown) and ``weight`` have one value per partition of the slice. They are null when
    not applicable or unknown. ``weight`` is a task's share of all work. It is only for replayed inputs: telemetry adds
    it from samples; leaders never write it.
    """

    sub: str = form(TEXT)
    first: int = form(INT)
    count: int = form(INT)
    stateful: bool = form(BOOL)
    logged: bool = form(BOOL)
    stores: Sequence[str] = form(list_of(TEXT))
    sources: Sequence[str] = form(list_of(TEXT))
    changelogs: Sequence[str] = form(list_of(TEXT))
    end: Sequence[int] | None = form(optional(list_of(INT)))
    weight: Sequence[float] | None = form(optional(list_of(FLOAT)), default=None)
    racks: Racks | None = form(optional(record(Racks)), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksPart:
    """The tasks to assign."""

    KIND: ClassVar[str] = "rebalance.tasks"

    rebalance_id: str = form(TEXT)
    part: int = form(INT32)
    parts: int = form(INT32)
    subs: Sequence[SubtopologySlice] = form(list_of(record(SubtopologySlice)))


@dataclass(frozen=True, slots=True)
class Consumer:
    """A member of the group. ``supported`` is -1 if its protocol version does not contain it."""

    member: str = form(TEXT)
    version: int = form(INT)
    supported: int = form(INT)
    owned: Tasks = form(TASKS)


@dataclass(frozen=True, slots=True)
class OffsetSums:
    """Offset sums as received. ``v`` has one value per task in ``tasks``."""

    tasks: Tasks = form(TASKS)
    v: Sequence[int] = form(list_of(INT))


@dataclass(frozen=True, slots=True)
class ThreadTasks:
    """The tasks assigned to a member. ``withheld`` active tasks still belong to their old owner in this generation."""

    active: Tasks = form(TASKS)
    standby: Tasks = form(TASKS)
    withheld: Tasks = form(TASKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPart:
    """One client, or one slice of a large client.

    The tasks of a large client are split in ascending order. ``consumers`` and ``tags`` are in slice 0 only.
    ``threads`` is in every slice, with one entry per consumer. ``active``, ``standby`` and ``warmup`` are the
    assignor's decision. ``client`` is the process id, or ``future`` for all members with a newer protocol than the
    leader.
    """

    KIND: ClassVar[str] = "rebalance.client"

    rebalance_id: str = form(TEXT)
    part: int = form(INT32)
    parts: int = form(INT32)
    client: str = form(TEXT)
    slice: int = form(INT32)
    slices: int = form(INT32)
    host: str | None = form(optional(TEXT))
    rack: str | None = form(optional(TEXT))
    tags: Mapping[str, str] = form(map_of(TEXT))
    consumers: Sequence[Consumer] = form(list_of(record(Consumer)))
    prev_active: Tasks = form(TASKS)
    prev_standby: Tasks = form(TASKS)
    sums: OffsetSums = form(record(OffsetSums))
    active: Tasks = form(TASKS)
    standby: Tasks = form(TASKS)
    warmup: Tasks = form(TASKS)
    threads: Sequence[ThreadTasks] = form(list_of(record(ThreadTasks)))
    reasons: Mapping[str, Tasks] = form(map_of(TASKS))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvent:
    """A change of a task on a member. ``event`` is one of:

    * ``assigned created running suspended revoked closed lost corrupted promoted demoted``, with ``took_us``;
    * ``restore_started`` (once even for several stores; ``records_total`` and ``stores`` are of the first changelog),
      ``restore_progress`` (``records_done``, ``records_total``), ``restored`` (``records``, ``took_us``);
    * ``last_record`` (``last_mono_us``: the time when the last record was processed; ``idle_us``: how long
      afterwards the member saw that the task had no input; absent if it did not see that);
    * ``first_record``: with ``since_assigned_us``, or, if a rebalance did not move the task, with ``last_mono_us`` of
      the previous record. ``waited_ms`` is the age of the record by its timestamp. Records of repartition topics have
      the timestamps of their origin, so this age may include pauses of other tasks. ``since_idle_us`` is the time since
      the member last saw that the task had no input: empty queues, and no further records on the broker. The record
      arrived after that. Absent if the member did not see that since the previous record;
    * ``warm`` (``since_created_us``, ``lag``): a standby's lag is within ``acceptable.recovery.lag``.

    A field that does not apply to the event, or is unknown, is absent.
    """

    KIND: ClassVar[str] = "task"

    task: TaskId = form(TASK)
    role: str = form(TEXT)
    member: str = form(TEXT)
    generation: int = form(INT32)
    event: str = form(TEXT)
    took_us: int | None = form(optional(INT), default=None, absent_when_none=True)
    records_total: int | None = form(optional(INT), default=None, absent_when_none=True)
    records_done: int | None = form(optional(INT), default=None, absent_when_none=True)
    records: int | None = form(optional(INT), default=None, absent_when_none=True)
    stores: Sequence[str] | None = form(optional(list_of(TEXT)), default=None, absent_when_none=True)
    since_assigned_us: int | None = form(optional(INT), default=None, absent_when_none=True)
    since_created_us: int | None = form(optional(INT), default=None, absent_when_none=True)
    last_mono_us: int | None = form(optional(TIME), default=None, absent_when_none=True)
    idle_us: int | None = form(optional(INT), default=None, absent_when_none=True)
    since_idle_us: int | None = form(optional(INT), default=None, absent_when_none=True)
    waited_ms: int | None = form(optional(INT), default=None, absent_when_none=True)
    lag: int | None = form(optional(INT), default=None, absent_when_none=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Measurements of tasks. Every list has one value per task in ``tasks``; null: unknown.

    ``records`` and ``busy_us`` count since the last sample. ``input_lag`` is in records.
    """

    KIND: ClassVar[str] = "sample"

    tasks: Tasks = form(TASKS)
    input_lag: Sequence[int | None] = form(list_of(optional(INT)))
    records: Sequence[int | None] = form(list_of(optional(INT)))
    busy_us: Sequence[int | None] = form(list_of(optional(INT)))
    commit_age_ms: Sequence[int | None] = form(list_of(optional(INT)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEvent:
    """An instance started (``event`` is ``started``) or stopped (``stopped``)."""

    KIND: ClassVar[str] = "client"

    event: str = form(TEXT)
    library: str = form(TEXT)
    python: str = form(TEXT)
    versions: Mapping[str, str] = form(map_of(TEXT))
    threads: int = form(INT)
    tags: Mapping[str, str] = form(map_of(TEXT))
    rack: str | None = form(optional(TEXT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """An instance removed members from the group, because their process has ended. A rebalance follows.

    ``pid`` is the number of that process on its host; null: unknown.
    """

    KIND: ClassVar[str] = "eviction"

    pid: int | None = form(optional(INT32))
    members: Sequence[str] = form(list_of(TEXT))


Body: TypeAlias = RebalanceHeader | TasksPart | ClientPart | TaskEvent | Sample | ClientEvent | Eviction


@dataclass(frozen=True, slots=True)
class Event:
    """One record. ``extra`` is the JSON text of fields that are unknown to this version, ``""`` without such fields."""

    envelope: Envelope
    body: Body
    extra: str = field(default="")

    @property
    def kind(self) -> str:
        """The kind as in the record, for example ``rebalance.client``."""
        return self.body.KIND
