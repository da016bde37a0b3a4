"""A segment of a history, lived through by one candidate: a row for each outside event.

First the candidate's group comes to rest from the recorded situation, which costs nothing: another assignor had made
it. Then event follows event. A candidate that fails is not followed any further.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from streams_py.backtest.candidates import Chosen
from streams_py.backtest.deciding import OK, Answer, ask
from streams_py.backtest.loop.outside import OutsideEvent, Segment
from streams_py.backtest.loop.way import Way
from streams_py.backtest.loop.world import World
from streams_py.backtest.rounds import RoundSettings, Settled, advance, settle
from streams_py.backtest.situation import Plan, Situation
from streams_py.errors import StreamsError

__all__ = ["event_hashes", "lived_through"]

UNASSIGNED: Final = "unassigned"
_AT_LEISURE: Final = 1 << 50  # records a second: whatever is missing is there before the next event


def event_hashes(segment_hash: str, segment: Segment) -> list[str]:
    """A name for each event, which begins as that of the segment does: rows stay in one file with it."""
    digests = (
        hashlib.sha256(f"{segment_hash}\0{number}".encode()).hexdigest() for number in range(len(segment.events))
    )
    return [segment_hash[:2] + digest[2:] for digest in digests]


def lived_through(
    chosen: Chosen, segment: Segment, segment_hash: str, *, seed: int, limit_s: float, settings: RoundSettings
) -> Iterator[dict[str, Any]]:
    """Columns of score rows, in the order of the events."""
    world = World(segment.start, segment_hash)
    run = _Run(chosen, seed, limit_s, settings)
    failed = run.come_to_rest(world, Plan(segment.start.subs))
    if failed is not None:
        yield {**failed, "error": f"before the first event: {failed['error']}"}
        return
    for event in segment.events:
        replay = world.strike(event)
        row: dict[str, Any] = {"tasks": replay.task_count, "clients": len(replay.clients)}
        failed = run.come_to_rest(world, Plan(replay.subs))
        if failed is not None:
            yield {**row, **failed, "error": f"after {_told(event)}: {failed['error']}"}
            return
        row |= run.row
        if run.row["unassigned"]:
            row["error"] = f"after {_told(event)}: {run.row['unassigned']} tasks are given to nobody"
        yield row


class _Run:
    def __init__(self, chosen: Chosen, seed: int, limit_s: float, settings: RoundSettings) -> None:
        self._chosen = chosen
        self._seed = seed
        self._limit_s = limit_s
        self._settings = settings
        self.row: dict[str, Any] = {}

    def come_to_rest(self, world: World, plan: Plan) -> dict[str, Any] | None:
        """Leaves the group at rest in ``world``, and the cost in ``row``; a row when the candidate fails."""
        try:
            situation = Situation(world.replay, self._chosen.candidate.overrides, plan)
            first = ask(self._chosen, situation, seed=self._seed, limit_s=self._limit_s, once=True)
            if first.failure is not None:
                return _failure(first)
            way = Way()
            settled = settle(
                self._chosen, situation, first,
                seed=self._seed, limit_s=self._limit_s, settings=self._settings, watch=way,
            )  # fmt: skip
        except StreamsError as error:  # tasks that cannot be dealt to threads, settings that no leader would accept
            return {"valid": "raised", "error": str(error)}
        if settled.problem is not None:
            return _failure(settled.problem)
        self.row = _row(way, settled)
        assert way.last is not None
        last, answer, step = way.last
        if settled.rest.stable:
            step = advance(last, answer, self._settings._replace(restore_rate=_AT_LEISURE))
        world.replay = step.replay
        return None


def _row(way: Way, settled: Settled) -> dict[str, Any]:
    row = way.row(stable=settled.rest.stable)
    return row | {"valid": UNASSIGNED if row["unassigned"] else OK} | settled.rest._asdict()


def _failure(answer: Answer) -> dict[str, Any]:
    assert answer.failure is not None
    return {"valid": answer.failure.kind, "error": answer.failure.text}


def _told(event: OutsideEvent) -> str:
    parts = [f"{len(event.gone)} left" if event.gone else "", f"{len(event.came)} came" if event.came else ""]
    parts.append("copies were lost or fell behind" if event.copies else "")
    return " and ".join(filter(None, parts)) or "settings or topics changed"
