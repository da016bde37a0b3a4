"""The programs behind the recorded topology vectors, known by their ids.

Modules of this package describe them, in the order of calls that was recorded: names depend on it. Settings of all
runs: ``application.id`` is ``app``, default key and value serde is string.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from streams_py.serdes import STRING
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.kstream import KStream
from streams_py.topology.dsl.ktable import KTable
from streams_py.topology.topology import Topology
from tests.conformance.case import NotSupportedCaseError

APPLICATION_ID: Final = "app"
# Null keys and null values are part of the programs, which types could only say at the price of readability.
Text: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Program:
    """One program: how to build it, with which ``topology.optimization``, and the topics a pattern may match."""

    id: str
    make: Callable[[str], Topology]
    optimization: str = "none"
    available_topics: tuple[str, ...] = ()


_PROGRAMS: Final[dict[str, Program]] = {}
_DESCRIPTIONS: Final[dict[str, Callable[[StreamsBuilder], None]]] = {}
_NOT_SUPPORTED: Final = {
    "windows": [*range(24, 36)],
    "suppress": [*range(36, 41)],
    "cogroup": [*range(41, 45)],
    "stream-stream joins": [*range(45, 52)],
    "global tables and stores": [60, 61, 71],
}
_REASONS: Final = {f"P{number:02}": what for what, numbers in _NOT_SUPPORTED.items() for number in numbers}


def program_of(id: str) -> Program:
    """The program of that id; NotSupportedCaseError naming the missing feature, KeyError for an unknown id."""
    if id not in _PROGRAMS and id in _REASONS:
        raise NotSupportedCaseError(_REASONS[id])
    return _PROGRAMS[id]


def build_program(id: str, optimization: str | None = None) -> Topology:
    """Its topology; ``optimization`` None: the one recorded for it."""
    program = program_of(id)
    return program.make(program.optimization if optimization is None else optimization)


def all_programs() -> tuple[Program, ...]:
    """All programs, by id."""
    return tuple(_PROGRAMS[id] for id in sorted(_PROGRAMS))


def descriptions() -> Mapping[str, Callable[[StreamsBuilder], None]]:
    """Return the programs that are written in the DSL, as functions that describe them to a builder."""
    return _DESCRIPTIONS


def register(program: Program) -> None:
    """Add a program."""
    _PROGRAMS[program.id] = program


def dsl(
    id: str, optimization: str = "none", available_topics: tuple[str, ...] = ()
) -> Callable[[Callable[[StreamsBuilder], None]], Callable[[StreamsBuilder], None]]:
    """Add the program that the decorated function describes."""

    def add(describe: Callable[[StreamsBuilder], None]) -> Callable[[StreamsBuilder], None]:
        def make(optimization: str) -> Topology:
            builder = StreamsBuilder()
            describe(builder)
            return builder.build({"topology.optimization": optimization, "__reference.behaviour__": True})

        register(Program(id, make, optimization, available_topics))
        _DESCRIPTIONS[id] = describe
        return describe

    return add


def stream(builder: StreamsBuilder, *topics: str) -> KStream[Text, Text]:
    """A stream of texts."""
    return builder.stream(topics, key=STRING, value=STRING)


def table(builder: StreamsBuilder, topic: str) -> KTable[str, str]:
    """A table of texts."""
    return builder.table(topic, key=STRING, value=STRING)
