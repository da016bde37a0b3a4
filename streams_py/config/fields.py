"""The keys of Kafka Streams, one field each, with what they mean and when to change them.

The text below a field is what ``help(StreamsConfig)`` and the documentation's page of configuration keys say, so each
has a line that begins with "Change it".
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SkipValidation

__all__ = ["INT32_MAX", "ConfigFields", "dotted", "texts"]

INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


def texts(value: object) -> object:
    """A list given as comma-separated text."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(value) if isinstance(value, list | set | frozenset) else value


def _no_bool(value: object) -> object:
    """True and False are numbers to Python, but nobody means 1 and 0 by them."""
    if isinstance(value, bool):
        raise ValueError("expected a whole number")
    return value


def _path_text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def dotted(name: str) -> str:
    """The key of a field."""
    return name.replace("_", ".")


Texts = Annotated[tuple[str, ...], BeforeValidator(texts)]
PathText = Annotated[str, BeforeValidator(_path_text)]
Int = Annotated[int, BeforeValidator(_no_bool)]
Millis = Annotated[Int, Field(ge=0, le=_INT64_MAX)]
Int32 = Annotated[Int, Field(ge=-(2**31), le=INT32_MAX)]
Component = Any  # a class, a callable, an object, or "package.module:name"


class ConfigFields(BaseModel):
    """What :class:`~streams_py.config.streams_config.StreamsConfig` checks and holds."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        alias_generator=dotted,
        populate_by_name=True,
        hide_input_in_errors=True,
        protected_namespaces=(),
        use_attribute_docstrings=True,
    )

    application_id: str
    """Names the group, and begins the names of internal topics and of the folder below ``state.dir``.
    Change it: for an application that begins anew beside the old one, with state of its own."""
    bootstrap_servers: Texts
    """Brokers to begin with, ``host:port`` with commas between; ``embedded`` is a small broker on this machine.
    Change it: for each cluster. Two or three brokers are enough; the others are found."""

    acceptable_recovery_lag: Millis = 10_000
    """How many records a copy of a task's state may lack and still count as caught up, so that the task may move to it.
    Change it: up when state changes too fast for copies to come within reach, down when take-overs restore too long."""
    application_server: str = ""
    """``host:port`` at which other instances reach this one, for queries of state. The group passes it on.
    Change it: when you ask stores from outside, to an address of this instance."""
    assignment_events_level: Literal["none", "rebalances", "tasks"] = "none"
    """Which events of rebalances go to a topic: ``rebalances``, what leaders decided; ``tasks``, that and what became
    of each task.
    Change it: to ``tasks`` when you want telemetry or a backtest."""
    assignment_events_partitions: Annotated[int, Field(ge=1, le=INT32_MAX)] = 1
    """Partitions of the events topic, when the application creates it.
    Change it: for groups of hundreds of instances that write ``tasks``."""
    assignment_events_queue_bytes_max: Millis = 16 * 1024 * 1024
    """Bytes of events that may wait to be sent; beyond it the least important are dropped and counted.
    Change it: when the count of dropped events grows."""
    assignment_events_queue_max: Annotated[int, Field(ge=0, le=INT32_MAX)] = 10_000
    """Events that may wait to be sent.
    Change it: when the count of dropped events grows."""
    assignment_events_replication_factor: Annotated[int, Field(ge=-1, le=32_767)] = -1
    """Replicas of the events topic, when the application creates it; -1 is the broker's default.
    Change it: when the broker's default is 1 and you want to keep the events."""
    assignment_events_retention_ms: Annotated[int, Field(ge=-1, le=_INT64_MAX)] = 2_592_000_000
    """How long the events topic keeps events, when the application creates it; -1 is for ever.
    Change it: to the time you want to look back, if no job keeps tables."""
    assignment_events_sample_interval_ms: Annotated[int, Field(ge=1_000, le=_INT64_MAX)] = 30_000
    """How often each thread writes how its tasks are doing.
    Change it: up for large groups, to write less."""
    assignment_events_topic: str = ""
    """The events topic; empty: ``<application.id>-assignment-events``.
    Change it: when the application may only write to topics of certain names."""
    buffered_records_per_partition: Annotated[Int, Field(ge=1, le=INT32_MAX)] = 1000
    """How many records of a partition may wait for their task before the partition is paused.
    Change it: down when records are large and memory is short."""
    client_id: str = ""
    """Begins the names of threads and clients, and so of metrics and log lines; empty: the application and a UUID.
    Change it: to a name that says which instance this is."""
    commit_interval_ms: Millis = 30_000
    """How often offsets and state are committed, and so how often cached updates are sent on. 200 on the embedded
    cluster, 100 under exactly-once.
    Change it: down when results have to come sooner or fewer records may be processed again, up for less work."""
    connections_max_idle_ms: Int32 = 540_000
    """A connection without traffic is closed after so long.
    Change it: below the limit of a firewall or load balancer that drops idle connections."""
    default_client_supplier: Component = "streams_py.clients.factory:KafkaClients"
    """A class, or ``module:name``, that makes the Kafka clients.
    Change it: to put clients of your own in, for tests above all."""
    default_key_serde: Component = None
    """Serde of keys wherever the topology names none: an object, a class, or ``module:name``.
    Change it: when most topics have keys of one kind. ``StreamsBuilder(key=...)`` does the same in code."""
    default_value_serde: Component = None
    """Serde of values wherever the topology names none.
    Change it: when most topics have values of one kind."""
    default_timestamp_extractor: Component = None
    """Which time a record has. Default: the record's timestamp; a negative one is an error.
    Change it: when the time is in the value, or when old records have none."""
    deserialization_exception_handler: Component = "log_and_fail"
    """What happens to a record that cannot be read: ``log_and_fail``, ``log_and_continue``, a ``DeadLetterQueue``, or a
    function of yours.
    Change it: when one bad record must not stop the application."""
    dsl_store_suppliers_class: Literal["rocksdb", "in_memory"] = "rocksdb"
    """Where operators keep their state when nothing else is said; the changelog is kept either way.
    Change it: to ``in_memory`` when all state fits into memory and a restart may restore everything."""
    errors_show_record_bytes: bool = False
    """Errors about records that cannot be read show their first 64 bytes and the text of the library that read them.
    Change it: to find out what is in such records, where logs may contain the contents of records.
    Not a key of Kafka Streams."""
    ensure_explicit_internal_resource_naming: bool = False
    """Refuse a topology that has internal topics or stores with generated names.
    Change it: to true before the first deployment. A generated name shifts when the topology changes, and the state is
    left behind."""
    internal_task_assignor_class: Component = None
    """Which of the oldest assignors decides: ``high_availability`` (the default), ``legacy_sticky``, ``fallback``, or
    Java's class name. ``task.assignor.class`` comes first.
    Change it: hardly ever; ``task.assignor.class`` is the public way."""
    log_summary_interval_ms: Int = 120_000
    """How often each thread logs how much it did; negative: never.
    Change it: down while you look for something."""
    max_task_idle_ms: Annotated[Int, Field(ge=-1, le=_INT64_MAX)] = 0
    """How long a task with several inputs waits for an empty one, so that records are taken in order of time. 0: only
    as long as the broker has records for it; -1: never.
    Change it: up when a producer is late and joins have to be exact."""
    max_warmup_replicas: Annotated[Int, Field(ge=1, le=INT32_MAX)] = 2
    """How many copies beyond the standbys may be warmed up at a time, in the whole group.
    Change it: up to get to a balanced group sooner, at the price of more restoring at a time."""
    metadata_max_age_ms: Millis = 300_000
    """How often clients ask for topics and partitions without a reason.
    Change it: down when the topics of a pattern have to be found sooner."""
    metrics_recording_level: Literal["INFO", "DEBUG", "TRACE"] = "INFO"
    """How much is measured.
    Change it: to ``DEBUG`` for how many records each task and each node has processed; with ``TRACE`` stores also say
    how old records are when they are put."""
    num_standby_replicas: Annotated[Int, Field(ge=0, le=INT32_MAX)] = 0
    """How many further instances keep a copy of each task's state.
    Change it: to 1 or more when an instance's end must not mean minutes of restoring. Each costs disk and network."""
    num_stream_threads: Annotated[Int, Field(ge=0, le=1000)] = 1
    """Stream threads of this process. Python runs one at a time: they help when they wait, not when they compute.
    Change it: for work that waits. For work that computes, start more processes."""
    poll_ms: Millis = 100
    """The longest wait for records.
    Change it: hardly ever."""
    probing_rebalance_interval_ms: Annotated[Int, Field(ge=60_000, le=_INT64_MAX)] = 600_000
    """How often the group looks whether warm-ups have caught up.
    Change it: down when tasks should move sooner after a scale-out; each look is a rebalance."""
    probing_rebalance_on_catch_up: bool = True
    """A member whose warm-ups have caught up asks for the rebalance that moves their tasks. A key of streams-py.
    Change it: to false when tasks are to move no earlier than Kafka Streams moves them."""
    processing_exception_handler: Component = "log_and_fail"
    """What happens to a record whose processing raises: ``log_and_fail``, ``log_and_continue``, a ``DeadLetterQueue``,
    or a function of yours.
    Change it: when one bad record must not stop the application."""
    processing_guarantee: Literal["at_least_once", "exactly_once_v2"] = "at_least_once"
    """``exactly_once_v2``: offsets, state and results of a batch are committed together, in a transaction.
    Change it: when a result that is counted twice is worse than higher latency and less throughput."""
    production_exception_handler: Component = "default"
    """What happens to a record that cannot be sent: ``default`` (retry what may be retried, else fail),
    ``log_and_continue``, or a function of yours.
    Change it: when records that a broker refuses, too large ones for instance, may be left out."""
    rack_aware_assignment_non_overlap_cost: Annotated[
        Int32 | None, Field(alias="rack.aware.assignment.non_overlap_cost")
    ] = None
    """Cost of moving a task, beside the cost of traffic between racks. Default: the assignor's.
    Change it: up when racks make tasks move too often."""
    rack_aware_assignment_strategy: Literal["none", "min_traffic", "balance_subtopology"] = "none"
    """Place tasks where the replicas of their partitions are: ``min_traffic`` above all, ``balance_subtopology`` only
    as far as each sub-topology stays even.
    Change it: when traffic between racks costs money. Needs ``client.rack`` and ``broker.rack``."""
    rack_aware_assignment_tags: Texts = ()
    """Keys of client tags over which a task and its standbys are spread.
    Change it: to ``zone`` when instances have ``client.tag.zone``, so that one zone's end leaves a copy."""
    rack_aware_assignment_traffic_cost: Annotated[Int32 | None, Field(alias="rack.aware.assignment.traffic_cost")] = (
        None
    )
    """Cost of reading a partition from another rack. Default: the assignor's.
    Change it: together with ``rack.aware.assignment.non_overlap_cost``."""
    receive_buffer_bytes: Int32 = 32_768
    """Size of the socket's receive buffer; -1: the system's.
    Change it: up on connections that are fast and far away."""
    reconnect_backoff_ms: Millis = 50
    """Pause before the first new attempt to reach a broker; it doubles up to ``reconnect.backoff.max.ms``.
    Change it: hardly ever."""
    reconnect_backoff_max_ms: Millis = 1_000
    """The longest pause between two attempts to reach a broker.
    Change it: up when hundreds of clients come back to a broker at the same moment."""
    repartition_purge_interval_ms: Millis = 30_000
    """How often processed records of repartition topics are deleted.
    Change it: up when brokers are busy with it, down when their disks are small."""
    recreated_internal_topics: Literal["stop", "continue", "strict"] = "stop"
    """What happens when a repartition or changelog topic was deleted and created again although the group has committed
    offsets, so that records or state are lost. ``stop``: the application stops with an error; where the topic may also
    be one that a new version of the application added, an error is logged instead. ``strict``: it stops then, too.
    ``continue``: an error is logged.
    Change it: to ``continue`` to go on with what is left, for one start. A key of streams-py."""
    replication_factor: Annotated[Int, Field(ge=-1, le=32_767)] = -1
    """Replicas of internal topics; -1 is the broker's default.
    Change it: to 3 when the broker's default is less: changelogs are the truth about your state."""
    request_timeout_ms: Annotated[Int, Field(ge=1, le=INT32_MAX)] = 40_000
    """How long a client waits for a broker's answer.
    Change it: up when brokers are far away or overloaded."""
    restore_processes: Annotated[Int, Field(ge=1, le=2)] = 2
    """2: while large key-value stores are restored, a process of each stream thread's reads half of what there is, if
    the machine has processors to spare.
    Change it: to 1 when memory is short, or when no processes may be started. A key of streams-py."""
    retry_backoff_ms: Millis = 100
    """Pause before a failed request is made again.
    Change it: hardly ever."""
    send_buffer_bytes: Int32 = 131_072
    """Size of the socket's send buffer; -1: the system's.
    Change it: up on connections that are fast and far away."""
    state_cleanup_delay_ms: Millis = 600_000
    """Folders of tasks that moved away are deleted after so long.
    Change it: up when instances come back late and their state is large, down when disks are small."""
    state_cleanup_dir_max_age_ms: Annotated[Int, Field(ge=-1, le=_INT64_MAX)] = -1
    """At the start, folders of tasks and global stores that have not changed for so long are deleted, and their state
    is restored; -1: never. What was deleted while an instance was away is told by its changelogs for their
    ``delete.retention.ms`` only, 24 hours by default.
    Change it: to less than that when instances may be away for longer, and keys are deleted."""
    state_dir: PathText = Field(default_factory=lambda: os.path.join(tempfile.gettempdir(), "kafka-streams"))
    """Where state is kept. Default: ``kafka-streams`` in the temporary folder.
    Change it: always, in production: to a disk that outlives the process."""
    state_snapshot_interval_ms: Annotated[Int, Field(ge=1_000, le=_INT64_MAX)] = 600_000
    """How often changed state is uploaded as a snapshot.
    Change it: down when less may be left to replay, up to upload less."""
    state_snapshot_store: str = ""
    """Where snapshots of state are, as an address that fsspec knows (``file:///...``, ``s3://...``); empty: nowhere.
    Change it: when disks get lost and replaying the changelogs takes too long. A key of streams-py."""
    statestore_uncommitted_max_bytes: Annotated[Int, Field(ge=1 << 20, le=_INT64_MAX)] = 64 * 1024 * 1024
    """Bytes of writes to stores that a thread keeps in memory until it commits; beyond it the commit comes early.
    Change it: up when commits come early and memory is there, down in small containers."""
    statestore_cache_max_bytes: Millis = 10 * 1024 * 1024
    """Record cache of the process: it merges updates of one key until the next commit.
    Change it: to 0 to see every update, up for fewer of them."""
    static_tasks: Texts | None = None
    """Tasks that this instance runs, as ``0_1``, ``0_0-5`` or ``2_*``, when the ``static`` assignor decides.
    Change it: to pin tasks to machines."""
    static_tasks_spill: bool = False
    """With the ``static`` assignor: tasks that nobody lists go to instances with a list, too, when there are no others.
    Change it: to true when every task has to run somewhere, listed or not."""
    static_tasks_warmup: bool = False
    """With the ``static`` assignor: a task with state stays where it is until its new instance has caught up.
    Change it: to true when lists change while the group runs."""
    task_assignor_class: Component = None
    """The task assignor (KIP-924): ``sticky``, ``static``, or your own as a class or ``module:name``. Default: high
    availability.
    Change it: when a backtest says that another one suits this group, or when you write your own."""
    task_timeout_ms: Millis = 300_000
    """How long a task may fail to make progress, because a broker does not answer, before its thread gives up.
    Change it: above your longest outage, if waiting is better than ending."""
    topology_optimization: Texts = ("none",)
    """``all``, ``none``, or some of ``reuse.ktable.source.topics``, ``merge.repartition.topics``,
    ``single.store.self.join``. Must be given to ``StreamsBuilder.build``, too.
    Change it: to ``all`` before the first deployment; later it changes names, see ``streams-py check-upgrade``."""
    upgrade_from: str | None = None
    """The release that the other members of the group still have, during the first of two rolling restarts.
    Change it: when you come from a Kafka Streams that is so old that its documentation asks for it."""
    windowstore_changelog_additional_retention_ms: Millis = 86_400_000
    """How much longer than the store a window store's changelog keeps records.
    Change it: up when clocks of producers are wrong by more than a day."""

    clients: Mapping[str, SkipValidation[str]] = Field(default_factory=dict, exclude=True)
    topics: Mapping[str, str] = Field(default_factory=dict, exclude=True)
    client_tags: Mapping[str, str] = Field(default_factory=dict, exclude=True)
    app: Mapping[str, Any] = Field(default_factory=dict, exclude=True)
    original: Mapping[str, Any] = Field(default_factory=dict, exclude=True)
