"""The thread that reads the group, for all open pages together.

Each round sends one small request to the group's coordinator. Topics, lags and the leader are requested when that
response has changed, and otherwise at an interval. The interval for lags grows with the time that they take.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from streams_protocol.types import ProcessId, TaskId
from streams_py.dashboard.board import Board
from streams_py.dashboard.history import EventTail, History
from streams_py.dashboard.picture import held_over, moves_between, picture, task_lags
from streams_py.errors import StreamsError
from streams_py.inspection.gather import Cluster, Reading, describe, find_election, read_group, with_lags
from streams_py.inspection.labels import Labels
from streams_py.inspection.reasons import Reasons, explain_reading
from streams_py.inspection.sentences import reason_text
from streams_py.inspection.view import CLASSIC, STREAMS, GroupView

_log = logging.getLogger(__name__)

_METADATA_S: Final = 30.0
_LAGS_S: Final = 2.0
_LAGS_SHARE: Final = 10
"""Requests for lags take at most one part in this number of the time."""
_ELECTION_S: Final = 1.0
_MOVES_MAX: Final = 200
_STABLE: Final = "Stable"


class GroupWatcher:
    """Watches a group and publishes its state to a board.

    The parts of the board are ``group``, ``lags``, ``history`` and ``trouble``.

    Args:
        cluster: The cluster of the group.
        group: The application.id.
        board: The content of the page.
        every_s: Pause between two rounds, in seconds.
        events_topic: Topic of the group's events.
        configs: Settings of the group for :meth:`why`, as in
            :func:`~streams_py.inspection.reasons.explain_group`.
        assignor: Assignor of the group for :meth:`why`.

    Raises:
        StreamsError: The group does not exist or is not a Kafka Streams group, or ``events_topic`` does not exist.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        board: Board,
        *,
        every_s: float = 0.5,
        events_topic: str | None = None,
        configs: Mapping[str, object] | None = None,
        assignor: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._board = board
        self._every_s = every_s
        self._configs, self._assignor = configs, assignor
        self._labels = Labels()
        self._history = History()
        self._tail = EventTail(events_topic or f"{group}-assignment-events", group, self._history)
        self._moves: deque[dict[str, Any]] = deque(maxlen=_MOVES_MAX)
        self._reading = read_group(cluster, group)
        if events_topic is not None and events_topic not in self._reading.topics:
            raise StreamsError(f"events topic {events_topic} does not exist; check the name")
        self._read_s = time.monotonic()
        self._at_rest: Reading | None = None
        self._shown: GroupView | None = None
        self._next_lags_s = 0.0
        self._stopping = threading.Event()
        self._why_lock = threading.Lock()
        self._why: tuple[Reading, Reasons] | None = None
        self._thread = threading.Thread(target=self._run, name=f"dashboard-{group}", daemon=True)

    def start(self) -> None:
        """Start to watch. Publishes a complete first board before it returns."""
        self._show(self._reading)
        self._thread.start()

    def stop(self) -> None:
        """Stop. Waits for the running round."""
        self._stopping.set()
        self._thread.join()
        self._tail.close()
        self._board.close()

    def why(self, task: TaskId) -> str:
        """Return the reasons for the place of a task, as lines. Computes them once per rebalance.

        Raises:
            StreamsError: The reasons are not available, with the cause.
        """
        with self._why_lock:
            reading = self._at_rest
            if reading is None:
                raise StreamsError(f"group {self._group} is rebalancing; try again after the rebalance")
            if self._why is None or self._why[0] is not reading:
                reasons = explain_reading(self._cluster, reading, configs=self._configs, assignor=self._assignor)
                self._why = reading, reasons
            reasons = self._why[1]
        if task not in reasons.tasks:
            raise StreamsError(f"group {self._group} has no task {task}")
        members = {member.member_id: self._labels.of(member.member_id) for member in reasons.view.members}
        letters = self._labels.processes
        names: dict[ProcessId, str] = {
            member.subscription.process_id: letters[member.process]
            for member in reasons.view.members
            if member.subscription is not None
        }
        lines = [reason_text(reasons.tasks[task], reasons.assignor, members, names)]
        lines += [f"  {text}" for text in reasons.assumed]
        return "\n".join(lines)

    # -- rounds --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._round()
                trouble = None
            except StreamsError as error:
                trouble = " ".join(str(error).split())
            except Exception:  # the page stays, and shows that this round failed
                _log.exception("reading group %s failed", self._group)
                trouble = "reading the group failed; see the log of the command"
            self._board.publish("trouble", {"text": trouble})
            self._stopping.wait(self._every_s)

    def _round(self) -> None:
        described = describe(self._cluster, self._group)
        now_s = time.monotonic()
        if described != self._reading.described or now_s - self._read_s > _METADATA_S:
            elected = self._reading.view.election
            reading = read_group(self._cluster, self._group, election=False)
            if described == self._reading.described:  # only time has passed
                reading = replace(reading, view=replace(reading.view, election=elected))
            self._read_s = now_s
            self._show(reading)
            if described != reading.described:
                return  # the group changed meanwhile; the next round reads it again
            if reading.view.election is None and reading.view.state == _STABLE and reading.view.protocol == CLASSIC:
                self._show(self._with_election(reading))
        if now_s >= self._next_lags_s and self._at_rest is not None:
            self._show_lags(self._at_rest)
            took_s = time.monotonic() - now_s
            self._next_lags_s = time.monotonic() + max(_LAGS_S, _LAGS_SHARE * took_s)
        counts = self._reading.partition_counts
        self._tail.follow(self._cluster.admin, self._cluster.consumer, counts.get(self._tail.topic, 0))
        self._tail.read(self._every_s)
        self._show_history()

    def _with_election(self, reading: Reading) -> Reading:
        found = find_election(self._cluster, self._group, reading.partition_counts, seconds_max=_ELECTION_S)
        if found is None:
            return reading
        return replace(reading, view=replace(reading.view, election=found, generation=found.generation))

    # -- showing -------------------------------------------------------------------------------------------------

    def _show(self, reading: Reading) -> None:
        self._reading = reading
        view = reading.view
        is_at_rest = view.state == _STABLE or (view.protocol == STREAMS and bool(view.members))
        self._at_rest = reading if is_at_rest else None
        if not is_at_rest and self._shown is not None:
            view = held_over(self._shown, view)
        self._put(view)

    def _show_lags(self, reading: Reading) -> None:
        view = with_lags(self._cluster.admin, reading)
        self._put(view)
        self._board.publish("lags", task_lags(view))

    def _put(self, view: GroupView) -> None:
        before, self._shown = self._shown, _with_known_lags(view, self._shown)
        self._board.publish("group", picture(self._shown, self._labels))
        if before is not None:
            moves = list(moves_between(before, self._shown, self._labels, time.time_ns() // 1_000_000))
            self._moves.extendleft(moves)
        self._show_history()

    def _show_history(self) -> None:
        shown = () if self._shown is None else self._shown.members
        labels = {member.member_id: self._labels.of(member.member_id) for member in shown}
        self._board.publish(
            "history",
            {
                "events": self._tail.topic if self._tail.topic in self._reading.topics else None,
                "rebalances": self._history.rebalances,
                "restores": self._history.restores(labels),
                "moves": list(self._moves),
            },
        )


def _with_known_lags(view: GroupView, before: GroupView | None) -> GroupView:
    """Return ``view`` with unknown lags of copies taken from ``before``."""
    if before is None:
        return view
    known = {
        (task.id, copy.member_id): copy.lag for task in before.tasks for copy in task.copies if copy.lag is not None
    }
    if not known:
        return view
    tasks = tuple(
        replace(
            task,
            copies=tuple(
                copy if copy.lag is not None else replace(copy, lag=known.get((task.id, copy.member_id)))
                for copy in task.copies
            ),
        )
        if task.copies
        else task
        for task in view.tasks
    )
    return replace(view, tasks=tasks)
