"""The configuration keys of Kafka Streams, one field each, with their meaning and advice when to change them.

``help(StreamsConfig)`` and the configuration page of the documentation show the text below each field. So each text has
a line that starts with "Change it".
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SkipValidation

INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


def texts(value: object) -> object:
    """Convert comma-separated text, or a list, to a tuple."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(value) if isinstance(value, list | set | frozenset) else value


def _no_bool(value: object) -> object:
    """Refuse True and False, which are integers in Python."""
    if isinstance(value, bool):
        raise ValueError("expected a whole number")
    return value


def _path_text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def dotted(name: str) -> str:
    """Return the key of a field."""
    return name.replace("_", ".")


Texts = Annotated[tuple[str, ...], BeforeValidator(texts)]
PathText = Annotated[str, BeforeValidator(_path_text)]
Int = Annotated[int, BeforeValidator(_no_bool)]
Millis = Annotated[Int, Field(ge=0, le=_INT64_MAX)]
Int32 = Annotated[Int, Field(ge=-(2**31), le=INT32_MAX)]
Component = Any  # a class, a callable, an object, or "package.module:name"


class ConfigFields(BaseModel):
    """The fields of :class:`~streams_py.config.streams_config.StreamsConfig`."""

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
    """Name of the consumer group, prefix of internal topics, and name of the folder below ``state.dir``.
    Change it: for a separate application with separate state, for example to start again next to the old one."""
    bootstrap_servers: Texts
    """Addresses of some brokers, ``host:port`` separated by commas; ``embedded`` is a small broker on this machine.
    Change it: for each cluster. Two or three brokers are enough; the client discovers the others."""

    acceptable_recovery_lag: Millis = 10_000
    """Maximum lag, in records, of a copy of a task's state that counts as caught up, so that the task may move to it.
    Change it: up when state changes too fast for copies to catch up, down when restores after a move take too long."""
    application_server: str = ""
    """``host:port`` at which other instances reach this one, for interactive queries. All members of the group get it.
    Change it: when other instances or programs query stores, to an address of this instance."""
    assignment_events_level: Literal["none", "rebalances", "tasks"] = "none"
    """Which assignment events are written to a topic: ``rebalances`` for the decisions of group leaders, ``tasks`` also
    for the changes of each task.
    Change it: to ``tasks`` when you want telemetry or a backtest."""
    assignment_events_partitions: Annotated[int, Field(ge=1, le=INT32_MAX)] = 1
    """Number of partitions of the events topic, if the application creates it.
    Change it: up for groups of hundreds of instances with the level ``tasks``."""
    assignment_events_queue_bytes_max: Millis = 16 * 1024 * 1024
    """Maximum size of queued events, in bytes. When it is exceeded, the least important events are dropped and counted.
    Change it: up when the count of dropped events grows."""
    assignment_events_queue_max: Annotated[int, Field(ge=0, le=INT32_MAX)] = 10_000
    """Maximum number of queued events.
    Change it: up when the count of dropped events grows."""
    assignment_events_replication_factor: Annotated[int, Field(ge=-1, le=32_767)] = -1
    """Replication factor of the events topic, if the application creates it; -1 is the broker's default.
    Change it: up when the broker's default is 1 and you want to keep the events."""
    assignment_events_retention_ms: Annotated[int, Field(ge=-1, le=_INT64_MAX)] = 2_592_000_000
    """Retention of the events topic, if the application creates it; -1 is unlimited.
    Change it: to the time span that you want to analyse, unless a job stores the events in tables."""
    assignment_events_sample_interval_ms: Annotated[int, Field(ge=1_000, le=_INT64_MAX)] = 30_000
    """Interval at which each thread writes measurements of its tasks.
    Change it: up for large groups, to write less."""
    assignment_events_topic: str = ""
    """Name of the events topic; empty: ``<application.id>-assignment-events``.
    Change it: when the application may only write to topics with certain names."""
    buffered_records_per_partition: Annotated[Int, Field(ge=1, le=INT32_MAX)] = 1000
    """Maximum number of buffered records per partition. Above it, the partition is paused.
    Change it: down when records are large and memory is limited."""
    client_id: str = ""
    """Prefix for the names of threads and clients in metrics and log lines; empty: ``application.id`` and a UUID.
    Change it: to a name that identifies the instance."""
    commit_interval_ms: Millis = 30_000
    """Interval at which offsets and state are committed and cached updates are forwarded. The default is 200 on the
    embedded cluster, and 100 with exactly-once.
    Change it: down for faster results or fewer reprocessed records after a failure, up for less overhead."""
    connections_max_idle_ms: Int32 = 540_000
    """Time after which an idle connection is closed.
    Change it: below the limit of a firewall or load balancer that drops idle connections."""
    default_client_supplier: Component = "streams_py.clients.factory:KafkaClients"
    """A class, or ``module:name``, that creates the Kafka clients.
    Change it: to use other clients, mainly in tests."""
    default_key_serde: Component = None
    """Serde for keys where the topology specifies none: an object, a class, or ``module:name``.
    Change it: when most topics have the same type of key. ``StreamsBuilder(key=...)`` does the same in code."""
    default_value_serde: Component = None
    """Serde for values where the topology specifies none.
    Change it: when most topics have the same type of value."""
    default_timestamp_extractor: Component = None
    """Determines the timestamp of a record. Default: the record's timestamp; a negative timestamp is an error.
    Change it: when the time is in the value, or when old records have no timestamp."""
    deserialization_exception_handler: Component = "log_and_fail"
    """Handles a record that cannot be decoded: ``log_and_fail``, ``log_and_continue``, a ``DeadLetterQueue``, or a
    function.
    Change it: when a bad record must not stop the application."""
    dsl_store_suppliers_class: Literal["rocksdb", "in_memory"] = "rocksdb"
    """Default storage of operators' state. Both kinds have a changelog.
    Change it: to ``in_memory`` when all state fits in memory and a restart may restore everything."""
    errors_show_record_bytes: bool = False
    """Whether errors about records that cannot be decoded show the first 64 bytes and the decoder's message.
    Change it: to true to examine such records, if logs may contain record contents.
    Not a key of Kafka Streams."""
    ensure_explicit_internal_resource_naming: bool = False
    """Whether to refuse a topology that has internal topics or stores with generated names.
    Change it: to true before the first deployment. A generated name may change with the topology, and then the
    existing state is lost."""
    internal_task_assignor_class: Component = None
    """The internal assignor: ``high_availability`` (default), ``legacy_sticky``, ``fallback``, or Java's class name.
    ``task.assignor.class`` has precedence.
    Change it: rarely; ``task.assignor.class`` is the public setting."""
    leave_group_on_close: Literal["auto", "always", "never"] = "auto"
    """Whether the members leave the group when the instance closes. ``close(leave_group=...)`` and ``run(drain=...)``
    have precedence. ``auto``: they leave in a Kubernetes pod, unless its name ends with the ordinal of a StatefulSet.
    They stay everywhere else. Static members never leave because of this key.
    Change it: to ``always`` when a stopped instance does not come back with its ``state.dir``, to ``never`` when it
    does.
    Not a key of Kafka Streams."""
    log_summary_interval_ms: Int = 120_000
    """Interval at which each thread logs a summary of its work; negative: never.
    Change it: down for troubleshooting."""
    max_task_idle_ms: Annotated[Int, Field(ge=-1, le=_INT64_MAX)] = 0
    """How long a task with several inputs waits for records of an empty input, to process records in time order. 0:
    only while the broker has records for it; -1: never.
    Change it: up when a producer is late and joins must be exact."""
    max_warmup_replicas: Annotated[Int, Field(ge=1, le=INT32_MAX)] = 2
    """Maximum number of warm-up tasks in the whole group at a time, in addition to standbys.
    Change it: up to balance the group sooner, at the cost of more concurrent restores."""
    metadata_max_age_ms: Millis = 300_000
    """Interval at which clients refresh topic metadata even without a reason.
    Change it: down when new topics that match a pattern must be found sooner."""
    metrics_recording_level: Literal["INFO", "DEBUG", "TRACE"] = "INFO"
    """The detail of metrics.
    Change it: to ``DEBUG`` for metrics of each task and each node; to ``TRACE`` also for the age of records when they
    are put into stores."""
    num_standby_replicas: Annotated[Int, Field(ge=0, le=INT32_MAX)] = 0
    """Number of additional instances with a copy of each task's state.
    Change it: to 1 or more when the failure of an instance must not cause minutes of restoring. Each copy costs disk
    and network."""
    num_stream_threads: Annotated[Int, Field(ge=0, le=1000)] = 1
    """Number of stream threads of this process. Python runs one thread at a time, so more threads help only while
    others wait, not for computation.
    Change it: up for work that waits. For computation, start more processes."""
    poll_ms: Millis = 100
    """Maximum time to wait for records.
    Change it: rarely."""
    probing_rebalance_interval_ms: Annotated[Int, Field(ge=60_000, le=_INT64_MAX)] = 600_000
    """Interval at which the group checks whether warm-up tasks have caught up.
    Change it: down when tasks should move sooner after a scale-out; each check is a rebalance."""
    probing_rebalance_on_catch_up: bool = True
    """Whether a member whose warm-up tasks have caught up requests the rebalance that moves them. A key of streams-py.
    Change it: to false when tasks must not move earlier than with Kafka Streams."""
    processing_exception_handler: Component = "log_and_fail"
    """Handles a record whose processing raises an error: ``log_and_fail``, ``log_and_continue``, a ``DeadLetterQueue``,
    or a function.
    Change it: when a bad record must not stop the application."""
    processing_guarantee: Literal["at_least_once", "exactly_once_v2"] = "at_least_once"
    """``exactly_once_v2``: offsets, state and results are committed together in a transaction.
    Change it: when duplicate results are worse than higher latency and less throughput."""
    production_exception_handler: Component = "default"
    """Handles a record that cannot be sent: ``default`` (retry if possible, otherwise fail), ``log_and_continue``, or a
    function.
    Change it: when records that a broker refuses, for example because of their size, may be dropped."""
    rack_aware_assignment_non_overlap_cost: Annotated[
        Int32 | None, Field(alias="rack.aware.assignment.non_overlap_cost")
    ] = None
    """Cost of moving a task, compared with the cost of traffic between racks. Default: the assignor's.
    Change it: up when rack-aware assignment moves tasks too often."""
    rack_aware_assignment_strategy: Literal["none", "min_traffic", "balance_subtopology"] = "none"
    """Whether to place tasks in the racks of their partitions' replicas: ``min_traffic`` minimises traffic between
    racks, ``balance_subtopology`` does so only while each sub-topology stays balanced.
    Change it: when traffic between racks costs money. Requires ``client.rack`` and ``broker.rack``."""
    rack_aware_assignment_tags: Texts = ()
    """Keys of client tags. A task and its standbys are placed on clients with different tag values.
    Change it: to ``zone`` when instances have ``client.tag.zone``, so that a copy survives the failure of a zone."""
    rack_aware_assignment_traffic_cost: Annotated[Int32 | None, Field(alias="rack.aware.assignment.traffic_cost")] = (
        None
    )
    """Cost of reading a partition from another rack. Default: the assignor's.
    Change it: together with ``rack.aware.assignment.non_overlap_cost``."""
    receive_buffer_bytes: Int32 = 32_768
    """Size of the socket's receive buffer; -1: the system's default.
    Change it: up for fast connections with high latency."""
    reconnect_backoff_ms: Millis = 50
    """Pause before the first attempt to reconnect to a broker; it doubles up to ``reconnect.backoff.max.ms``.
    Change it: rarely."""
    reconnect_backoff_max_ms: Millis = 1_000
    """Maximum pause between two attempts to reconnect to a broker.
    Change it: up when hundreds of clients reconnect to a broker at the same time."""
    repartition_purge_interval_ms: Millis = 30_000
    """Interval at which processed records of repartition topics are deleted.
    Change it: up to reduce the load of brokers, down when their disks are small."""
    recreated_internal_topics: Literal["stop", "continue", "strict"] = "stop"
    """What happens when a repartition or changelog topic was deleted and created again although the group has committed
    offsets, so that records or state are lost. ``stop``: the application stops with an error, unless a new version of
    the application may have added the topic; then an error is logged. ``strict``: it stops in this case too.
    ``continue``: an error is logged.
    Change it: to ``continue`` for one start, to continue with the remaining data. A key of streams-py."""
    replication_factor: Annotated[Int, Field(ge=-1, le=32_767)] = -1
    """Replication factor of internal topics; -1 is the broker's default.
    Change it: to 3 when the broker's default is less, because state can be restored only from changelogs."""
    request_timeout_ms: Annotated[Int, Field(ge=1, le=INT32_MAX)] = 40_000
    """Timeout for a broker's response.
    Change it: up when brokers are far away or overloaded."""
    restore_processes: Annotated[Int, Field(ge=1, le=2)] = 2
    """2: while large key-value stores are restored, each stream thread starts a process that reads half of the records,
    if the machine has spare processors.
    Change it: to 1 when memory is limited, or when no processes may be started. A key of streams-py."""
    retry_backoff_ms: Millis = 100
    """Pause before a failed request is retried.
    Change it: rarely."""
    send_buffer_bytes: Int32 = 131_072
    """Size of the socket's send buffer; -1: the system's default.
    Change it: up for fast connections with high latency."""
    state_cleanup_delay_ms: Millis = 600_000
    """Time after which the directories of tasks that have moved away are deleted.
    Change it: up when instances come back late and have much state, down when disks are small."""
    state_cleanup_dir_max_age_ms: Annotated[Int, Field(ge=-1, le=_INT64_MAX)] = -1
    """Maximum age of local state at startup: directories of tasks and global stores that have not changed for longer
    are deleted, and the state is restored; -1: unlimited. Changelogs keep the tombstones of keys that were deleted
    while an instance was away only for ``delete.retention.ms``, 24 hours by default. Change it: to less than that when
    instances may be away for longer, and keys are deleted."""
    state_dir: PathText = Field(default_factory=lambda: os.path.join(tempfile.gettempdir(), "kafka-streams"))
    """Directory for state. Default: ``kafka-streams`` in the temporary folder.
    Change it: always in production, to a disk that outlives the process."""
    state_snapshot_interval_ms: Annotated[Int, Field(ge=1_000, le=_INT64_MAX)] = 600_000
    """Interval at which changed state is uploaded as a snapshot.
    Change it: down to replay fewer records after a loss, up to upload less."""
    state_snapshot_store: str = ""
    """Storage for snapshots of state, as a URL that fsspec supports (``file:///...``, ``s3://...``); empty: none.
    Change it: when disks may be lost and replaying the changelogs takes too long. A key of streams-py."""
    statestore_uncommitted_max_bytes: Annotated[Int, Field(ge=1 << 20, le=_INT64_MAX)] = 64 * 1024 * 1024
    """Maximum size of a thread's uncommitted store writes in memory. When it is exceeded, the thread commits early.
    Change it: up when commits come early and memory is available, down in small containers."""
    statestore_cache_max_bytes: Millis = 10 * 1024 * 1024
    """Size of the process's record cache, which merges updates of a key until the next commit.
    Change it: to 0 to forward every update, up to forward fewer updates."""
    static_tasks: Texts | None = None
    """Tasks that this instance runs with the ``static`` assignor, as ``0_1``, ``0_0-5`` or ``2_*``.
    Change it: to pin tasks to machines."""
    static_tasks_spill: bool = False
    """With the ``static`` assignor: whether tasks on no instance's list may also run on instances with a list, if there
    are only such instances.
    Change it: to true when every task must run, listed or not."""
    static_tasks_warmup: bool = False
    """With the ``static`` assignor: whether a stateful task stays on its instance until the new instance has caught up.
    Change it: to true when lists change while the group runs."""
    task_assignor_class: Component = None
    """The task assignor (KIP-924): ``sticky``, ``static``, or a custom assignor as a class or ``module:name``. Default:
    high availability.
    Change it: when a backtest shows that another assignor is better for the group, or to use a custom assignor."""
    task_timeout_ms: Millis = 300_000
    """How long a task may make no progress because a broker does not respond, before its thread stops with an error.
    Change it: above your longest outage, if waiting is better than stopping."""
    topology_optimization: Texts = ("none",)
    """``all``, ``none``, or some of ``reuse.ktable.source.topics``, ``merge.repartition.topics``,
    ``single.store.self.join``. Must also be passed to ``StreamsBuilder.build``.
    Change it: to ``all`` before the first deployment; later it changes names, see ``streams-py check-upgrade``."""
    upgrade_from: str | None = None
    """The release of the other members of the group, during the first of two rolling restarts.
    Change it: when you upgrade from an old release of Kafka Streams whose documentation requires it."""
    windowstore_changelog_additional_retention_ms: Millis = 86_400_000
    """Additional retention of a window store's changelog, beyond the retention of the store.
    Change it: up when the clocks of producers are wrong by more than a day."""

    clients: Mapping[str, SkipValidation[str]] = Field(default_factory=dict, exclude=True)
    """Settings of the Kafka clients, by their whole key."""
    topics: Mapping[str, str] = Field(default_factory=dict, exclude=True)
    """Settings of internal topics (``topic.<key>``), without the prefix."""
    client_tags: Mapping[str, str] = Field(default_factory=dict, exclude=True)
    """Tags of this instance (``client.tag.<key>``), without the prefix."""
    app: Mapping[str, Any] = Field(default_factory=dict, exclude=True)
    """Settings of the application itself (``app.<key>``), without the prefix."""
    original: Mapping[str, Any] = Field(default_factory=dict, exclude=True)
    """The settings as they were given, by key."""
