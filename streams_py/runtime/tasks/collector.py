"""The way out of a task: changelog records, dead letters, and what happens when a send fails.

Kafka Streams' ``RecordCollectorImpl``. Sends are asynchronous: the broker's refusal of a record surfaces at a later
send or at the flush of a commit, and without the record itself. Sinks are in :mod:`streams_py.runtime.tasks.sinks`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final, TypeAlias

from streams_protocol.types import TaskId
from streams_py.errors import ProductionError, StreamsError, TaskCorrupted
from streams_py.ports import DirectSend, Headers, RecordProducer
from streams_py.runtime.tasks.handlers import Answer, DeadLetter, ErrorContext, Origin, ask
from streams_py.runtime.tasks.task_settings import TaskSettings

__all__ = ["NO_DIRECT_SEND", "ChangelogWriter", "RecordCollector", "handle_send_error"]

_log = logging.getLogger(__name__)

ChangelogWriter: TypeAlias = Callable[..., None]
"""log(key bytes, value bytes or None, timestamp_ms, headers=None); timestamp -1 = the producer's clock."""


NO_DIRECT_SEND: Final = DirectSend(lambda *_: None, None, (StreamsError("every record goes through the producer"),))
"""For producers without a direct way: one failure that is always there."""


def handle_send_error(
    error: ProductionError, settings: TaskSettings, context: ErrorContext, sharing: Collection[TaskId]
) -> tuple[DeadLetter, ...]:
    """What becomes of a record that the broker refused: returns (with records to write instead) when it is dropped,
    raises otherwise.

    ``sharing``: all tasks that write with this producer. The refusal does not say which of them sent the record, so a
    RETRY takes all of them back to their last commit; rolling back only one of them could lose the record.
    """
    response = ask(settings.production_handler, replace(context, origin=Origin.SEND), None, error)
    if response.answer is Answer.CONTINUE:
        _log.warning("dropping a record that could not be written to %s: %s", error.topic, error)
        return response.dead_letters
    if response.answer is Answer.RETRY and error.retriable:
        raise TaskCorrupted(
            f"a record for {error.topic} was not written ({error}); processing again from the last commit",
            dict.fromkeys(sharing, ()),
        ) from error
    raise ProductionError(
        f"{error}; to pass over such records set production.exception.handler to log_and_continue or to one of yours",
        topic=error.topic,
        partition=error.partition,
        retriable=error.retriable,
    ) from error


class RecordCollector:
    """Sends of one task. ``sharing`` gives the ids of all tasks that use the same producer (default: only this one)."""

    def __init__(
        self,
        task_id: TaskId,
        producer: RecordProducer,
        settings: TaskSettings,
        *,
        sharing: Callable[[], Collection[TaskId]] | None = None,
    ) -> None:
        self.task_id = task_id
        self.producer = producer
        self.settings = settings
        self._sharing = sharing or (lambda: (task_id,))

    def changelog_writer(self, topic: str, partition: int) -> ChangelogWriter:
        """The function that writes to one changelog partition (full topic name)."""
        produce = self.producer.produce
        send, report, failures = self.producer.direct(topic, partition) or NO_DIRECT_SEND
        send_after = self.send_after
        where = ErrorContext(None, -1, -1, -1, (), f"changelog {topic}", self.task_id)

        def log(
            key: bytes, value: bytes | None, timestamp_ms: int, headers: list[tuple[str, bytes | None]] | None = None
        ) -> None:
            if timestamp_ms <= 0 or failures:
                return log_checked(key, value, timestamp_ms, headers)
            try:
                send(topic, value, key, partition, report, None, timestamp_ms, headers)
            except Exception:
                log_checked(key, value, timestamp_ms, headers)
            return None

        def log_checked(
            key: bytes, value: bytes | None, timestamp_ms: int, headers: list[tuple[str, bytes | None]] | None
        ) -> None:
            try:
                produce(topic, value, key, partition, None, timestamp_ms, headers)
            except ProductionError as error:
                send_after(error, where, topic, value, key, partition, None, timestamp_ms, headers)

        return log

    def write(self, letters: Iterable[DeadLetter]) -> None:
        """Send records of an exception handler."""
        for letter in letters:
            self.producer.produce(
                letter.topic, letter.value, letter.key, -1, None, letter.timestamp_ms, as_list(letter.headers)
            )

    def refused(self, error: ProductionError, context: ErrorContext) -> None:
        """An earlier record was refused: returns when it is to be dropped, raises otherwise."""
        self.write(handle_send_error(error, self.settings, context, self._sharing()))

    def send_after(self, error: ProductionError, context: ErrorContext, *record: object) -> None:
        """Send a record (arguments of ``produce``) that was not taken because an earlier one was refused with
        ``error``; raises unless the production handler lets that one be dropped."""
        while True:
            self.refused(error, context)
            try:
                self.producer.produce(*record)
            except ProductionError as another:
                error = another
            else:
                return

    def check(self) -> None:
        """After a flush: raise what went wrong, unless the production handler lets it pass."""
        try:
            self.producer.check()
        except ProductionError as error:
            self.refused(error, ErrorContext(None, -1, -1, -1, (), "commit", self.task_id))


def as_list(headers: Headers) -> list[tuple[str, bytes | None]] | None:
    """Headers as librdkafka's binding takes them: a list, or None for none."""
    if not headers:
        return None
    return headers if type(headers) is list else list(headers)
