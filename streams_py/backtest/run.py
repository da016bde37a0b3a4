"""A complete run in this process: claim the folder, evaluate, summarise, and write the summary and the report.

The engine without Spark evaluates one situation after the other. Situations are first distributed to files by the
beginning of their hash. So memory does not grow with their number, equal situations are in one file, and a killed run
can continue.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from streams_py.backtest.folder import PREFIXES, SCORES, RunFolder
from streams_py.backtest.kernel import COLUMNS, NO_SCENARIO, Bench, Orders, Row
from streams_py.backtest.loop.outside import Segments, is_segment
from streams_py.backtest.sources import Recorded
from streams_py.backtest.summary import Summary, summarise
from streams_py.backtest.verdict import Verdict
from streams_py.errors import ConfigError

__all__ = ["evaluate_locally", "finish", "read_scores", "run_local"]

_BUFFER_BYTES: Final = 32 << 20
_TYPES: Final[dict[str, Any]] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}
SCHEMA: Final[Any] = pa.schema([(name, _TYPES[kind]) for name, kind in COLUMNS.items()])
"""The schema of the score table for Arrow."""

Tick = Callable[[int, int], None]


def run_local(
    orders: Orders, situations: Iterable[str], folder: RunFolder, tick: Tick = lambda _done, _all: None
) -> int:
    """Evaluate all situations, and the histories that they form. Returns the number of situations.

    ``tick`` is called with the number of finished situations and the number of all situations.
    """
    bench = Bench(orders)
    spool = Path(folder.path("_inputs"))
    folder.files.remove("_inputs")
    total = _deal(situations, spool, with_histories=orders.replays_events)
    done = folder.done()
    finished = 0
    for prefix in PREFIXES:
        texts = _dealt(spool, prefix)
        if prefix not in done and texts:
            rows = [
                row
                for input_hash, (text, seen) in sorted(texts.items())
                for row in bench.rows(text, input_hash=input_hash, seen=seen)
            ]
            _write(rows, Path(folder.path(SCORES, f"prefix={prefix}")))
            folder.mark_done(prefix, prefix)
        finished += sum(seen for text, seen in texts.values() if not is_segment(text))
        if texts:
            tick(finished, total)
    folder.files.remove("_inputs")
    return finished


def _deal(situations: Iterable[str], spool: Path, *, with_histories: bool) -> int:
    """Distribute situations, and the segments of their histories, to files. Returns the number of situations."""
    spool.mkdir(parents=True)
    histories: dict[str, Segments] = {}
    out = _Spool(spool)
    total = 0
    for text in situations:
        total += 1
        out.add(text)
        if with_histories:
            history = histories.setdefault(text.group if isinstance(text, Recorded) else "", Segments())
            for segment in history.add(text):
                out.add(segment)
    for history in histories.values():
        for segment in history.finish():
            out.add(segment)
    out.flush()
    return total


class _Spool:
    """Writes texts to files by the beginning of their hash."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: dict[str, list[str]] = {}
        self._size = 0

    def add(self, text: str) -> None:
        self._waiting.setdefault(_hash(text)[:2], []).append(text)
        self._size += len(text)
        if self._size > _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        for prefix, texts in self._waiting.items():
            with (self._folder / prefix).open("a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(text)}\n" for text in texts)
        self._waiting.clear()
        self._size = 0


def _dealt(spool: Path, prefix: str) -> dict[str, tuple[str, int]]:
    """Return hash -> (text, number of repetitions)."""
    found: dict[str, tuple[str, int]] = {}
    path = spool / prefix
    if path.exists():
        with path.open(encoding="utf-8") as file:
            for line in file:
                text = json.loads(line)
                key = _hash(text)
                found[key] = (text, found.get(key, ("", 0))[1] + 1)
    return found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(rows: list[Row], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    draft = folder / "_scores.parquet"
    pq.write_table(table, draft)
    draft.replace(folder / "scores.parquet")


def fingerprint_of(orders: Orders, inputs: str) -> str:
    """Return a text that identifies a run by its orders and inputs."""
    return json.dumps({**json.loads(orders.fingerprint()), "inputs": inputs})


def evaluate_locally(
    orders: Orders,
    situations: Iterable[str],
    out: str | Path,
    *,
    inputs: str = "",
    resume: bool = False,
    base: str | None = None,
    tick: Tick = lambda _done, _all: None,
) -> Summary:
    """Evaluate situations in this process, without Spark, and write the scores to the folder ``out``.

    Args:
        orders: the orders of the run.
        situations: the situations.
        out: the folder of the run.
        inputs: the origin of the situations. It must be the same for a resumed run.
        resume: continue an interrupted run.
        base: the candidate with which the others are compared.
        tick: called with the number of finished situations and the number of all situations.

    Raises:
        ConfigError: the folder is not empty, a candidate cannot be imported, a setting is not valid, or there are no
            situations.
    """
    folder = RunFolder(str(out))
    with folder.claimed(fingerprint_of(orders, inputs), resume=resume):
        run_local(orders, situations, folder, tick)
        names = [candidate.name for candidate in orders.candidates]
        summary = summarise(read_scores(folder), names, orders.all_scenarios, base=base)
        check_found(summary, inputs)
    return summary


def check_found(summary: Summary, inputs: str) -> None:
    """Raise ConfigError without situations, or if a what-if does not fit any situation."""
    if not summary.situations:
        raise ConfigError(
            f"{inputs or 'the input'} has no complete rebalance; was assignment.events.level set when it was recorded?"
        )
    if not any(summary.distributions.values()):
        unfit = next((finding for finding in summary.findings if finding.kind == NO_SCENARIO), None)
        if unfit is not None:
            raise ConfigError(f"--what-if {unfit.scenario!r} fits none of the situations: {unfit.text}")


def read_scores(folder: RunFolder) -> Iterator[Row]:
    """Yield all rows of a local folder, prefix by prefix."""
    root = Path(folder.path(SCORES))
    for place in sorted(root.glob("prefix=*")):
        rows: list[Row] = []
        for path in sorted(place.glob("*.parquet")):
            rows += pq.read_table(path, schema=SCHEMA, partitioning=None).to_pylist()
        yield from sorted(rows, key=lambda row: (row["input_hash"], row["scenario"], row["candidate"]))


def finish(folder: RunFolder, summary: Summary, verdict: Verdict, page: str) -> str:
    """Write the summary with the verdict, and the report. Returns the path of the report."""
    value = {**json.loads(summary.to_json()), "verdict": asdict(verdict)}
    folder.files.write_text(json.dumps(value, indent=1) + "\n", "summary.json")
    folder.files.write_text(page, "report.html")
    return folder.path("report.html")
