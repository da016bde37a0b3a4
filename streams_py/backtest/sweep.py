"""Combines every candidate with every combination of settings, such as ``max.warmup.replicas=1,2,4``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

from streams_py.backtest.candidates import RECORDED, Candidate
from streams_py.errors import ConfigError

CANDIDATES_MAX: Final = 10_000
_LISTS: Final = "rack.aware.assignment.tags"
"""The values of this setting are lists, which are written with ``+`` here."""


def sweep(candidates: Sequence[Candidate], settings: Sequence[str]) -> list[Candidate]:
    """Return all combinations. Their names contain the settings. ``recorded`` stays unchanged.

    Raises:
        ConfigError: there are more than 10,000 candidates, or a setting is not valid.
    """
    axes = [_axis(text) for text in settings]
    count = 1
    for _, values in axes:
        count *= len(values)
    if count * len(candidates) > CANDIDATES_MAX:
        raise ConfigError(
            f"the sweep has {count * len(candidates):,} candidates, but at most {CANDIDATES_MAX:,} are allowed; remove "
            "some values"
        )
    made: list[Candidate] = []
    combinations = [list(values) for values in product(*(of for _, of in axes))]
    for candidate in candidates:
        if candidate.spec == RECORDED or not axes:
            made.append(candidate)
            continue
        for combination in combinations:
            chosen = {key: value for (key, _), value in zip(axes, combination, strict=True)}
            name = " ".join([candidate.name, *(f"{key}={value}" for key, value in chosen.items())])
            made.append(Candidate(name, candidate.assignor, {**candidate.overrides, **chosen}))
    return made


def _axis(text: str) -> tuple[str, list[str]]:
    key, equals, values = (part.strip() for part in text.partition("="))
    found = [value.strip() for value in values.split(",")]
    if not equals or not key or "" in found:
        raise ConfigError(f"--set {text!r} is not valid; write KEY=VALUE,VALUE, e.g. max.warmup.replicas=1,2,4")
    if key == _LISTS:
        return key, [value.replace("+", ",") for value in found]
    return key, [_whole(value) for value in found]


def _whole(text: str) -> str:
    """Return a whole number in plain digits: ``1e4`` becomes 10000."""
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number == int(number) else text
