"""A history of many rebalances, and its tables."""

from __future__ import annotations

from streams_protocol import LATEST_OFFSET
from tests.support.events.kit import Recorder
from tests.support.leader.kit import member, pid
from tests.support.telemetry.history import HOUR_MS, MINUTE_MS, History

ALL = "in-0 in-1 in-2 in-3"

P1, P2 = str(pid(1)), str(pid(2))


def running(*numbers: int) -> dict[str, int]:
    return {f"0_{n}": LATEST_OFFSET for n in numbers}


def grown() -> History:
    """Alone; a second client comes and two tasks are withheld from it; then they are handed over."""
    history = History(Recorder(acceptable_recovery_lag=10_000))
    history.rebalance({"a": member(1)})
    history.later(MINUTE_MS)
    both = {"a": member(1, owned=ALL, sums=running(0, 1, 2, 3)), "b": member(2, sums={"0_1": 990, "0_3": 990})}
    history.rebalance(both)
    history.later(1_000)
    released = {"a": member(1, owned="in-0 in-2", sums=running(0, 2)), "b": member(2, sums={"0_1": 990, "0_3": 990})}
    history.rebalance(released)
    return history


def split_ddl(text: str) -> list[str]:
    """Columns of a DDL string; commas inside <> do not count."""
    parts, depth = [""], 0
    for char in text:
        depth += {"<": 1, ">": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def long_history() -> History:
    """Five days with rebalances, task events, samples, and a third client that warms up and takes over."""
    history = History(Recorder(acceptable_recovery_lag=0, num_standby_replicas=1), clock_off_ms={P2: 300_000})
    owned = {1: {0, 1, 2, 3}, 2: set[int]()}
    for day in range(5):
        for number in range(4):
            members = {
                f"m{process}": member(
                    process,
                    owned=" ".join(f"in-{n}" for n in sorted(mine)),
                    sums=running(*mine) | {f"0_{n}": 900 + 10 * number + day for n in range(4) if n not in mine},
                    tags={"zone": "x"},
                )
                for process, mine in owned.items()
                if mine or process == 1 or day
            }
            if day >= 3:
                members["m3"] = member(3, sums={f"0_{n}": 1_000 for n in range(4)} if day == 4 else {})
            history.rebalance(members)
            history.later(MINUTE_MS)
            if number % 2:
                task = (day + number) % 4
                old, new = (1, 2) if task in owned[1] else (2, 1)
                history.last_record(old, f"0_{task}", ago_ms=500)
                history.task(new, f"0_{task}", "restore_started", records_total=5, stores=("counts",))
                history.later(700)
                if day % 2:
                    history.task(new, f"0_{task}", "restored", records=5, took_us=700_000)
                history.task(new, f"0_{task}", "first_record", since_assigned_us=1)
                owned[old].discard(task)
                owned[new].add(task)
            history.sample(1, busy_us=[900, 10, 10, 10], input_lag=[day * 100 + number, 0, 0, None])
            history.later(7 * MINUTE_MS)
        history.later(20 * HOUR_MS)
    return history
