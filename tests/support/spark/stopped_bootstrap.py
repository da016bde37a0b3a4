"""``streams-py bootstrap`` that blocks forever at a given point, to be killed there.

    python -m tests.support.spark.stopped_bootstrap POINT MARK ARGUMENTS...

It makes the file ``MARK`` when it is there. Points are named by what is done, and what the plan does not know of yet:

==============  ======================================================================================================
``nothing``     the plan says that the run has begun, and that is all
``topics``      internal topics are made
``a stage``     a worker has made the first rows of the first stage
``outputs``     some transactions of ``--sinks`` are committed, another one is open
``changelogs``  all is written, and not summed up
``summed``      everything is done, but for the plan to be saved
``written``     the plan says so; nothing is read back
``verified``    the plan says so; nothing is committed
``committed``   the positions are committed; the plan only says that they are about to be
==============  ======================================================================================================
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from streams_py.cli.spark.bootstrap import bootstrap_app
from streams_py.history import bootstrap_ends
from streams_py.history.cluster import HistoryCluster
from streams_py.spark.history import run as running
from streams_py.spark.history import sinks, warm_start

_TRANSACTION_RECORDS = 3
_ROWS_BEFORE = 8


def _stop(mark: Path) -> None:
    mark.touch()
    while True:
        time.sleep(3_600)


def _before(function: Any, mark: Path) -> Callable[..., Any]:
    def stopped(*_: Any, **__: Any) -> None:
        _stop(mark)

    return stopped


def _after(function: Any, mark: Path) -> Callable[..., Any]:
    def stopped(*given: Any, **named: Any) -> None:
        function(*given, **named)
        _stop(mark)

    return stopped


def _in_stage(function: Any, mark: Path) -> Callable[..., Any]:
    def kernel(*given: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
        made = function(*given)

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in made(batches):
                yield batch
                _stop(mark)

        return run

    return kernel


def _in_outputs(function: Any, mark: Path) -> Callable[..., Any]:
    def kernel(options: Any, names: Any, place: str, version: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
        write = function(options, names, place, version, _TRANSACTION_RECORDS)

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            def some(batches: Iterator[Any]) -> Iterator[Any]:
                for batch in batches:
                    yield batch.slice(0, _ROWS_BEFORE)
                    _stop(mark)

            return write(some(batches))

        return run

    return kernel


_POINTS: dict[str, tuple[Any, str, Callable[[Any, Path], Callable[..., Any]]]] = {
    "nothing": (warm_start, "prepare", _before),
    "topics": (warm_start, "prepare", _after),
    "a stage": (running, "stage_kernel", _in_stage),
    "outputs": (sinks, "once_kernel", _in_outputs),
    "changelogs": (warm_start, "_sums_of_all", _before),
    "summed": (warm_start, "written", _before),
    "written": (warm_start, "verify_changelogs", _before),
    "verified": (bootstrap_ends, "commit", _before),
    "committed": (HistoryCluster, "commit", _after),
}


def main(point: str, mark: Path, arguments: list[str]) -> None:
    module, name, stopped = _POINTS[point]
    with patch.object(module, name, stopped(getattr(module, name), mark)):
        bootstrap_app(arguments)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
