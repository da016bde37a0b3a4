"""A complete run: claim the folder, evaluate, summarise, and write the summary and the report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from streams_py.backtest.folder import SCORES, RunFolder
from streams_py.backtest.kernel import NO_SCENARIO, Orders, Row
from streams_py.backtest.local import SCHEMA, Tick, run_local
from streams_py.backtest.summary import Summary, summarise
from streams_py.backtest.verdict import Verdict
from streams_py.errors import ConfigError

__all__ = ["check_found", "evaluate_locally", "fingerprint_of", "finish", "read_scores"]


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
    """Yield all rows of a folder of this machine, prefix by prefix."""
    import pyarrow.parquet as pq

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
