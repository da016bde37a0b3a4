"""Making internal topics ready: describe, create what is missing, wait, again; until a deadline.

Kafka Streams' ``InternalTopicManager.makeReady`` without the waiting: :class:`TopicSetup` says what to do next and is
told what came of it. A topic that exists with the right count is ready; with another count it is an error that only
the user can resolve, because deleting it would lose data. A topic whose leader is not known yet is left alone for a
round, and one that "already exists" although it could not be described is probably being deleted: both are waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.leader.effects import CreateTopics, DescribeTopics, Effect, Log, Wait
from streams_py.leader.events import TopicsCreated, TopicsDescribed, WaitEnded
from streams_py.ports import AdminError, AdminErrorKind, PartitionInfo, TopicSpec

__all__ = ["TopicSetup"]

_WARNING = 30  # logging.WARNING, without importing logging into the core


class TopicSetup:
    """Brings a set of topics into existence. ``newly_created`` are the topics this call created."""

    def __init__(self, specs: Mapping[str, TopicSpec], *, now_ms: int, timeout_ms: int, retry_backoff_ms: int) -> None:
        self._not_ready = dict(sorted(specs.items()))
        self._deadline_ms = now_ms + timeout_ms
        self._timeout_ms = timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self.newly_created: set[str] = set()

    @property
    def done(self) -> bool:
        """True when every topic is ready."""
        return not self._not_ready

    def start(self) -> tuple[Effect, ...]:
        """First effects; none when there is nothing to do."""
        return () if self.done else (DescribeTopics(tuple(self._not_ready)),)

    def handle(self, event: TopicsDescribed | TopicsCreated | WaitEnded) -> tuple[Effect, ...]:
        """Next effects; none when :attr:`done`. StreamsError when it cannot be done, BrokerUnavailableError too
        late."""
        match event:
            case TopicsDescribed():
                return self._on_described(event)
            case TopicsCreated():
                return self._on_created(event)
            case WaitEnded():
                return self.start()
            case _:
                assert_never(event)

    def _on_described(self, event: TopicsDescribed) -> tuple[Effect, ...]:
        to_create = []
        for name, spec in list(self._not_ready.items()):
            answer = event.topics.get(name) or AdminError(AdminErrorKind.UNKNOWN_TOPIC, "not in the answer")
            if not isinstance(answer, AdminError):
                self._check_count(spec, answer)
                del self._not_ready[name]
                continue
            match answer.kind:
                case AdminErrorKind.UNKNOWN_TOPIC:
                    to_create.append(spec)
                case AdminErrorKind.LEADER_NOT_AVAILABLE | AdminErrorKind.TIMED_OUT:
                    pass
                case AdminErrorKind.ALREADY_EXISTS | AdminErrorKind.UNSUPPORTED | AdminErrorKind.OTHER:
                    raise StreamsError(f"internal topic {name} cannot be described: {answer.message}")
                case _:
                    assert_never(answer.kind)
        if to_create:
            return (CreateTopics(tuple(to_create)),)
        return self._wait(event.now_ms)

    def _on_created(self, event: TopicsCreated) -> tuple[Effect, ...]:
        for name, error in event.results.items():
            if name not in self._not_ready:
                continue
            if error is None:
                self.newly_created.add(name)
                del self._not_ready[name]
                continue
            self._check_creation(self._not_ready[name], error)
        return self._wait(event.now_ms)

    def _wait(self, now_ms: int) -> tuple[Effect, ...]:
        if self.done:
            return ()
        names = ", ".join(self._not_ready)
        if now_ms >= self._deadline_ms:
            raise BrokerUnavailableError(
                f"internal topics {names} are not ready after {self._timeout_ms} ms (half of max.poll.interval.ms); "
                "the next rebalance tries again. If they are being deleted, wait until that is done"
            )
        return (
            Log(_WARNING, f"internal topics {names} are not ready; next try in {self._retry_backoff_ms} ms"),
            Wait(self._retry_backoff_ms),
        )

    @staticmethod
    def _check_count(spec: TopicSpec, partitions: tuple[PartitionInfo, ...]) -> None:
        if len(partitions) != spec.partitions:
            raise StreamsError(
                f"internal topic {spec.name} exists with {len(partitions)} partitions, but {spec.partitions} are "
                "needed. Either the source topics changed their partition count or another application uses this "
                "application.id: reset the application (delete its internal topics), or use another application.id"
            )

    @staticmethod
    def _check_creation(spec: TopicSpec, error: AdminError) -> None:
        match error.kind:
            case AdminErrorKind.ALREADY_EXISTS | AdminErrorKind.TIMED_OUT:
                return
            case AdminErrorKind.UNSUPPORTED if spec.replication_factor != -1:
                return
            case AdminErrorKind.UNSUPPORTED:
                raise StreamsError(
                    f"the brokers cannot create internal topic {spec.name} with their default replication factor "
                    f"({error.message}); set replication.factor to a number, or upgrade them to 2.4 or later"
                )
            case _:
                raise StreamsError(f"internal topic {spec.name} cannot be created: {error.message}")
