"""``streams-py fuzz``: damaged bytes for every decoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from streams_py.cli.options import SEED
from streams_py.cli.usage import FAILED, RefusedError, refusing
from streams_py.testing.fuzz import TARGETS, FuzzResult, find_vectors, fuzz_target

_PIECE = 2_000
_HEX_SHOWN_MAX = 400


@refusing
def fuzz(
    inputs: Annotated[int, typer.Option("--inputs", "-n", min=1, help="Number of inputs per target.")] = 20_000,
    seed: SEED = 1,
    target: Annotated[list[str] | None, typer.Option(help="Only this target; may be repeated. Default: all.")] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            help="Folder with recorded bytes to start from. Default: the vectors of a source checkout, if there is one."
        ),
    ] = None,
) -> int:
    """Feed damaged bytes to every decoder that reads bytes from outside.

    Random, truncated, mutated, spliced and enlarged bytes go into every decoder of the protocol, the serdes, the
    events, the state directory's files and the user's files. For any input, a decoder must return a value or raise a
    documented error. It may use at most 50 ms of processor time, and memory of at most a small multiple of the input
    plus one megabyte.

    Exit status: 0 nothing found; 1 something found; 2 wrong usage.

    Examples:

      streams-py fuzz -n 200000

      streams-py fuzz --target subscription_info --target event --seed 7
    """
    chosen = list(target or TARGETS)
    unknown = [name for name in chosen if name not in TARGETS]
    if unknown:
        raise RefusedError(f"unknown target {unknown[0]!r}; targets: {', '.join(TARGETS)}")
    if vectors is not None and not vectors.is_dir():
        raise RefusedError(f"{vectors} is not a folder")
    console = Console(highlight=False)
    folder = vectors if vectors is not None else find_vectors()
    console.print(f"inputs start from {folder if folder is not None else 'generated values (no recorded vectors)'}")
    with Progress(console=console, transient=True) as bar:
        results = [_feed(name, inputs, seed, folder, bar) for name in chosen]
    _report(console, results)
    return FAILED if any(result.findings for result in results) else 0


def _feed(name: str, inputs: int, seed: int, folder: Path | None, bar: Progress) -> FuzzResult:
    """Feed one target until the first finding."""
    shown = bar.add_task(name, total=inputs)
    total = FuzzResult(name)
    for number, start in enumerate(range(0, inputs, _PIECE)):
        piece = min(_PIECE, inputs - start)
        _add(total, fuzz_target(name, piece, seed=seed * 1_000_003 + number, vectors=folder))
        bar.update(shown, advance=piece)
        if total.findings:
            break
    return total


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
