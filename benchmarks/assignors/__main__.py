"""Prints only the assignors' table: python -m benchmarks.assignors [RUNS]."""

from __future__ import annotations

import sys

from rich.console import Console

from benchmarks.assignors.rows import assignor_rows
from benchmarks.table import table_of


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    _rows = list(assignor_rows(int(sys.argv[1]) if len(sys.argv) > 1 else 3, _say))
    Console(width=150).print(table_of(_rows, title="Assignors, processor time"))
