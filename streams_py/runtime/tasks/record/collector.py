"""Output of a task: changelog records, dead letters, and failures of sends.

Source: Kafka Streams' ``RecordCollectorImpl``. Sends are asynchronous: a rejected record surfaces at a later send or at
the flush of a commit. Sinks are in :mod:`streams_py.runtime.tasks.record.sinks`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Final, NoReturn, TypeAlias

from streams_protocol.types import TaskId
from streams_py.errors import BatchRefusedError, ProductionError, RecordsExpiredError, StreamsError, TaskCorruptedError
from streams_py.ports import DirectSend, RecordProducer
from streams_py.ports.record_headers import written_headers
from streams_py.runtime.tasks.settings.handlers import Answer, DeadLetter, ErrorContext, Origin, OutgoingRecord, ask
from streams_py.runtime.tasks.settings.task_settings import TaskSettings

_log = logging.getLogger(__name__)

ChangelogWriter: TypeAlias = Callable[..., None]
"""log(key bytes, value bytes or None, timestamp_ms, headers=None); timestamp -1 is the time of the send."""


NO_DIRECT_SEND: Final = DirectSend(lambda *_: None, None, (StreamsError("every record goes through the producer"),))
"""For producers without direct sends: its failure list is never empty, so no record is sent directly."""


class RecordCollector:
    """Sends of one task. ``sharing`` returns the ids of all tasks that use the producer (default: only this task)."""

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
        self._start_over: TaskCorruptedError | None = None

    def changelog_writer(self, topic: str, partition: int) -> ChangelogWriter:
        """Return a function that writes to one changelog partition (full topic name)."""
        produce = self.producer.produce
        send, report, failures = self.producer.direct(topic, partition) or NO_DIRECT_SEND
        send_after = self.send_after
        where = ErrorContext(None, -1, -1, -1, (), f"changelog {topic}", self.task_id)

        def log(
            key: bytes, value: bytes | None, timestamp_ms: int, headers: list[tuple[str, bytes | None]] | None = None
        ) -> None:
            if timestamp_ms <= 0 or headers or failures:
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

    def started_over(self) -> None:
        """Forget a failure: the task is back at its last commit and creates the missing records again."""
        self._start_over = None

    def write(self, letters: Iterable[DeadLetter], context: ErrorContext) -> None:
        """Send records of an exception handler like any other record. ``context`` is where they come from."""
        self._send_all(deque(map(_arguments, letters)), context)

    def send_after(self, error: ProductionError, context: ErrorContext, *record: object) -> None:
        """Send a record (arguments of ``produce``) that was not accepted, because an earlier record was rejected.

        Raises unless the production exception handler drops the rejected record.
        """
        waiting: deque[tuple[object, ...]] = deque(self._instead_of(error, context))
        waiting.append(record)
        self._send_all(waiting, context)

    def check(self) -> bool:
        """Raise errors of rejected records after a flush, unless the production exception handler drops the records.

        Return True if the handler had other records written instead; they must be flushed, too.
        """
        if self._start_over is not None:  # raised before, but a processor's code has caught it
            raise self._start_over
        wrote = False
        while True:
            try:
                self.producer.check()
            except ProductionError as error:
                context = ErrorContext(None, -1, -1, -1, (), "commit", self.task_id)
                letters = self._instead_of(error, context)
                wrote = wrote or bool(letters)
                self._send_all(deque(letters), context)
            else:
                return wrote

    def _send_all(self, waiting: deque[tuple[object, ...]], context: ErrorContext) -> None:
        while waiting:
            try:
                self.producer.produce(*waiting[0])
            except ProductionError as error:  # an earlier record failed; this one was not accepted
                waiting.extend(self._instead_of(error, context))
            else:
                waiting.popleft()

    def _instead_of(self, error: ProductionError, context: ErrorContext) -> list[tuple[object, ...]]:
        """Return the records to write instead of a rejected record. Raises if the handler does not drop that record.

        ``context`` only tells where the rejection surfaced: the input record of the rejected record is already gone.
        The sending task is unknown among the tasks that share the producer. So a RETRY takes all of them back to their
        last commit; rolling back only one task could lose the record.
        """
        if isinstance(error, BatchRefusedError | RecordsExpiredError):
            self._forget_refused()
            raise self._all_start_over(f"{error}; processing again from the last commit")
        if error.ends_transaction:
            self._leave_out(error, context)
        return self._answer_to(error, context)

    def _leave_out(self, error: ProductionError, context: ErrorContext) -> NoReturn:
        """Ask about all records that ended the transaction. Records that the handler drops are not sent again."""
        last: ProductionError | None = error
        while last is not None:
            if last.ends_transaction:
                error = last
                self.producer.leave_out(error, self._answer_to(error, context))
            last = self._next_refused()
        raise self._all_start_over(
            f"{error}; the record is left out, and everything else is processed again from the last commit"
        )

    def _next_refused(self) -> ProductionError | None:
        try:
            self.producer.check()
        except ProductionError as another:
            return another
        except TaskCorruptedError:  # for the other records of the transaction
            return None
        return None

    def _answer_to(self, error: ProductionError, context: ErrorContext) -> list[tuple[object, ...]]:
        """Call the production exception handler; return the records to write instead, or raise if it does not drop."""
        context = ErrorContext(None, -1, -1, -1, (), context.node, self.task_id, Origin.SEND)
        record = error.record
        outgoing = record and OutgoingRecord(
            record.topic, record.key, record.value, record.timestamp_ms, record.headers
        )
        response = ask(self.settings.production_handler, context, outgoing, error)
        if any(letter.topic == error.topic for letter in response.dead_letters):
            raise ProductionError(
                f"{error}; the production exception handler returned a dead letter for it to the same topic, "
                f"which would be rejected again: check that topic {error.topic} exists and accepts such records",
                topic=error.topic,
                partition=error.partition,
            ) from error
        instead = [_arguments(letter) for letter in response.dead_letters]
        if response.answer is Answer.CONTINUE:
            _log.warning("dropping a record that could not be written to %s: %s", error.topic, error)
            return instead
        for letter in instead:
            self._write_before_failing(letter)
        if response.answer is Answer.RETRY and error.retriable:
            self._forget_refused()
            raise self._all_start_over(
                f"a record for {error.topic} was not written ({error}); processing again from the last commit"
            ) from error
        advice = "; to drop such records, set production.exception.handler to log_and_continue or to your own handler"
        raise ProductionError(
            f"{error}{'' if error.retriable else advice}",
            topic=error.topic,
            partition=error.partition,
            retriable=error.retriable,
            record=record,
            reason=error.reason,
        ) from error

    def _all_start_over(self, text: str) -> TaskCorruptedError:
        """Return an error to raise. Nothing is committed until the tasks have handled it."""
        self._start_over = TaskCorruptedError(text, dict.fromkeys(self._sharing(), ()))
        return self._start_over

    def _forget_refused(self) -> None:
        """Drop the other rejected records: all tasks go back to their last commit and create and send them again.

        Raises errors that no handler may ignore.
        """
        count = 0
        while True:
            try:
                self.producer.check()
            except ProductionError as another:
                count += 1
                last = another
            else:
                break
        if count:
            _log.info("%d more records were not written (the last: %s)", count, last)

    def _write_before_failing(self, letter: tuple[object, ...]) -> None:
        try:
            self.producer.produce(*letter)
        except StreamsError as another:
            # Nothing is committed, so both records will be processed again.
            _log.warning("a dead letter for %s was not written: %s", letter[0], another)


def _arguments(letter: DeadLetter) -> tuple[object, ...]:
    """Return a dead letter as arguments of ``produce``."""
    headers = written_headers(letter.topic, tuple(letter.headers))
    return (letter.topic, letter.value, letter.key, -1, None, letter.timestamp_ms, headers)
