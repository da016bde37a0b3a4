"""Kafka Streams' assignors on the JVM, compiled against Kafka's own jars, with the same scenarios as this library."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.assignors.scenarios import MIN_TRAFFIC, NON_OVERLAP_COST, TRAFFIC_COST, Scenario, problem_of, rack_case
from benchmarks.cluster import BenchmarkError
from benchmarks.java_peers import compiled
from streams_protocol.types import TaskId
from streams_py.assignment.java_order import HashSizing

_MAIN: Final = "org.apache.kafka.streams.processor.internals.assignment.AssignorPeer"
_LARGE: Final = 2_000_000  # number of lags from which the JVM gets more memory
_WALL_FACTOR: Final = 10  # maximum ratio of real time to processor time of a run, for busy machines
_JDK_19: Final = 19


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for warm-up and timeout of the JVM. Times in seconds."""

    runs_min: int = 3
    runs_max: int = 400
    budget_s: float = 8.0
    """Minimum time of all runs together, so that everything is compiled."""
    limit_s: float = 60.0
    """Processor time after which a run is stopped."""


@dataclass(frozen=True, slots=True)
class JvmRuns:
    """Processor time of each warm run, in seconds. ``gave_up_s``: time after which a run was stopped instead."""

    seconds: tuple[float, ...]
    outcome: str | None
    gave_up_s: float | None


def prepare(folder: Path) -> list[str]:
    """Compile the peer; return the command to start it. Raises BenchmarkError if that is not possible."""
    return compiled("AssignorPeer.java", folder)


def hash_sizing(command: Sequence[str]) -> HashSizing:
    """Return the rule by which this Java sizes hash tables, which affects decisions of the sticky assignors."""
    text = subprocess.run([command[0], "-version"], capture_output=True, text=True, check=False).stderr
    major = int(text.split('"')[1].split(".")[0])
    return HashSizing.JDK_19_AND_NEWER if major >= _JDK_19 else HashSizing.JDK_18_AND_OLDER


def run_on_jvm(command: Sequence[str], scenario: Scenario, sizing: HashSizing, limits: Limits, folder: Path) -> JvmRuns:
    """Run one scenario in a new JVM until it is warm."""
    path = folder / "problem.json"
    path.write_text(json.dumps(_document(scenario, sizing)))
    heap = "-Xmx8g" if scenario.tasks * scenario.clients > _LARGE else "-Xmx2g"
    order = [str(path), str(limits.runs_min), str(limits.runs_max), str(limits.budget_s), str(limits.limit_s)]
    stdin, alive = os.pipe()  # the JVM stops when this process closes its end of the pipe, in any way
    process = subprocess.Popen(
        [command[0], heap, *command[1:], _MAIN, *order],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(stdin)
    wall_s = _WALL_FACTOR * (limits.limit_s * limits.runs_min + limits.budget_s) + 60
    try:
        out, err = process.communicate(timeout=wall_s)
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"{scenario}: the JVM did not finish within {wall_s:,.0f} s of real time") from None
    finally:
        os.close(alive)
        process.kill()
        process.wait()
    if process.returncode:
        reason = (err.strip() or f"exit code {process.returncode}").splitlines()[0][:200]
        raise BenchmarkError(f"{scenario}: the JVM failed: {reason}")
    return _read([json.loads(line) for line in out.splitlines()], scenario)


def _read(lines: list[dict[str, float | str]], scenario: Scenario) -> JvmRuns:
    seconds = [float(line["seconds"]) for line in lines if "seconds" in line]
    outcomes = {str(line["outcome"]) for line in lines if "outcome" in line}
    if len(outcomes) > 1:
        raise BenchmarkError(f"{scenario}: the JVM decided differently from run to run")
    gave_up = next((float(line["gave_up"]) for line in lines if "gave_up" in line), None)
    warm = seconds[len(seconds) // 2 :] if len(seconds) > 3 else seconds
    return JvmRuns(tuple(warm), next(iter(outcomes), None), gave_up)


def _document(scenario: Scenario, sizing: HashSizing) -> dict[str, object]:
    if scenario.assignor == MIN_TRAFFIC:
        case = rack_case(scenario)
        return {
            "assignor": MIN_TRAFFIC,
            "replicas": 0,
            "traffic_cost": TRAFFIC_COST,
            "non_overlap_cost": NON_OVERLAP_COST,
            "tasks": [[str(task), 0] for task in case.tasks],
            "racks": [[sorted(racks) for racks in case.racks[task]] for task in case.tasks],
            "clients": [
                {"id": str(c), "rack": case.rack_of[c], "lags": [], "active": [], "standby": []} for c in case.clients
            ],
        }
    problem = problem_of(scenario, sizing)
    number: dict[TaskId, int] = {task: position for position, task in enumerate(problem.tasks)}
    return {
        "assignor": scenario.assignor,
        "replicas": scenario.replicas,
        "tasks": [[str(task), problem.end_offset_sums[task]] for task in problem.tasks],
        "clients": [
            {
                "id": str(client.process_id),
                "rack": "",
                "lags": [[number[task], lag] for task, lag in client.lags.items()],
                "active": [number[task] for task in client.previous_active],
                "standby": [number[task] for task in client.previous_standby],
            }
            for client in problem.clients
        ],
    }
