"""Five rebalances and what happened around them, with every table that follows, as files.

``python -m tests.support.telemetry.golden`` writes missing files; one that exists is never written again.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from streams_py.telemetry.fold import Output
from streams_py.telemetry.schemas import TABLES
from tests.support.events.kit import Recorder
from tests.support.leader.kit import member
from tests.support.telemetry.history import MINUTE_MS, History, Stored, cluster, fold

FOLDER: Final = Path(__file__).parents[2] / "golden" / "telemetry"
EVENTS: Final = FOLDER / "events.jsonl"


def history() -> History:
    """A second client comes, a third one warms up; one task is restored, one is interrupted, one thread is busy."""
    made = History(Recorder(acceptable_recovery_lag=100, num_standby_replicas=1))
    four = cluster()
    running = {f"0_{n}": -2 for n in range(4)}
    zones = {1: {"zone": "a"}, 2: {"zone": "a"}, 3: {"zone": "b"}}

    def rebalance(**members: tuple[int, str, dict[str, int]]) -> None:
        made.rebalance(
            {m: member(n, owned=own, sums=sums, tags=zones[n]) for m, (n, own, sums) in members.items()}, on=four
        )

    rebalance(a=(1, "", {}))
    made.later(MINUTE_MS)
    for _ in range(3):
        made.sample(1, busy_us=[70, 10, 10, 10], input_lag=[5, 0, 0, 0])
        made.later(MINUTE_MS)
    rebalance(a=(1, "in-0 in-1 in-2 in-3", running), b=(2, "", {"0_1": 950, "0_3": 10}))
    made.last_record(1, "0_1", ago_ms=30)
    made.task(1, "0_1", "suspended")
    made.later(1_000)
    rebalance(a=(1, "in-0 in-2 in-3", {"0_0": -2, "0_2": -2, "0_3": -2}), b=(2, "", {"0_1": 950, "0_3": 10}))
    made.task(2, "0_1", "restore_started", records_total=50, stores=("counts",))
    made.later(800)
    made.task(2, "0_1", "restored", records=50, took_us=750_000)
    made.task(2, "0_1", "first_record", since_assigned_us=900_000)
    made.later(10 * MINUTE_MS)
    two = {"0_0": -2, "0_2": -2, "0_3": -2, "0_1": 990}
    rebalance(a=(1, "in-0 in-2 in-3", two), b=(2, "in-1", {"0_1": -2, "0_3": 1_000}), c=(3, "", {}))
    made.task(3, "0_2", "restore_started", records_total=900, stores=("counts",))
    made.later(MINUTE_MS)
    made.task(3, "0_2", "lost")
    rebalance(a=(1, "in-0 in-2", two), b=(2, "in-1", {"0_1": -2, "0_3": 1_000}), c=(3, "", {"0_2": 950}))
    return made


def stored() -> list[Stored]:
    """The records in the file."""
    lines = EVENTS.read_text(encoding="utf-8").splitlines()
    found = (json.loads(line) for line in lines)
    return [Stored(line["append_ms"], line["offset"], line["value"].encode()) for line in found]


def tables(outputs: Iterable[Output]) -> dict[str, str]:
    """Each table as CSV, rows sorted by key; nested values are JSON."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for output in outputs:
        if output.table in found:
            found[output.table].append({"day": output.day, **output.row})
    return {name: _csv(rows, ("day", *TABLES[name].key)) for name, rows in found.items()}


def _csv(rows: list[dict[str, Any]], key: tuple[str, ...]) -> str:
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in sorted(rows, key=lambda row: [str(row[name]) for name in key]):
            writer.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list | dict | bool):
        return json.dumps(value, sort_keys=True)
    return round(value, 9) if isinstance(value, float) else value


def _write_missing(path: Path, text: str) -> None:
    if not path.exists():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    records = history().records
    lines = [json.dumps({"append_ms": r.append_ms, "offset": r.offset, "value": r.value.decode()}) for r in records]
    _write_missing(EVENTS, "\n".join(lines) + "\n")
    for table, text in tables(fold(stored())).items():
        _write_missing(FOLDER / f"{table}.csv", text)
