"""Continuous growth is found; growth that is released again is not reported."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from streams_py.testing.torture.usage import JUDGED_S, SHOWN_S, Use, growth, measured

MIB = 1 << 20


def run(memory: Callable[[float], float], files: Callable[[float], float], *, seconds: int = 600) -> list[Use]:
    """A sample every two seconds. Both functions get the elapsed share of the run, 0 to 1."""
    return [
        Use(1000.0 + at, int(memory(at / seconds) * MIB), int(files(at / seconds))) for at in range(0, seconds + 1, 2)
    ]


def noisy(value: float, by: float) -> Callable[[float], float]:
    draw = random.Random(7)
    return lambda _: value + draw.uniform(-by, by)


def warming(value: float) -> Callable[[float], float]:
    """Grows only in the first fifth of the run."""
    return lambda over: value * min(1.0, 0.2 + 4 * over)


STEADY: dict[str, list[Use]] = {
    "constant": run(lambda _: 200, lambda _: 300),
    "tasks come and go": run(noisy(300, 120), noisy(300, 200)),
    "warming up": run(warming(400), warming(400)),
    "a little more": run(lambda over: 200 + 60 * over, lambda over: 300 + 60 * over),
    "less": run(lambda over: 500 - 300 * over, lambda over: 500 - 300 * over),
    "a peak": run(lambda over: 2000 if 0.8 < over < 0.85 else 200, lambda over: 300),
}


@pytest.mark.parametrize("name", STEADY)
def test_what_does_not_grow_is_no_violation(name: str) -> None:
    figures, found = growth(STEADY[name])
    assert found == []
    assert [figure.what for figure in figures] == ["memory", "open files"]


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (run(lambda over: 200 + 400 * over, noisy(300, 50)), "memory 349 -> 550 MiB"),
        (run(noisy(300, 50), lambda over: 200 + 400 * over), "open files 349 -> 550"),
        (run(lambda over: 200 if over < 0.6 else 500, lambda _: 300), "memory 200 -> 500 MiB"),
    ],
    ids=["memory", "files", "memory at once"],
)
def test_growth_is_found(samples: list[Use], words: str) -> None:
    _, found = growth(samples)
    assert found is not None
    (violation,) = found
    assert violation.kind == "growth"
    assert words in str(violation)


@pytest.mark.parametrize("samples", [[], run(lambda over: 1000 * over, lambda _: 1, seconds=SHOWN_S - 2)])
def test_of_too_short_a_run_nothing_is_known(samples: list[Use]) -> None:
    assert growth(samples) == ([], None)


def test_short_run_is_shown_and_not_judged() -> None:
    figures, found = growth(run(lambda over: 1000 * over, lambda _: 1, seconds=JUDGED_S - 2))
    assert [str(figure) for figure in figures] == ["memory 375 -> 876 MiB", "open files 1 -> 1"]
    assert found is None


def test_gaps_are_not_judged() -> None:
    whole = run(lambda over: 1000 * over, lambda _: 1)
    assert growth([whole[0], whole[-1]]) == ([], None)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says it")
def test_this_process_is_measured_as_it_is() -> None:
    before = measured(os.getpid(), 3.0)
    with contextlib.ExitStack() as opened:
        held = opened.enter_context(mmap.mmap(-1, 50 << 20))  # part of the other memory may be resident already
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        for _ in range(20):
            opened.enter_context(open(os.devnull))
        after = measured(os.getpid(), 4.0)
    assert before is not None
    assert after is not None
    assert (before.at_s, after.at_s) == (3.0, 4.0)
    assert after.open_files == before.open_files + 20
    assert after.memory_bytes - before.memory_bytes >= 0.9 * (50 << 20)


def test_process_that_is_gone_has_no_figures(tmp_path: Path) -> None:
    assert measured(os.getpid(), 1.0, proc=tmp_path) is None
