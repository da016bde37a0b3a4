"""The suite as `python3 run.py test` runs it: in parallel and in random order.

A full run is shared by several pytest workers (`tests/parallel.py` decides which worker gets which tests). A run of
given files uses one process. Each run has another order (`tests/shuffling.py`) and prints the seed that repeats it.
A test runs once: the run is red when a test fails.

A full run has the default tier of the suite (`tests/tiers.py`). `--all` adds the slow tests, `--rest` runs only those,
and `--weekly` runs the longest ones. A run of given files has all their tests but the weekly ones.

Other arguments are pytest's. `-n` chooses the number of workers (0: none), `--shuffle=SEED` the order.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.tiers import OPTIONS

_DEFAULT: Final = "not slow and not weekly"
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
    """Return pytest's arguments: the given ones, plus tier, workers and seed where the given ones leave them open."""
    tiers = [OPTIONS[argument] for argument in arguments if argument in OPTIONS]
    given = [argument for argument in arguments if argument not in OPTIONS]
    has_places = any(map(_is_place, given))
    alone = has_places or _has_option(given, "-n", "--numprocesses", "--dist", "--pdb")
    if not tiers and not has_places and not _has_option(given, "-m"):
        tiers = [_DEFAULT]
    ordered = _has_option(given, "--shuffle")
    return [
        *(f"-m{tier}" for tier in tiers[-1:]),
        *([] if alone else [f"-n{workers}"]),
        *([] if ordered else [f"--shuffle={seed}"]),
        *given,
    ]


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
