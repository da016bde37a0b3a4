"""Candidates: a name, an assignor, and settings that differ from the recorded ones.

    recorded                                       the recorded decision, and the assignor that made it
    builtin:high_availability                      also sticky, legacy_sticky, fallback, static
    acme.assignors:Sticky                          a class in an importable module
    my_assignor.py:Sticky                          a class in a file
    ha2=builtin:high_availability;max.warmup.replicas=8

A class is instantiated for every decision, as KIP-924 requires, and configured only with its own settings, because the
record does not contain the configuration of the application. Settings other than the eight of an assignment are for
classes. A built-in assignor would not read them, so they are refused.

A *sweep* combines every candidate with every combination of settings, such as ``max.warmup.replicas=1,2,4``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Final

from streams_py.assignment.api import TaskAssignor
from streams_py.assignment.assignors.registry import assignor_name, choose_assignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import BuiltInAssignor
from streams_py.errors import AssignorError, ConfigError
from streams_py.system.printable import named

__all__ = ["BUILT_IN", "CONFIG_KEYS", "RECORDED", "Candidate", "parse_candidate"]

RECORDED: Final = "recorded"
BUILT_IN: Final = ("high_availability", "sticky", "legacy_sticky", "fallback", "static")
CONFIG_KEYS: Final = (
    "acceptable.recovery.lag",
    "max.warmup.replicas",
    "num.standby.replicas",
    "probing.rebalance.interval.ms",
    "rack.aware.assignment.tags",
    "rack.aware.assignment.traffic_cost",
    "rack.aware.assignment.non_overlap_cost",
    "rack.aware.assignment.strategy",
)
_PREFIX: Final = "builtin:"
_JAVA: Final = "org.apache.kafka."


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate. ``assignor`` is one of the forms in the module's docstring, or a class, also one of a notebook."""

    name: str
    """Name in the report."""
    assignor: str | type[TaskAssignor]
    """Name or class of the assignor."""
    overrides: Mapping[str, object] = field(default_factory=dict)
    """Settings that differ from the recorded ones, by key."""

    @property
    def spec(self) -> str:
        """The name of the assignor, such as ``builtin:sticky``."""
        return self.assignor if isinstance(self.assignor, str) else assignor_name(self.assignor)

    @property
    def file(self) -> Path | None:
        """The file of the class, if the candidate names a file."""
        module = self.spec.rpartition(":")[0]
        return Path(module) if isinstance(self.assignor, str) and module.endswith(".py") else None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A candidate with its code: a built-in assignor or a class. ``recorded`` has neither."""

    candidate: Candidate
    built_in: Callable[[], BuiltInAssignor] | None = None
    task_assignor: type[TaskAssignor] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether the code belongs to this library. Then it does not change its input, and is deterministic."""
        made = self.task_assignor
        return made is None or made.__module__.startswith("streams_py.")


def parse_candidate(text: str) -> Candidate:
    """Parse ``[NAME=]SPEC[;KEY=VALUE]...``. Raises ConfigError when the text is not valid."""
    head, *settings = (part.strip() for part in text.split(";"))
    name, equals, spec = head.partition("=")
    if not equals:
        name, spec = _short(head), head
    if not name.strip() or not spec.strip():
        raise ConfigError(f"candidate {text!r} is not valid; write NAME=SPEC, e.g. ha=builtin:high_availability")
    overrides: dict[str, object] = {}
    for setting in filter(None, settings):
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"candidate {name!r}: expected KEY=VALUE, got {setting!r}")
        overrides[key.strip()] = value.strip()
    return Candidate(name.strip(), spec.strip(), overrides)


def _short(spec: str) -> str:
    return spec.removeprefix(_PREFIX).rpartition(":")[2]


def choose(candidate: Candidate) -> Chosen:
    """Find the code of a candidate and check its settings. Raises ConfigError, with a remedy, when that fails."""
    spec = candidate.assignor
    if spec == RECORDED:
        if candidate.overrides:
            raise ConfigError(f"candidate {candidate.name!r} is the recorded decision, so it cannot have settings")
        return Chosen(candidate)
    try:
        AssignmentConfigs.of(candidate.overrides)
    except ConfigError as error:
        raise ConfigError(f"candidate {candidate.name!r}: {error}", key=error.key) from None
    built_in = spec.removeprefix(_PREFIX) if isinstance(spec, str) else ""
    if isinstance(spec, str) and (spec.startswith(_PREFIX) or built_in in BUILT_IN):
        if built_in not in BUILT_IN:
            raise ConfigError(
                f"candidate {candidate.name!r}: {built_in!r} is not a built-in assignor; use one of "
                f"{', '.join(BUILT_IN)}, or package.module:Class"
            )
        _refuse_unknown(candidate, allow=("static.",) if built_in == "static" else ())
        spec = built_in
    try:
        found = choose_assignor(_from_file(candidate) if candidate.file is not None else spec)
    except AssignorError as error:
        raise ConfigError(
            f"candidate {candidate.name!r} cannot be used: "
            f"{str(error).removeprefix('task.assignor.class').lstrip(' :=')}; name it "
            "as package.module:Class with the module on PYTHONPATH, or as path/to/file.py:Class"
        ) from error
    return Chosen(candidate, found.built_in, found.task_assignor)


def choose_recorded(name: str, given: Iterable[Chosen]) -> Chosen | None:
    """Find the code of the assignor that a record names; None when it is not available.

    A record never causes an import. The name must belong to a built-in assignor (also in Java), or to the class of a
    candidate. The class is then configured with the candidate's settings, except for the eight settings that the record
    contains.
    """
    for short in BUILT_IN:
        ours = choose(Candidate(RECORDED, f"{_PREFIX}{short}"))
        if name == assignor_name(ours.built_in or ours.task_assignor):
            return ours
    if name.startswith(_JAVA):
        try:
            found = choose_assignor(name)
        except AssignorError:
            return None
        return Chosen(Candidate(RECORDED, name), found.built_in, found.task_assignor)
    for other in sorted(given, key=lambda chosen: chosen.candidate.name):
        if other.task_assignor is not None and name in (assignor_name(other.task_assignor), other.candidate.spec):
            own = {key: value for key, value in other.candidate.overrides.items() if key not in CONFIG_KEYS}
            return Chosen(Candidate(RECORDED, other.candidate.assignor, own), None, other.task_assignor)
    return None


def _refuse_unknown(candidate: Candidate, allow: tuple[str, ...]) -> None:
    for key in candidate.overrides:
        if key not in CONFIG_KEYS and not key.startswith(allow or ("\0",)):
            raise ConfigError(
                f"candidate {candidate.name!r}: unknown assignment setting {key}; supported settings: "
                f"{', '.join(CONFIG_KEYS)}",
                key=key,
            )


def _from_file(candidate: Candidate) -> type[TaskAssignor]:
    """Load a class from a file. Its folder need not be on Python's path."""
    path, name = candidate.file, candidate.spec.rpartition(":")[2]
    assert path is not None
    module_name = path.stem
    loaded = sys.modules.get(module_name)
    if loaded is None or Path(getattr(loaded, "__file__", "") or "").name != path.name:
        spec = importlib.util.spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None or not path.is_file():
            found = importlib.util.find_spec(module_name)  # on a Spark worker the file is in another folder
            if found is None or found.loader is None:
                raise ConfigError(f"candidate {candidate.name!r}: the file {path} does not exist; check the path")
            spec = found
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = loaded
        try:
            assert spec.loader is not None
            spec.loader.exec_module(loaded)
        except (Exception, SystemExit) as error:  # user code raises any type
            del sys.modules[module_name]
            raise ConfigError(
                f"candidate {candidate.name!r}: {path} cannot be imported ({named(error)}); fix the file"
            ) from error
    found_class = getattr(loaded, name, None)
    if not isinstance(found_class, type):
        raise ConfigError(f"candidate {candidate.name!r}: {path} has no class {name}; check the name")
    return found_class


def seed_of(input_hash: str, candidate: str, seed: int) -> int:
    """Return a random seed of 63 bits from the situation, the candidate's name and the user's seed.

    It is the only source of randomness.
    """
    digest = hashlib.sha256(f"{input_hash}\0{candidate}\0{seed}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


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
