"""The suite in parallel, and its failures once more, alone: what `python3 run.py test` runs.

A full run is shared by several pytest workers (`tests/parallel.py` says who gets what). Many tests wait for brokers,
processes and Spark; on a small machine that has other things to do one of them may run out of patience. So the tests
that failed run once more, one after the other and with nothing beside them. The run is green only if all of them pass
then, and it names them: a test that fails under load is worth a look. Nothing else is forgiven: an error while tests
are collected, an interrupted run, a worker that died without saying in which test, a test that does not run again.

Arguments are pytest's. A run of given files is neither parallel nor repeated. `--retry` repeats failures in any case,
`-n` says how many workers (0: none).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Outcome", "Recorder", "main", "plan", "run_suite"]

_RECORD = "STREAMS_PY_TEST_RECORD"
_FAILED = 1  # pytest.ExitCode.TESTS_FAILED: all that can be repeated
_WORKERS_MIN, _WORKERS_MAX = 2, 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one pytest run ended: its exit status; node ids of tests with a failure, of those that passed, and of files
    that could not be collected."""

    status: int
    failed: tuple[str, ...] = ()
    passed: frozenset[str] = frozenset()
    broken: tuple[str, ...] = ()


Pytest = Callable[[Sequence[str]], Outcome]


def main(arguments: Sequence[str]) -> int:
    given, parallel, retry = plan(arguments)
    workers = min(max(os.cpu_count() or 1, _WORKERS_MIN), _WORKERS_MAX) if parallel else None
    return run_suite(given, run_pytest, workers=workers, retry=retry)


def plan(arguments: Sequence[str]) -> tuple[list[str], bool, bool]:
    """(Arguments for pytest, whether we choose the number of workers, whether failures run again)."""
    given = [argument for argument in arguments if argument != "--retry"]
    some_files = any(map(_is_place, given))
    chosen = any(argument.startswith(("-n", "--numprocesses", "--dist", "--pdb")) for argument in given)
    return given, not (some_files or chosen), not arguments or "--retry" in arguments


def _is_place(argument: str) -> bool:
    """A file, a folder or a test, not an option or its value."""
    return Path(argument.partition("::")[0]).exists()


def run_suite(
    arguments: Sequence[str], pytest: Pytest, *, workers: int | None, retry: bool, say: Callable[[str], None] = print
) -> int:
    """Run the tests, then perhaps the failed ones again; returns the exit status."""
    first = pytest([*([f"-n{workers}"] if workers else []), *arguments])
    if first.broken:  # in a parallel run pytest goes on with the others and says only that something failed
        return first.status or _FAILED
    if first.status != _FAILED or not retry:
        return first.status
    if not first.failed:
        say("run.py test: the run failed, but no test did: a worker died; see above")
        return first.status
    say(f"\nrun.py test: {len(first.failed)} failed; once more, alone:\n")
    options = [argument for argument in arguments if not _is_place(argument)]
    again = pytest([*options, "-n0", "-m", "", *first.failed])
    still = [test for test in first.failed if test not in again.passed]
    _report("failed under load, passed alone", [test for test in first.failed if test in again.passed], say)
    _report("failed again", still, say)
    return again.status or (_FAILED if still else 0)


def _report(title: str, tests: Sequence[str], say: Callable[[str], None]) -> None:
    if tests:
        say(f"\n{title} ({len(tests)}):")
        for test in tests:
            say(f"  {test}")


def run_pytest(arguments: Sequence[str]) -> Outcome:
    """pytest in a process of its own, with :class:`Recorder` in it."""
    with tempfile.TemporaryDirectory(prefix="streams-py-suite-") as folder:
        record, listed = Path(folder, "record.json"), Path(folder, "arguments")
        listed.write_text("".join(f"{argument}\n" for argument in arguments), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "tests.run_suite", f"@{listed}"]
        process = subprocess.Popen(command, env=_environment() | {_RECORD: str(record)})
        while process.returncode is None:
            with contextlib.suppress(KeyboardInterrupt):  # pytest hears Ctrl-C too, and says what it did so far
                process.wait()
        return read_record(record, process.returncode)


def _environment() -> dict[str, str]:
    """Ours, but modules are compiled once: hundreds of processes of a run import the same ones."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def read_record(record: Path, status: int) -> Outcome:
    """The outcome that a :class:`Recorder` wrote down; one without tests if it never came to that."""
    if not record.exists():
        return Outcome(status or _FAILED)
    results: dict[str, list[str]] = json.loads(record.read_text(encoding="utf-8"))
    failed = tuple(results["failed"])
    return Outcome(status, failed, frozenset(results["passed"]) - frozenset(failed), tuple(results["broken"]))


class Recorder:
    """pytest plugin: which tests failed and which passed. Of a parallel run only the controller writes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._results: dict[str, list[str]] = {"failed": [], "passed": [], "broken": []}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and report.nodeid not in self._results["failed"]:
            self._results["failed"].append(report.nodeid)  # in set-up, call or clean-up; or its worker died
        elif report.when == "call" and report.passed:
            self._results["passed"].append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._results["broken"].append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(self._results), encoding="utf-8")


def pytest_configure(config: Any) -> None:
    file = os.environ.get(_RECORD)
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(file)), "suite-recorder")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
