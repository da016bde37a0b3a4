"""The suite as `python3 run.py test` runs it: in parallel and in random order.

A full run is shared by several pytest workers (`tests/parallel.py` decides which worker gets which tests). A run of
given files uses one process. Each run has another order (`tests/shuffling.py`) and prints the seed that repeats it.
A test runs once: the run is red when a test fails.

Arguments are pytest's. `-n` chooses the number of workers (0: none), `--shuffle=SEED` the order.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main", "plan"]

_SEED_MAX = 1_000_000
_WORKERS_MIN, _WORKERS_MAX = 2, 4


def main(arguments: Sequence[str]) -> int:
    """Run pytest with the planned arguments in its own process; return its exit status."""
    workers = min(max(os.cpu_count() or 1, _WORKERS_MIN), _WORKERS_MAX)
    planned = plan(arguments, workers=workers, seed=secrets.randbelow(_SEED_MAX))
    process = subprocess.Popen([sys.executable, "-m", "pytest", "-p", "tests.shuffling", *planned], env=_environment())
    while process.returncode is None:
        with contextlib.suppress(KeyboardInterrupt):  # pytest receives Ctrl-C too and reports the tests that ran
            process.wait()
    return process.returncode


def plan(arguments: Sequence[str], *, workers: int, seed: int) -> list[str]:
    """Return pytest's arguments: the given ones, plus workers and a seed unless the given ones decide about them."""
    alone = any(map(_is_place, arguments)) or _has_option(arguments, "-n", "--numprocesses", "--dist", "--pdb")
    ordered = _has_option(arguments, "--shuffle")
    return [*([] if alone else [f"-n{workers}"]), *([] if ordered else [f"--shuffle={seed}"]), *arguments]


def _has_option(arguments: Sequence[str], *names: str) -> bool:
    return any(argument.startswith(names) for argument in arguments)


def _is_place(argument: str) -> bool:
    """Whether an argument is a file, a folder or a test, not an option or its value."""
    return Path(argument.partition("::")[0]).exists()


def _environment() -> dict[str, str]:
    """This process's environment with bytecode caching: hundreds of processes of a run import the same modules."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
