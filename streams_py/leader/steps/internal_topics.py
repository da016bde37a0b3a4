"""Setup of internal topics: describe, create missing topics, wait, repeat until a deadline.

Source: Kafka Streams' ``InternalTopicManager.makeReady``, but without blocking: :class:`TopicSetup` yields requests and
receives the answers. A topic that exists with the right partition count is ready. A wrong count is an error that only
the user can resolve, because deleting the topic would lose data. Two kinds of topics are retried in the next round: a
topic without a known leader, and a topic that "already exists" but could not be described. The latter is probably being
deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import assert_never

from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.leader.effects import CreateTopics, DescribeTopics, Log, Steps, Wait, ask
from streams_py.leader.events import TopicsCreated, TopicsDescribed
from streams_py.ports import AdminError, AdminErrorKind, PartitionInfo, TopicSpec

_WARNING = 30  # logging.WARNING, without importing logging into the core


class TopicSetup:
    """Creates or checks a set of topics. ``newly_created`` are the topics that it created."""

    def __init__(
        self,
        specs: Mapping[str, TopicSpec],
        *,
        now_ms: int,
        timeout_ms: int,
        retry_backoff_ms: int,
        before_creating: Callable[[Collection[str]], Steps[None]] | None = None,
    ) -> None:
        """``before_creating`` receives the names of the topics that do not exist.

        It may raise StreamsError.
        """
        self._before_creating = before_creating
        self._not_ready = dict(sorted(specs.items()))
        self._deadline_ms = now_ms + timeout_ms
        self._timeout_ms = timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self.newly_created: set[str] = set()

    @property
    def done(self) -> bool:
        """Whether every topic is ready."""
        return not self._not_ready

    def run(self) -> Steps[None]:
        """Create or check the topics.

        Raises:
            StreamsError: a topic cannot be created or described, or has the wrong partition count.
            BrokerUnavailableError: the topics are not ready in time.
        """
        while not self.done:
            described = yield from ask(DescribeTopics(tuple(self._not_ready)))
            now_ms = described.now_ms
            missing = self._note_described(described)
            if missing and self._before_creating is not None:
                yield from self._before_creating([spec.name for spec in missing])
                # Call it once: topics that are missing in a later round were missing in this one, too.
                self._before_creating = None
            if missing:
                created = yield from ask(CreateTopics(missing))
                now_ms = created.now_ms
                self._note_created(created)
            if not self.done:
                yield from self._wait(now_ms)

    def _note_described(self, event: TopicsDescribed) -> tuple[TopicSpec, ...]:
        """Check the described topics and return the specs of missing ones."""
        missing = []
        for name, spec in list(self._not_ready.items()):
            answer = event.topics.get(name) or AdminError(AdminErrorKind.UNKNOWN_TOPIC, "not in the answer")
            if not isinstance(answer, AdminError):
                self._check_count(spec, answer)
                del self._not_ready[name]
                continue
            match answer.kind:
                case AdminErrorKind.UNKNOWN_TOPIC:
                    missing.append(spec)
                case AdminErrorKind.LEADER_NOT_AVAILABLE | AdminErrorKind.TIMED_OUT:
                    pass
                case (
                    AdminErrorKind.ALREADY_EXISTS
                    | AdminErrorKind.UNSUPPORTED
                    | AdminErrorKind.NOT_ALLOWED
                    | AdminErrorKind.OTHER
                ):
                    raise StreamsError(f"internal topic {name} cannot be described: {answer.message}")
                case _:
                    assert_never(answer.kind)
        return tuple(missing)

    def _note_created(self, event: TopicsCreated) -> None:
        for name, error in event.results.items():
            if name not in self._not_ready:
                continue
            if error is None:
                self.newly_created.add(name)
                del self._not_ready[name]
                continue
            self._check_creation(self._not_ready[name], error)

    def _wait(self, now_ms: int) -> Steps[None]:
        names = ", ".join(self._not_ready)
        if now_ms >= self._deadline_ms:
            raise BrokerUnavailableError(
                f"internal topics {names} are not ready after {self._timeout_ms} ms (half of max.poll.interval.ms); "
                "the next rebalance tries again. If the topics are being deleted, wait until the deletion is complete"
            )
        wait = Wait(self._retry_backoff_ms)
        event = yield (
            Log(_WARNING, f"internal topics {names} are not ready; retrying in {self._retry_backoff_ms} ms"),
            wait,
        )
        wait.answered_by(event)

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
