"""The assignment events of one application instance. This is the interface of the package to the runtime.

``assignment.events.level`` is ``none`` (no thread, no client, no topic), ``rebalances`` (the assignments that this
instance makes as group leader), or ``tasks`` (in addition, the changes of its own tasks).
"""

from __future__ import annotations

import platform
import time
from collections.abc import Collection, Mapping
from importlib import metadata
from typing import Final, Protocol, runtime_checkable

from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError
from streams_py.events.draft import BodyDraft
from streams_py.events.emitter import Emitter, EventProducer, Limits
from streams_py.events.model import ClientEvent, Eviction
from streams_py.events.observers import Forming, InstanceObserver, RestoreObserver, TaskObserver, Who
from streams_py.events.rebalance import library_name
from streams_py.events.tasks import RestoreEvents, TaskEvents
from streams_py.events.topic import EventTopic, EventTopicSettings
from streams_py.events.watch import AssignWatch
from streams_py.leader.settings import LeaderSettings
from streams_py.ports import Admin, Clock

_PROCESS_START_US: Final = time.monotonic_ns() // 1000


@runtime_checkable
class EventClients(Protocol):
    """The interface of a client supplier that can also create a producer for events."""

    def event_producer(self, client_id: str) -> EventProducer: ...


def monotonic_us() -> int:
    """Return the time since about the start of this process, in us."""
    return time.monotonic_ns() // 1000 - _PROCESS_START_US


def check_event_clients(config: StreamsConfig, clients: object) -> None:
    """Raise ConfigError if events are enabled, but ``default.client.supplier`` cannot write them."""
    level = config.assignment_events_level
    if level != "none" and not isinstance(clients, EventClients):
        raise ConfigError(
            f"assignment.events.level = {level!r} requires a client supplier with a method event_producer(client_id), "
            f"which {type(clients).__name__} does not have. Add it, or set assignment.events.level = none",
            key="assignment.events.level",
        )


def open_assignment_events(
    config: StreamsConfig, clients: object, admin: Admin, clock: Clock, *, process: str, client_id: str
) -> InstanceObserver:
    """Start writing the events that ``config`` enables. To be called after :func:`check_event_clients`.

    Returns:
        The observer for the runtime. It does nothing if events are disabled.
    """
    if config.assignment_events_level == "none" or not isinstance(clients, EventClients):
        return InstanceObserver()
    emitter = Emitter(
        group=config.application_id,
        process=process,
        topic=EventTopic(
            EventTopicSettings(
                name=config.assignment_events_topic or f"{config.application_id}-assignment-events",
                partitions=config.assignment_events_partitions,
                replication_factor=config.assignment_events_replication_factor,
                retention_ms=config.assignment_events_retention_ms,
            ),
            admin,
        ),
        make_producer=lambda: clients.event_producer(f"{client_id}-events-producer"),
        limits=Limits(events=config.assignment_events_queue_max, bytes=config.assignment_events_queue_bytes_max),
        clock_ms=clock.now_ms,
        monotonic_us=monotonic_us,
    )
    emitter.start()
    return AssignmentEvents(emitter, config)


class AssignmentEvents(InstanceObserver):
    """All writers of one instance's events."""

    def __init__(self, emitter: Emitter, config: StreamsConfig) -> None:
        self._emitter = emitter
        self._config = config
        self._client_event("started")

    @property
    def has_tasks(self) -> bool:
        """Whether changes of tasks are written."""
        return self._config.assignment_events_level == "tasks"

    def watch(self, settings: LeaderSettings, forming: Forming) -> AssignWatch:
        """Return a recorder for the leader of a stream thread."""
        return AssignWatch(
            self._emitter.emit, settings, group=self._config.application_id, forming=forming, monotonic_us=monotonic_us
        )

    def tasks(self, who: Who) -> TaskObserver:
        """Return a writer for changes of a stream thread's tasks. It does nothing if they are disabled."""
        if not self.has_tasks:
            return super().tasks(who)
        interval_ms = self._config.assignment_events_sample_interval_ms
        return TaskEvents(
            self._emitter.emit,
            who=who,
            monotonic_us=monotonic_us,
            wall_ms=lambda: time.time_ns() // 1_000_000,
            sample_interval_ms=interval_ms,
        )

    def restores(self, who: Who, subtopology_of: Mapping[str, int]) -> RestoreObserver:
        """Return a writer for restores of a stream thread's tasks. It does nothing if they are disabled."""
        if not self.has_tasks:
            return super().restores(who, subtopology_of)
        return RestoreEvents(self._emitter.emit, who=who, monotonic_us=monotonic_us, subtopology_of=subtopology_of)

    def evicted(self, pid: int | None, members: Collection[str]) -> None:
        """Write that this instance has removed members of a process that has ended."""
        self._emitter.emit(BodyDraft(Eviction(pid=pid, members=sorted(members))))

    def counters(self) -> Mapping[str, int]:
        """Return the counters of events; see :meth:`Emitter.counters`."""
        return self._emitter.counters()

    def close(self) -> None:
        """Write queued events for at most two seconds, and stop."""
        self._client_event("stopped")
        self._emitter.close()

    def _client_event(self, event: str) -> None:
        config = self._config
        self._emitter.emit(
            BodyDraft(
                ClientEvent(
                    event=event,
                    library=library_name(),
                    python=platform.python_version(),
                    versions=_library_versions(),
                    threads=config.num_stream_threads,
                    tags=config.client_tags,
                    rack=config.setting_for(ClientRole.MAIN_CONSUMER, "client.rack"),
                )
            )
        )


def _library_versions() -> dict[str, str]:
    found = {}
    for name in ("kafka-python", "confluent-kafka"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
