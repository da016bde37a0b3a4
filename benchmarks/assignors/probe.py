"""Runs a scenario with this library, alone in a new process.

python -m benchmarks.assignors.probe SCENARIO JDK_18_AND_OLDER|JDK_19_AND_NEWER RUNS_MIN RUNS_MAX BUDGET_S

prints one JSON object with the processor time of each run in seconds, the outcome, and the largest resident memory in
MB. The garbage collector is enabled, as in an application. A scenario may also be ``leader/10000x1000/r1/joined``, the
leader's step, or ``leader-hosts/...``, the same with end points.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.assignors.leader_step import leader_step
from benchmarks.assignors.scenarios import MIN_TRAFFIC, Scenario, exchange, outcome_of, place, problem_of, rack_case
from streams_py.assignment.java_order import HashSizing


def _peak_mb() -> float:
    """Return the largest resident memory of this process so far, in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


def _work(scenario: Scenario, sizing: HashSizing) -> Callable[[], Callable[[], str]]:
    """Return a function that runs the scenario and returns a function for its outcome."""
    if scenario.assignor.startswith("leader"):
        step = leader_step(scenario, end_points=scenario.assignor == "leader-hosts")

        def lead() -> Callable[[], str]:
            step.run()
            return str

        return lead
    if scenario.assignor == MIN_TRAFFIC:
        case = rack_case(scenario)

        def trade() -> Callable[[], str]:
            owners = exchange(case)
            return lambda: str(case.cost(owners))

        return trade
    problem = problem_of(scenario, sizing)

    def decide() -> Callable[[], str]:
        placements = place(scenario.assignor, problem)
        return lambda: outcome_of(placements)

    return decide


def _main(name: str, sizing: str, runs_min: int, runs_max: int, budget_s: float) -> None:
    work = _work(Scenario.parse(name), HashSizing[sizing])
    seconds: list[float] = []
    began = time.monotonic()
    while len(seconds) < runs_max and (len(seconds) < runs_min or time.monotonic() - began < budget_s):
        started = time.process_time()
        outcome = work()
        seconds.append(time.process_time() - started)
    peak_mb = _peak_mb()
    print(json.dumps({"seconds": seconds, "outcome": outcome(), "peak_mb": peak_mb}))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
