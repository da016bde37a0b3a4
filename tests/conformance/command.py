"""Does this library do what Apache Kafka Streams did? Runs recorded vectors and compares.

    python3 run.py conformance PATH...

A path is a vector file (``.jsonl`` or ``.jsonl.gz``) or a folder, searched for such files. One line per file says how
many cases there are, how many are equal, which differ, and how many exercise something that is not supported; the last
line is ``N passed, N failed``. With ``--verbose`` the first difference of each case follows.

Exit status: 0 when every case is equal, 1 when one differs or cannot be read, 3 when none differs but some are not
supported, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from streams_py.system.quiet_logs import quiet_logs
from tests.conformance.case import NotSupportedCaseError

Case: TypeAlias = dict[str, Any]
Check: TypeAlias = Callable[[Case], "str | None"]

_IDS_SHOWN_MAX = 10
_SUFFIXES = (".jsonl", ".jsonl.gz")


@dataclass(slots=True)
class FileResult:
    """What became of the cases of one file. ``different`` and ``not_supported`` map case ids to reasons."""

    path: Path
    cases: int = 0
    equal: int = 0
    different: dict[str, str] = field(default_factory=dict)
    not_supported: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{self.cases} cases", f"{self.equal} equal", f"{len(self.different)} different"]
        if self.different:
            shown = list(self.different)[:_IDS_SHOWN_MAX]
            more = len(self.different) - len(shown)
            parts[-1] += f" ({', '.join(shown)}{f', and {more} more' if more else ''})"
        parts.append(f"{len(self.not_supported)} not supported")
        if self.not_supported:
            parts[-1] += f" ({'; '.join(sorted(set(self.not_supported.values()))[:3])})"
        return f"{self.path}: {', '.join(parts)}"


def vector_files(paths: Iterable[Path]) -> list[Path]:
    """The vector files among ``paths`` and in the folders among them, sorted. Raises FileNotFoundError."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(file for file in path.rglob("*") if file.name.endswith(_SUFFIXES))
        elif path.is_file():
            found.append(path)
        else:
            raise FileNotFoundError(f"{path} does not exist; give a .jsonl or .jsonl.gz file, or a folder of them")
    return found


def check_file(path: Path) -> FileResult:
    """Run every case of one file."""
    result = FileResult(path)
    check: Check | None = None
    for number, line in _lines(path):
        result.cases += 1
        if isinstance(line, Exception):
            result.different[f"line {number}"] = str(line)
            continue
        case_id = str(line.get("id", f"line {number}"))
        if "run" in line:
            case_id += f"/{line['run']}"
        check = check or _check_for(path, line)
        try:
            difference = check(line)
        except NotSupportedCaseError as reason:
            result.not_supported[case_id] = str(reason)
            continue
        except Exception as error:  # a damaged vector may break anything; that is a difference, not a crash
            difference = f"{type(error).__name__}: {error}"
        if difference is None:
            result.equal += 1
        else:
            result.different[case_id] = difference
    if not result.cases:
        result.cases, result.different = 1, {"file": "no cases in it"}
    return result


def _lines(path: Path) -> Iterator[tuple[int, Case | Exception]]:
    """Numbered cases; an unreadable line comes as the exception that says why."""
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    with opener(path, "rt", encoding="utf-8") as file:
        try:
            for number, line in enumerate(file, 1):
                try:
                    case = json.loads(line)
                    yield number, case if isinstance(case, dict) else ValueError("not a JSON object")
                except (ValueError, RecursionError) as error:
                    yield number, error
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            yield number + 1, error


def _check_for(path: Path, first: Case) -> Check:
    """The comparison for a file, by its name or, for a renamed file, by what its cases contain."""
    from tests.conformance import decisions, leader, runs, topology, wire

    name = path.name.removesuffix(".gz").removesuffix(".jsonl")
    if "describe" in first and "sub_topologies" in first:
        return topology.run_describe_case
    if "inputs" in first and "outputs" in first:
        return runs.run_topology_run
    if "members" in first and "topology" in first:
        return leader.run_leader_case
    decision = decisions.decision_kind(name, first)
    if decision == "threads":
        return leader.run_threads_case
    if decision is not None:
        return lambda case: decisions.run_decision_case(decision, case)
    kind = wire.wire_kind(name, first)
    if kind is not None:
        return lambda case: wire.run_wire_case(kind, case)
    return _unknown_format


def _unknown_format(case: Case) -> str:
    return f"unknown format; its keys are {', '.join(sorted(case))}"


def _report(path: Path, *, verbose: bool) -> FileResult:
    result = check_file(path)
    print(result, flush=True)
    if verbose:
        for case_id, difference in result.different.items():
            print(f"    {case_id}: {difference}")
    return result


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="run.py conformance", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="vector file, or folder of vector files")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what differs in each case")
    options = parser.parse_args(arguments)
    try:
        files = vector_files(options.paths)
    except FileNotFoundError as error:
        parser.error(str(error))
    if not files:
        parser.error("no .jsonl or .jsonl.gz file found")
    with quiet_logs():  # the cases are full of situations that deserve a warning
        results = [_report(path, verbose=options.verbose) for path in files]
    passed = sum(result.equal for result in results)
    failed = sum(len(result.different) for result in results)
    unsupported = sum(len(result.not_supported) for result in results)
    print(f"{passed} passed, {failed} failed" + (f", {unsupported} skipped" if unsupported else ""))
    return 1 if failed else 3 if unsupported else 0
