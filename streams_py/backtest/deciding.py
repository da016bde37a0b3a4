"""Asks a candidate for a decision and checks the answer.

The code under test may be a draft. It may raise an error, call ``sys.exit``, never return, return invalid values,
change its input, or decide differently in a second call. All of this becomes a value. Only the decision itself is
timed. A decision that takes less than 10 ms is made three times, and the median counts. A user's class is always called
at least twice, because decisions that differ between calls cannot be compared.
"""

from __future__ import annotations

import contextlib
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.api import AssignmentError, TaskAssignor
from streams_py.assignment.assignors.draining import DrainingAssignor, is_draining
from streams_py.assignment.assignors.fallback import FallbackPriorAssignor
from streams_py.assignment.assignors.registry import assignor_name, call_assignor, new_task_assignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor
from streams_py.assignment.problem import BuiltInAssignor, Placement
from streams_py.backtest.candidates import Chosen
from streams_py.backtest.inputs import RecordedDecision
from streams_py.backtest.situation import Situation
from streams_py.errors import StreamsError
from streams_py.leader.steps.custom import read_assignment
from streams_py.system.printable import named

OK: Final = "ok"
_QUICK_NS: Final = 10_000_000
_ERROR_CHARS_MAX: Final = 300


class Followup(StrEnum):
    """Whether the candidate requests a follow-up rebalance, and when."""

    NONE = "none"
    AT_ONCE = "at_once"
    LATER = "later"


class Placed(NamedTuple):
    """The tasks of one client, ascending. ``standby`` does not include warm-ups."""

    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    warmup: tuple[TaskId, ...] = ()


class Failure(NamedTuple):
    """The reason for a missing decision.

    ``kind`` is ``raised``, ``too_slow``, ``changes_input``, ``not_deterministic``, or the violated rule, such as
    ``missing_process_id``.
    """

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A decision by client name, or a failure. A recorded decision has no times."""

    placed: Mapping[str, Placed]
    followup: Followup = Followup.NONE
    failure: Failure | None = None
    ns_wall: int | None = None
    ns_cpu: int | None = None


def recorded_answer(decision: RecordedDecision) -> Answer:
    """Return a recorded decision as an answer."""
    return Answer(
        {
            name: Placed(tuple(of.active), tuple(of.standby), tuple(of.warmup))
            for name, of in sorted(decision.clients.items())
        }
    )


def ask(chosen: Chosen, situation: Situation, *, seed: int, limit_s: float, once: bool = False) -> Answer:
    """Let a candidate decide. ``once``: do not repeat the call, for the rounds after the first."""
    try:
        run = _built_in(chosen, situation) if chosen.built_in is not None else _custom(chosen, situation, seed)
        first, followup, times = _timed(run, seed, limit_s)
        repeats = 0 if once else _repeats(times[0].wall, is_ours=chosen.is_ours)
        for _ in range(repeats):
            again, _, more = _timed(run, seed, limit_s)
            if again != first:
                return _failed("not_deterministic", _differs(first, again))
            times += more
    except _OutOfTime:
        return _failed("too_slow", f"gave no answer within {limit_s:g} s")
    except _RefusedError as refused:
        return Answer({}, failure=refused.failure)
    except SystemExit as error:
        return _failed("raised", f"SystemExit: {error}")
    except StreamsError as error:
        cause = error.__cause__
        return _failed("raised", named(cause) if cause is not None else str(error))
    except Exception as error:
        return _failed("raised", named(error))
    wall = statistics.median_low([time.wall for time in times])
    return Answer(first, followup, ns_wall=wall, ns_cpu=statistics.median_low([time.cpu for time in times]))


class _Time(NamedTuple):
    wall: int
    cpu: int


_Decided = tuple[dict[str, Placed], Followup]
_Run = Callable[[], tuple[_Decided, _Time]]


class _OutOfTime(BaseException):
    """The time limit has elapsed. Not an Exception, because code under test may catch those."""


class _RefusedError(Exception):
    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.failure = Failure(kind, _cut(text))


def _failed(kind: str, text: str) -> Answer:
    return Answer({}, failure=Failure(kind, _cut(text)))


def _cut(text: str) -> str:
    return text if len(text) <= _ERROR_CHARS_MAX else f"{text[: _ERROR_CHARS_MAX - 3]}..."


def _repeats(first_ns: int, *, is_ours: bool) -> int:
    return 2 if first_ns < _QUICK_NS else 0 if is_ours else 1


def _timed(run: _Run, seed: int, limit_s: float) -> tuple[dict[str, Placed], Followup, list[_Time]]:
    random.seed(seed)
    with _limited(limit_s):
        (placed, followup), took = run()
    return placed, followup, [took]


@contextlib.contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """Interrupt Python code when the time limit has elapsed. Works only in the main thread; others have no limit."""
    if limit_s <= 0 or threading.current_thread() is not threading.main_thread():
        yield
        return

    def out_of_time(_signal: int, _frame: Any) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGALRM, out_of_time)
    signal.setitimer(signal.ITIMER_REAL, limit_s, 1.0)  # repeated every second, in case the code catches it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- the two ways to decide --------------------------------------------------------------------------------------------


def _built_in(chosen: Chosen, situation: Situation) -> _Run:
    """Call a built-in assignor as the leader does.

    Without lags, only the legacy sticky assignor is called; others are replaced by the fallback. With lags, clients
    that drain get no tasks.
    """

    def run() -> tuple[_Decided, _Time]:
        assert chosen.built_in is not None
        assignor: BuiltInAssignor = chosen.built_in()
        if not situation.replay.lag_ok and not isinstance(assignor, LegacyStickyAssignor):
            assignor = FallbackPriorAssignor()
        problem = situation.problem
        if situation.replay.lag_ok and any(map(is_draining, problem.clients)):
            assignor = DrainingAssignor(assignor)
        began_cpu, began = time.process_time_ns(), time.perf_counter_ns()
        decision = assignor.decide(problem)
        took = _Time(time.perf_counter_ns() - began, time.process_time_ns() - began_cpu)
        warmups: dict[ProcessId, set[TaskId]] = {}
        for task, process in decision.warmups:
            warmups.setdefault(process, set()).add(task)
        followup = Followup.LATER if decision.probing else Followup.NONE
        return (_by_name(decision.placements, situation, warmups), followup), took

    return run


def _custom(chosen: Chosen, situation: Situation, seed: int) -> _Run:
    """Call a class as KIP-924 defines it: create an instance, configure it, call it, and check the result."""
    kind = chosen.task_assignor
    assert kind is not None
    name = assignor_name(kind)
    configs = {**chosen.candidate.overrides, "seed": seed}

    def run() -> tuple[_Decided, _Time]:
        problem = situation.fresh_problem()
        state = situation.application_state(problem)
        began_cpu, began = time.process_time_ns(), time.perf_counter_ns()
        assignor: TaskAssignor = new_task_assignor(kind, configs)
        returned = call_assignor(assignor, state)
        took = _Time(time.perf_counter_ns() - began, time.process_time_ns() - began_cpu)
        if not chosen.is_ours and problem != situation.fresh_problem():
            raise _RefusedError("changes_input", f"{name} changes its input; copy values before you change them")
        answer = read_assignment(returned, situation.application_state(problem), name)
        if answer.error is not AssignmentError.NONE:
            raise _RefusedError(answer.error.name.lower(), answer.error.value)
        followup = Followup.NONE
        if answer.deadlines:
            now_ms = datetime.now(UTC).timestamp() * 1000
            followup = Followup.AT_ONCE if min(answer.deadlines.values()) <= now_ms else Followup.LATER
        return (_by_name(answer.placements, situation, {}), followup), took

    return run


def _by_name(
    placements: Mapping[ProcessId, Placement], situation: Situation, warmups: Mapping[ProcessId, set[TaskId]]
) -> dict[str, Placed]:
    placed = {}
    for process, of in placements.items():
        warm = warmups.get(process, set())
        standby = sorted(of.standby)
        placed[situation.names[process]] = Placed(
            tuple(sorted(of.active)),
            tuple(task for task in standby if task not in warm),
            tuple(task for task in standby if task in warm),
        )
    return dict(sorted(placed.items()))


def _differs(first: Mapping[str, Placed], again: Mapping[str, Placed]) -> str:
    for name, placed in first.items():
        if again.get(name) != placed:
            return f"two calls for one situation gave client {name} different tasks; use configs['seed'] for randomness"
    return "two calls for one situation gave different answers; use configs['seed'] for randomness"
