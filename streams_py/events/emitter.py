"""Send event records in the background, without ever blocking, slowing down or failing the caller.

:meth:`Emitter.emit` stores a reference under a lock that is never held during slow work, and returns. Everything else
happens on one daemon thread: creating JSON, creating the topic, sending, and waiting. Events that do not fit are
dropped and counted. The least important ones are dropped first: samples, then restore progress, then other task events,
and rebalances last, each as a whole. A dropped event has a sequence number too, so readers see the gap.

The emitter has its own producer. With the application's producer, events would share its queue, errors and
transactions, and a topic that refuses events could fence the producer or fail a commit.

*Limits.* Queued events and events in flight together use at most ``queue_bytes_max`` (queued: estimated size; in
flight: real size). The thread stops sending while ``_IN_FLIGHT_BYTES_MAX`` bytes are unacknowledged, so the producer's
queue stays small.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from streams_py.config.secrets import redact
from streams_py.events.codec import EventRecord
from streams_py.events.draft import Draft, Importance
from streams_py.events.model import Envelope
from streams_py.events.topic import EventTopic
from streams_py.system.printable import named

_log = logging.getLogger("streams_py.events")

_IN_FLIGHT_BYTES_MAX: Final = 2 << 20
_IDLE_S: Final = 0.5
_POLL_MS: Final = 50
_WARNING_INTERVAL_S: Final = 600.0
_CLOSE_S: Final = 2.0


class EventProducer(Protocol):
    """The producer for events: ``acks=1``, no transactions, a delivery timeout of 10 s. Not thread-safe."""

    def send(self, topic: str, record: EventRecord, on_delivery: Callable[[str | None], None]) -> None:
        """Queue a record. May raise; the record is not queued then.

        ``on_delivery`` is called from :meth:`poll` or :meth:`flush`, with None or with the reason for a failure.
        """

    def poll(self, timeout_ms: int) -> None:
        """Serve delivery reports. Waits up to ``timeout_ms`` for the first one."""

    def flush(self, timeout_ms: int) -> int:
        """Wait up to ``timeout_ms`` until all records are delivered or have failed. Returns the number of others."""

    def close(self) -> None:
        """Drop queued records and close without waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits ``assignment.events.queue.max`` (events) and ``assignment.events.queue.bytes.max``."""

    events: int = 10_000
    bytes: int = 16 << 20


@dataclass(slots=True)
class _Counters:
    offered: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)


class Emitter:
    """The background sender of events. Thread-safe.

    :meth:`start` is called once. In a forked child, all events are dropped.

    Args:
        group: The consumer group (``application.id``).
        process: The process id.
        topic: The events topic.
        make_producer: Creates the producer. Called on the emitter's thread, at the first event.
        limits: The limits of the queue.
        clock_ms: The wall clock.
        monotonic_us: A monotonic clock of this process, with any start.
        run: Id of this run. Default: a random one.
    """

    def __init__(
        self,
        *,
        group: str,
        process: str,
        topic: EventTopic,
        make_producer: Callable[[], EventProducer],
        limits: Limits,
        clock_ms: Callable[[], int],
        monotonic_us: Callable[[], int],
        run: str | None = None,
    ) -> None:
        self._group = group
        self._process = process
        self._run = run if run is not None else uuid.uuid4().hex[:16]
        self._topic = topic
        self._make_producer = make_producer
        self._limits = limits
        self._clock_ms = clock_ms
        self._monotonic_us = monotonic_us
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._queues: tuple[deque[Draft], ...] = tuple(deque() for _ in Importance)
        self._events = 0
        self._queued_bytes = 0
        self._in_flight_bytes = 0
        self._counters = _Counters()
        self._under_way: Counter[str] = Counter()
        self._lost = 0
        self._dead = False
        self._stopping = False
        self._stop_at_s = 0.0
        self._warn_not_before_s = 0.0
        self._producer: EventProducer | None = None
        self._thread = threading.Thread(target=self._work, name=f"{group}-events", daemon=True)

    # -- for any thread ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def emit(self, draft: Draft) -> None:
        """Queue an event, or drop and count it. Returns immediately and never raises."""
        try:
            size = draft.bytes_estimate
            with self._lock:
                self._take(draft, size)
                self._ready.notify()
        except Exception:  # not even the size of the draft could be estimated
            self._counters.failed["emit"] += 1

    def counters(self) -> Mapping[str, int]:
        """Return the counters of events.

        They are ``events-offered-total``, ``events-sent-total``, ``events-dropped-total`` and ``events-failed-total``,
        and the last three also by kind of event, as in ``events-dropped-total{kind=sample}``.
        """
        with self._lock:
            counters = self._counters
            metrics = {"events-offered-total": counters.offered}
            for name, by_kind in (("sent", counters.sent), ("dropped", counters.dropped), ("failed", counters.failed)):
                metrics[f"events-{name}-total"] = by_kind.total()
                metrics |= {f"events-{name}-total{{kind={kind}}}": by_kind[kind] for kind in sorted(by_kind)}
            return metrics

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Send queued events for at most ``timeout_s``, and drop and count the rest. A second call does nothing."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            self._stop_at_s = time.monotonic() + timeout_s
            self._ready.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s + 1.0)
        with self._lock:
            self._drop_everything()
            self._dead = True
        lost = self._counters.dropped.total() + self._counters.failed.total()
        if lost:
            _log.info("%d of %d assignment events were not written", lost, self._counters.offered)

    # -- the queue, under the lock -------------------------------------------------------------------------------------

    def _take(self, draft: Draft, size: int) -> None:
        counters = self._counters
        seq, counters.offered = counters.offered, counters.offered + 1
        importance = draft.importance
        if self._dead or self._stopping or os.getpid() != self._pid or not self._make_room(importance, size):
            self._drop(draft.kind)
            return
        draft.seq, draft.at_ms, draft.mono_us, draft.bytes = seq, self._clock_ms(), self._monotonic_us(), size
        self._queues[importance].append(draft)
        self._events += 1
        self._queued_bytes += size

    def _make_room(self, importance: Importance, size: int) -> bool:
        """Drop the oldest of the least important events until a new event fits.

        Returns:
            False if the new event itself is to be dropped, because no queued event is less important.
        """
        limits = self._limits
        if limits.events < 1 or size > limits.bytes:
            return False
        while self._events >= limits.events or self._queued_bytes + self._in_flight_bytes + size > limits.bytes:
            victim = next((queue for queue in self._queues[: importance + 1] if queue), None)
            if victim is None:
                return False
            self._drop(self._remove_from(victim).kind)
        return True

    def _remove_from(self, queue: deque[Draft]) -> Draft:
        draft = queue.popleft()
        self._events -= 1
        self._queued_bytes -= draft.bytes
        return draft

    def _drop(self, kind: str) -> None:
        self._counters.dropped[kind] += 1
        self._lost += 1

    def _drop_everything(self) -> None:
        for queue in self._queues:
            while queue:
                self._drop(self._remove_from(queue).kind)

    def _wait_for_event(self) -> bool:
        """Wait for an event, but not long, because delivery reports must be served. Returns whether there is one."""
        with self._lock:
            if not self._events and not self._stopping:
                self._ready.wait(_IDLE_S)
            return self._events > 0

    def _next(self) -> tuple[Draft, int] | None:
        """Return the oldest event and the number of lost events. None if all events were dropped meanwhile."""
        with self._lock:
            queue = min((queue for queue in self._queues if queue), key=lambda queue: queue[0].seq, default=None)
            return None if queue is None else (self._remove_from(queue), self._lost)

    # -- the emitter's thread ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while not self._is_time_up():
                if self._producer is not None:
                    self._producer.poll(0)
                if not self._wait_for_event():
                    if self._stopping:
                        break
                elif not self._topic.is_ready(self._warn, until_s=self._stop_at_s if self._stopping else None):
                    self._pause()
                else:
                    taken = self._next()
                    if taken is not None:
                        self._send(*taken)
        except BaseException:
            _log.exception("no more assignment events are written; the application is not affected")
        finally:
            with self._lock:
                self._dead = True
            self._end()

    def _is_time_up(self) -> bool:
        return self._stopping and time.monotonic() >= self._stop_at_s

    def _pause(self) -> None:
        with self._lock:
            if not self._stopping:
                self._ready.wait(_IDLE_S)

    def _send(self, draft: Draft, lost: int) -> None:
        kind = draft.kind
        try:
            if self._producer is None:
                self._producer = self._make_producer()
            records = draft.records(
                Envelope(
                    group=self._group,
                    process=self._process,
                    run=self._run,
                    seq=draft.seq,
                    at_ms=draft.at_ms,
                    mono_us=draft.mono_us,
                    dropped=lost,
                )
            )
        except Exception as error:
            self._failed(kind, f"cannot create an event of kind {kind}: {named(error)}")
            return
        draft.reports_missing, draft.written = len(records) + 1, 0  # the extra report is made after sending all
        self._under_way[kind] += 1
        for record in records:
            self._send_record(self._producer, record, draft)
        self._reported(draft)

    def _send_record(self, producer: EventProducer, record: EventRecord, draft: Draft) -> None:
        size = len(record.key) + len(record.value)
        while self._in_flight_bytes and self._in_flight_bytes + size > _IN_FLIGHT_BYTES_MAX and not self._is_time_up():
            producer.poll(_POLL_MS)

        def delivered(error: str | None) -> None:
            self._in_flight_bytes -= size
            if error is None:
                draft.written += 1
                self._topic.confirm()
            else:
                self._topic.doubt()
                self._warn(f"writing an assignment event failed: {error}")
            self._reported(draft)

        self._in_flight_bytes += size
        try:
            producer.send(self._topic.name, record, delivered)
        except Exception as error:
            delivered(named(error))

    def _reported(self, draft: Draft) -> None:
        """Count an event when all of its records have a delivery report.

        An event of which some records were written counts as sent, because it leaves no gap in the sequence numbers.
        """
        draft.reports_missing -= 1
        if draft.reports_missing:
            return
        self._under_way[draft.kind] -= 1
        with self._lock:
            if draft.written:
                self._counters.sent[draft.kind] += 1
            else:
                self._counters.failed[draft.kind] += 1
                self._lost += 1

    def _failed(self, kind: str, what: str) -> None:
        with self._lock:
            self._counters.failed[kind] += 1
            self._lost += 1
        self._warn(what)

    def _warn(self, what: str) -> None:
        now_s = time.monotonic()
        if now_s < self._warn_not_before_s:
            _log.debug("%s", redact(what))
            return
        self._warn_not_before_s = now_s + _WARNING_INTERVAL_S
        _log.warning(
            "%s; the application is not affected (further failures of this kind are not logged for %d minutes)",
            redact(what),
            _WARNING_INTERVAL_S / 60,
        )

    def _end(self) -> None:
        producer = self._producer
        if producer is None:
            return
        try:
            left_s = self._stop_at_s - time.monotonic() if self._stopping else 0.0
            producer.flush(max(0, int(left_s * 1000)))
            producer.close()
        except Exception:
            _log.debug("closing the producer of assignment events failed", exc_info=True)
        with self._lock:
            self._counters.failed += self._under_way
            self._lost += self._under_way.total()
