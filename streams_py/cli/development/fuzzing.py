"""``streams-py fuzz``: damaged bytes for every decoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from streams_py.cli.usage import refuse
from streams_py.testing.fuzz import TARGETS, FuzzResult, find_vectors, fuzz_target

_PIECE = 2_000
_HEX_SHOWN_MAX = 400


def run_fuzz(inputs: int, *, seed: int, targets: Sequence[str] | None, vectors: Path | None) -> int:
    """Feed the targets and report. Returns the exit status."""
    chosen = list(targets or TARGETS)
    unknown = [name for name in chosen if name not in TARGETS]
    if unknown:
        return refuse(f"unknown target {unknown[0]!r}; targets: {', '.join(TARGETS)}")
    if vectors is not None and not vectors.is_dir():
        return refuse(f"{vectors} is not a folder")
    console = Console(highlight=False)
    folder = vectors if vectors is not None else find_vectors()
    console.print(f"inputs start from {folder if folder is not None else 'generated values (no recorded vectors)'}")
    results = []
    with Progress(console=console, transient=True) as bar:
        for name in chosen:
            shown = bar.add_task(name, total=inputs)
            total = FuzzResult(name)
            for number, start in enumerate(range(0, inputs, _PIECE)):
                piece = min(_PIECE, inputs - start)
                _add(total, fuzz_target(name, piece, seed=seed * 1_000_003 + number, vectors=folder))
                bar.update(shown, advance=piece)
                if total.findings:
                    break
            results.append(total)
    _report(console, results)
    return 1 if any(result.findings for result in results) else 0


def _add(total: FuzzResult, part: FuzzResult) -> None:
    total.inputs += part.inputs
    total.input_bytes += part.input_bytes
    total.values += part.values
    total.refused += part.refused
    total.seconds += part.seconds
    total.slowest = max(total.slowest, part.slowest)
    total.most_memory = max(total.most_memory, part.most_memory)
    total.findings += part.findings


def _report(console: Console, results: Sequence[FuzzResult]) -> None:
    table = Table("target", "inputs", "MB", "read", "refused", "slowest", "memory", box=None)
    for result in results:
        table.add_row(
            result.target,
            f"{result.inputs:,}",
            f"{result.input_bytes / 1e6:.1f}",
            f"{result.values:,}",
            f"{result.refused.total():,}",
            f"{1000 * result.slowest:.1f} ms",
            f"{result.most_memory / 1e6:.2f} MB",
        )
    console.print(table)
    refused = sum((result.refused for result in results), Counter[str]())
    console.print("refused with: " + ", ".join(f"{name} {times:,}" for name, times in refused.most_common()))
    findings = [finding for result in results for finding in result.findings]
    if not findings:
        console.print("[green]only documented errors, all within the limits of time and memory[/green]")
        return
    console.print(f"[red]{len(findings)} inputs broke a rule[/red]")
    for finding in findings:
        console.print(f"  {finding.target}: {finding.what}", markup=False)
        console.print(f"    {finding.data.hex()[:_HEX_SHOWN_MAX]}", markup=False)
