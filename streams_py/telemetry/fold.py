"""Builds all tables of a group in one pass over its events.

Events must be in the order of :mod:`streams_py.telemetry.order`. The fold keeps only data that later events need
(owners of tasks, unfinished operations), so memory does not grow with the history.

At the end of each day, and on request (:meth:`GroupFold.snapshot`), the fold writes its state as text. A fold that
starts from this text and processes the remaining events creates the same rows as a fold over all events. So a stream
gives the same tables as a batch. New events are usually folded from the saved state. If an event arrives late, the days
from its day on are folded again.

Some rows are valid until the next event: the present placement, and unfinished operations. They are created at the end
of a day. Before, they are *open* rows (:meth:`GroupFold.open_rows`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from streams_protocol import DecodeError
from streams_py.events.codec import decode_event
from streams_py.events.model import ClientPart, Event, RebalanceHeader, Sample, TaskEvent, TasksPart
from streams_py.events.parts import WholeRebalance, join_rebalance
from streams_py.telemetry.clocks import Clocks
from streams_py.telemetry.downtime import Downtimes
from streams_py.telemetry.facts import Facts
from streams_py.telemetry.hot_tasks import HotTasks
from streams_py.telemetry.moves import moves, unknown_base
from streams_py.telemetry.ownership import Ownership, ownership_of
from streams_py.telemetry.placement import balance, balance_summary, placements, spread
from streams_py.telemetry.replay import canonical_input, weighed
from streams_py.telemetry.restores import Restores
from streams_py.telemetry.schemas import STATE_TABLE
from streams_py.telemetry.warmups import Warmups

Row = dict[str, Any]

_RECENT: Final = 64
"""Sequence numbers that are kept of each process to detect repeated records, which arrive within seconds."""
_COUNTS: Final = ("clients", "consumers", "tasks", "stateful", "active", "standby", "warmup", "withheld", "moved")
_CURRENT: Final = ("task", "client", "role", "rebalance_id", "member", "lag")
_IDS_KEPT: Final = 8
_FINISHED_KEPT: Final = 64
"""Ids of the last complete rebalances that are kept, because a producer may repeat a part of one."""
_BEGUN_KEPT: Final = 16
_DAY_MS: Final = 86_400_000
_OK: Final = "ok"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Output(NamedTuple):
    """A row of a table. ``day`` is counted from 1970-01-01. Times in ``row`` are ms since the epoch."""

    table: str
    day: int
    row: Row


def day_of(append_ms: int) -> int:
    """Return the day of an append time, in UTC, counted from 1970-01-01."""
    return (_EPOCH + timedelta(milliseconds=append_ms) - _EPOCH).days


class GroupFold:
    """The fold of one group: call :meth:`feed` for events in order, then :meth:`finish`.

    ``state`` is the text of an earlier fold, from the end of a day or from :meth:`snapshot`.
    """

    def __init__(self, state: str | None = None) -> None:
        given: Mapping[str, Any] = json.loads(state) if state else {}
        self._epoch: int = given.get("epoch", 0)
        self._generation: int = given.get("generation", -1)
        previous = given.get("previous")
        self._previous = None if previous is None else Ownership.from_json(previous)
        self._since: dict[str, int] = dict(given.get("since", {}))
        self._current: list[Row] = list(given.get("current", []))
        self._states: dict[str, str] = dict(given.get("states", {}))
        self._recent: dict[str, list[int]] = {key: list(of) for key, of in given.get("recent", {}).items()}
        self._ids: dict[str, str] = dict(given.get("ids", ()))
        self._warmups = Warmups(given.get("warmups"))
        self._restores = Restores(given.get("restores"))
        self._gaps = Downtimes(given.get("gaps"), given.get("working"))
        self._clocks = Clocks(given.get("clocks"))
        self._hot_tasks = HotTasks(given.get("hot_tasks"))
        self._day: int | None = given.get("day")
        self._finished: list[str] = list(given.get("finished", ()))
        self._begun: list[str] = list(given.get("begun", ()))
        self._parts: dict[int, RebalanceHeader | TasksPart | ClientPart] = {}
        self._header_ms = 0

    # -- events --------------------------------------------------------------------------------------------------------

    def feed(self, value: bytes, sort_ms: int, append_ms: int) -> Iterator[Output]:
        """Process one record.

        Args:
            value: the value of the record.
            sort_ms: place of the record, or of its header for a part of a rebalance, see
                :mod:`streams_py.telemetry.order`.
            append_ms: append time of the record.
        """
        try:
            event = decode_event(value)
        except DecodeError:  # an earlier release has accepted the event for bronze
            return
        if not isinstance(event, Event):
            return
        body = event.body
        part = body if isinstance(body, RebalanceHeader | TasksPart | ClientPart) else None
        if part is not None and self._has_part(part.rebalance_id, part.part):
            return  # a repeated part has no new information, not even about a clock
        day = day_of(sort_ms)
        if self._day is not None and day > self._day:
            yield from self._end_of_day()
        self._day = day
        self._clocks.seen(append_ms, sort_ms)
        for row in self._hot_tasks.advance(sort_ms):
            yield Output("offender", day, row)
        if part is not None:
            yield from self._part(event, part, sort_ms, append_ms)
            return
        if self._is_repeated(event):
            return
        self._clocks.note(event.envelope.process, event.envelope.at_ms, append_ms, sort_ms)
        if isinstance(body, TaskEvent):
            yield from self._task_event(event, body)
        elif isinstance(body, Sample):
            self._hot_tasks.sample(body, sort_ms)

    def finish(self) -> Iterator[Output]:
        """End the last day. No events follow."""
        if self._day is not None:
            yield from self._end_of_day()

    def _has_part(self, rebalance_id: str, part: int) -> bool:
        """Whether a part of a rebalance was processed before."""
        if rebalance_id in self._finished:
            return True
        return bool(self._parts) and self._parts[0].rebalance_id == rebalance_id and part in self._parts

    def has_begun(self, rebalance_id: str) -> bool:
        """Whether this is one of the last incomplete rebalances whose header was processed."""
        return rebalance_id in self._begun

    def has_finished(self, rebalance_id: str) -> bool:
        """Whether this is one of the last complete rebalances."""
        return rebalance_id in self._finished

    def snapshot(self) -> str:
        """Return the state in the middle of a day. Parts of an incomplete rebalance are not included."""
        return self._state(day=self._day)

    def open_rows(self) -> Iterator[Output]:
        """Yield the rows that a day would have if it ended now: the placement, and unfinished operations."""
        if self._day is None:
            return
        for current in self._current:
            key = f"{current['task']} {current['client']} {current['role']}"
            state = self._states.get(f"{current['task']} {current['client']}")
            since = self._since[key]
            of_key, of_last = {name: current[name] for name in _CURRENT[:-1]}, {"since": since, "state": state}
            yield Output("placement_current", self._day, {**of_key, **of_last, "lag": current["lag"]})
        for row in self._restores.under_way():
            yield Output("restore", self._day, row)

    def _is_repeated(self, event: Event) -> bool:
        envelope = event.envelope
        recent = self._recent.setdefault(f"{envelope.process} {envelope.run}", [])
        if envelope.seq in recent:
            return True
        recent.append(envelope.seq)
        del recent[:-_RECENT]
        return False

    # -- rebalances ----------------------------------------------------------------------------------------------------

    def _part(
        self, event: Event, body: RebalanceHeader | TasksPart | ClientPart, sort_ms: int, append_ms: int
    ) -> Iterator[Output]:
        if isinstance(body, RebalanceHeader) and body.part == 0:
            self._parts, self._header_ms = {0: body}, sort_ms
            self._begun = [*self._begun, body.rebalance_id][-_BEGUN_KEPT:]
            self._clocks.note(event.envelope.process, event.envelope.at_ms, append_ms, sort_ms)
        elif self._parts and self._parts[0].rebalance_id == body.rebalance_id:
            self._parts[body.part] = body
        else:
            return
        try:
            whole = join_rebalance(self._parts)
        except DecodeError:
            self._parts = {}
            return
        if whole is not None:
            yield from self._rebalance(whole)
            self._parts = {}
            self._begun = [name for name in self._begun if name != body.rebalance_id]
            self._finished = [*self._finished, body.rebalance_id][-_FINISHED_KEPT:]

    def _rebalance(self, whole: WholeRebalance) -> Iterator[Output]:
        assert self._day is not None
        header, at_ms, day = whole.header, self._header_ms, self._day
        if header.generation < self._generation:
            self._epoch += 1
            self._previous, self._generation = None, -1
        known = self._previous is not None and header.generation <= self._generation + 1
        is_first = self._generation < 0 and self._epoch == 0 and tuple(header.trigger) == ("first",)
        self._generation = header.generation
        self._ids.pop(f"{header.generation}", None)
        self._ids[f"{header.generation}"] = header.rebalance_id
        for old in list(self._ids)[:-_IDS_KEPT]:
            del self._ids[old]
        yield Output("rebalance", day, self._rebalance_row(whole, at_ms))
        if header.outcome != _OK or not whole.clients:
            return
        facts, now, work = Facts(whole), ownership_of(whole), self._hot_tasks.work()
        text = canonical_input(weighed(whole, work))
        tasks = sum(piece.count for piece in whole.slices)
        row: Row = {"rebalance_id": header.rebalance_id, "input": text, "tasks": tasks, "clients": len(whole.clients)}
        yield Output("rebalance_input", day, row)
        placed = list(placements(now, facts))
        for table, rows in (("placement", placed), ("balance", balance(facts, work)), ("spread", spread(facts))):
            for row in rows:
                yield Output(table, day, row)
        yield Output("balance_summary", day, balance_summary(facts, work))
        if known or is_first:
            before = self._previous if known and self._previous is not None else Ownership("")
            for row in moves(before, now, facts):
                if row["kind"].startswith("move_"):
                    self._hot_tasks.moved(row["task"])
                yield Output("move", day, row)
        else:
            yield Output("move", day, unknown_base(header.rebalance_id))
        for row in self._warmups.advance(now, facts, at_ms):
            yield Output("warmup", day, row)
        self._remember(now, placed, at_ms)

    def _rebalance_row(self, whole: WholeRebalance, at_ms: int) -> Row:
        header = whole.header
        error = header.error
        return {
            "rebalance_id": header.rebalance_id,
            "generation": header.generation,
            "epoch": self._epoch,
            "at": at_ms,
            "trigger": list(header.trigger),
            "assignor": header.assignor.name,
            "outcome": header.outcome,
            "error_type": None if error is None else error.type,
            "error_text": None if error is None else error.text,
            **{name: header.counts.get(name, 0) for name in _COUNTS},
            "duration_us": dict(sorted(header.duration_us.items())),
            "lag_ok": header.lag_ok,
            "parts": header.parts,
            "complete": True,
            "stable": header.outcome == _OK and not header.followups and not header.counts.get("withheld", 0),
        }

    def _remember(self, now: Ownership, placed: Iterable[Row], at_ms: int) -> None:
        since: dict[str, int] = {}
        self._current = []
        for row in placed:
            key = f"{row['task']} {row['client']} {row['role']}"
            since[key] = self._since.get(key, at_ms)
            self._current.append({name: row[name] for name in _CURRENT})
        self._since = since
        self._previous = now

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _task_event(self, event: Event, body: TaskEvent) -> Iterator[Output]:
        assert self._day is not None
        envelope = event.envelope
        if body.event not in ("first_record", "last_record", "restore_progress", "warm"):
            self._states[f"{body.task} {envelope.process}"] = body.event
        if body.event == "restore_started" and not self._restores.has_begun(envelope, body):
            self._hot_tasks.restored(str(body.task))
        row = self._restores.feed(envelope, body)
        if row is not None:
            yield Output("restore", self._day, row)
        if body.event == "last_record":
            row = self._gaps.last_record(envelope, body, self._clocks)
            if row is not None:
                yield Output("gap", self._day, row)
        elif body.event == "first_record":
            found = self._ids.get(f"{body.generation}")
            row = self._gaps.first_record(envelope, body, self._clocks, found)
            if row is not None:
                yield Output("gap", self._day, row)

    # -- the end of a day ----------------------------------------------------------------------------------------------

    def _end_of_day(self) -> Iterator[Output]:
        assert self._day is not None
        self._clocks.forget((self._day + 1) * _DAY_MS)
        for row in self._restores.forget(self._clocks.knows):
            yield Output("restore", self._day, row)
        yield from self.open_rows()
        self._forget()
        yield Output(STATE_TABLE, self._day, {"state": self._state()})

    def _forget(self) -> None:
        """Remove data of processes and copies that no longer exist.

        This happens also in memory, so that a running fold equals a fold that starts from the text.
        """
        assert self._day is not None
        wanted = {f"{row['task']} {row['client']}" for row in self._current}
        self._states = {key: state for key, state in self._states.items() if key in wanted}
        self._recent = {key: of for key, of in self._recent.items() if self._clocks.knows(key.partition(" ")[0])}

    def _state(self, day: int | None = None) -> str:
        value = {
            "day": day,
            "epoch": self._epoch,
            "generation": self._generation,
            "previous": None if self._previous is None else self._previous.to_json(),
            "since": self._since,
            "current": self._current,
            "states": self._states,
            "recent": self._recent,
            "ids": list(self._ids.items()),
            "finished": self._finished,
            "begun": self._begun,
            "warmups": self._warmups.to_json(),
            "restores": self._restores.to_json(),
            "gaps": self._gaps.to_json(),
            "working": self._gaps.begun_to_json(),
            "clocks": self._clocks.to_json(),
            "hot_tasks": self._hot_tasks.to_json(),
        }
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
