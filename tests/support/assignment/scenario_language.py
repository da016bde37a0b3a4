"""Parser of the scenario files in this folder.

Clients are P1, P2, ... (UUIDs 1, 2, ... unless an id is given), with capacity 1 unless ``cap`` is given. Tasks are
written ``0_0..2 1_0`` for 0_0, 0_1, 0_2 and 1_0. An outcome is ``P1: actives / standbys; ...``, with ``-`` for no
tasks.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.problem import Placement

HERE = Path(__file__).parents[2] / "unit" / "assignment" / "scenarios"
UNLIMITED = 2**63 - 1
Outcome = dict[str, tuple[list[str], list[str]]]


def rows(file: str) -> list[list[str]]:
    """The rows of a scenario file, cut into columns."""
    lines = (HERE / file).read_text(encoding="utf-8").splitlines()
    return [[column.strip() for column in line.split(" | ")] for line in lines if line and not line.startswith("#")]


def tasks(text: str) -> list[TaskId]:
    """``0_0..2 1_0`` as ids."""
    found: list[TaskId] = []
    for word in text.split():
        first, _, last = word.partition("..")
        start = TaskId.parse(first)
        partitions = range(start.partition, int(last or start.partition) + 1)
        found += [TaskId(start.subtopology, partition) for partition in partitions]
    return found


def process_id(number: int) -> ProcessId:
    """P<number>."""
    return ProcessId(uuid.UUID(int=number))


def number(text: str) -> int:
    """A number, or MAX."""
    return UNLIMITED if text == "MAX" else int(text)


@dataclass
class ClientRow:
    """One client of a scenario."""

    name: str
    process_id: ProcessId
    capacity: int = 1
    words: str = ""
    tags: dict[str, str] = field(default_factory=dict)


def clients(text: str) -> list[ClientRow]:
    """``P1-P3: cap 2, ...; P4 ...`` as one entry per client; what is not a capacity or id stays in ``words``."""
    found = []
    for part in text.split(";"):
        head = re.fullmatch(r"\s*(P\d+(?:-P\d+)?)\s*:?\s*(.*)", part)
        assert head is not None, f"not a client: {part}"
        names, rest = head.groups()
        first, _, last = names.partition("-")
        for n in range(int(first[1:]), int((last or first)[1:]) + 1):
            row = ClientRow(f"P{n}", process_id(n), words=rest)
            for pattern, use in ((r"cap (\d+),? ?", "capacity"), (r"id ([0-9a-f-]+),? ?", "id")):
                match = re.search(pattern, row.words)
                if match:
                    row.words = row.words.replace(match[0], "").strip()
                    if use == "capacity":
                        row.capacity = int(match[1])
                    else:
                        row.process_id = ProcessId.parse(match[1])
            found.append(row)
    return found


def lags(words: str, stateful: list[TaskId]) -> dict[TaskId, int]:
    """``lag 0 on 0_1, else MAX`` or ``lag 5`` as the lag of each stateful task."""
    match = re.fullmatch(r"lag (-?\w+)(?: on ([\d_. ]+?), else (?:lag )?(-?\w+))?", words.strip())
    if match is None:
        return {}
    value, chosen, rest = match.groups()
    if chosen is None:
        return dict.fromkeys(stateful, number(value))
    return {task: number(value) if task in tasks(chosen) else number(rest) for task in stateful}


def outcome(text: str) -> Outcome:
    """The expected tasks of each client."""
    result = {}
    for part in text.split(";"):
        name, _, lists = part.partition(":")
        active, _, standby = lists.partition("/")
        result[name.strip()] = (
            [str(t) for t in tasks(active.replace("-", " "))],
            [str(t) for t in tasks(standby.replace("-", " "))],
        )
    return result


def as_outcome(named: list[ClientRow], placements: Mapping[ProcessId, Placement]) -> Outcome:
    """A decision in the same form."""
    return {
        row.name: (
            [str(t) for t in placements[row.process_id].active],
            [str(t) for t in placements[row.process_id].standby],
        )
        for row in named
    }
