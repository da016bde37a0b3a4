"""Replays a segment of a history with one candidate: a score row for each outside event.

First, the candidate's group comes to rest from the recorded situation. This does not count, because another assignor
has caused this situation. Then the events are applied one after the other. If the candidate fails, the replay stops.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from streams_py.backtest.candidates import Chosen
from streams_py.backtest.deciding import OK, Answer, ask
from streams_py.backtest.loop.outside import OutsideEvent, Segment
from streams_py.backtest.loop.way import EventCosts
from streams_py.backtest.loop.world import CandidateGroup
from streams_py.backtest.rounds import RoundSettings, Settled, advance, settle
from streams_py.backtest.situation import Plan, Situation
from streams_py.errors import StreamsError

UNASSIGNED: Final = "unassigned"
_UNLIMITED_RATE: Final = 1 << 50  # records per second, so that all copies are complete before the next event


def event_hashes(segment_hash: str, segment: Segment) -> list[str]:
    """Return a hash for each event. It begins like the segment's hash, so that rows stay in one file."""
    digests = (
        hashlib.sha256(f"{segment_hash}\0{number}".encode()).hexdigest() for number in range(len(segment.events))
    )
    return [segment_hash[:2] + digest[2:] for digest in digests]


def replay_segment(
    chosen: Chosen, segment: Segment, segment_hash: str, *, seed: int, limit_s: float, settings: RoundSettings
) -> Iterator[dict[str, Any]]:
    """Yield columns of score rows, in the order of the events."""
    group = CandidateGroup(segment.start, segment_hash)
    run = _Run(chosen, seed, limit_s, settings)
    failed = run.come_to_rest(group, Plan(segment.start.subs))
    if failed is not None:
        yield {**failed, "error": f"before the first event: {failed['error']}"}
        return
    for event in segment.events:
        replay = group.apply(event)
        row: dict[str, Any] = {"tasks": replay.task_count, "clients": len(replay.clients)}
        failed = run.come_to_rest(group, Plan(replay.subs))
        if failed is not None:
            yield {**row, **failed, "error": f"after {_described(event)}: {failed['error']}"}
            return
        row |= run.row
        if run.row["unassigned"]:
            row["error"] = f"after {_described(event)}: {run.row['unassigned']} tasks are not assigned"
        yield row


class _Run:
    def __init__(self, chosen: Chosen, seed: int, limit_s: float, settings: RoundSettings) -> None:
        self._chosen = chosen
        self._seed = seed
        self._limit_s = limit_s
        self._settings = settings
        self.row: dict[str, Any] = {}

    def come_to_rest(self, group: CandidateGroup, plan: Plan) -> dict[str, Any] | None:
        """Bring ``group`` to rest and put the costs into ``row``. Returns a failure if the candidate fails."""
        try:
            situation = Situation(group.replay, self._chosen.candidate.overrides, plan)
            first = ask(self._chosen, situation, seed=self._seed, limit_s=self._limit_s, once=True)
            if first.failure is not None:
                return _failure(first)
            costs = EventCosts()
            settled = settle(
                self._chosen, situation, first,
                seed=self._seed, limit_s=self._limit_s, settings=self._settings, watch=costs,
            )  # fmt: skip
        except StreamsError as error:  # tasks cannot be distributed to threads, or no leader accepts the settings
            return {"valid": "raised", "error": str(error)}
        if settled.problem is not None:
            return _failure(settled.problem)
        self.row = _row(costs, settled)
        assert costs.last is not None
        last, answer, step = costs.last
        if settled.rest.stable:
            step = advance(last, answer, self._settings._replace(restore_rate=_UNLIMITED_RATE))
        group.replay = step.replay
        return None


def _row(costs: EventCosts, settled: Settled) -> dict[str, Any]:
    row = costs.row(stable=settled.rest.stable)
    return row | {"valid": UNASSIGNED if row["unassigned"] else OK} | settled.rest._asdict()


def _failure(answer: Answer) -> dict[str, Any]:
    assert answer.failure is not None
    return {"valid": answer.failure.kind, "error": answer.failure.text}


def _described(event: OutsideEvent) -> str:
    parts = [f"{len(event.gone)} left" if event.gone else "", f"{len(event.came)} joined" if event.came else ""]
    parts.append("copies were lost or fell behind" if event.copies else "")
    return " and ".join(filter(None, parts)) or "settings or topics changed"
