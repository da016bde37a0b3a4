"""The scenario tables, and the tests that cover their rows.

A row has an id, such as HA-07. A test covers a row if the id is in one of its parameters' ids, or in a comment at the
end of its ``def`` line. Ids are unique only within a table, so each table names the folder of its tests.

"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Table:
    """A scenario table. ``not_played``: rows that cannot be tested here, and the reasons."""

    title: str
    folders: tuple[str, ...]
    rows: tuple[str, ...]
    not_played: dict[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """Describe the table in one line: the form of its ids, the number of rows, excluded rows with reasons."""
        why = "; ".join(f"{row}: {reason}" for row, reason in self.not_played.items())
        if len(set(self.not_played.values())) == 1 and len(self.not_played) > 1:
            why = f"{', '.join(self.not_played)}: {next(iter(self.not_played.values()))}"
        return (
            f"| {self.title} | {self.rows[0]} ... {self.rows[-1]} | {len(self.playable)} of {len(self.rows)} | {why} |"
        )

    @property
    def playable(self) -> tuple[str, ...]:
        """Return the rows that tests must cover."""
        return tuple(row for row in self.rows if row not in self.not_played)


def _ids(prefix: str, *numbers: int | str | range, digits: int = 2) -> tuple[str, ...]:
    found: list[str] = []
    for number in numbers:
        if isinstance(number, range):
            found += [f"{prefix}{n:0{digits}}" for n in number]
        else:
            found.append(f"{prefix}{number:0{digits}}" if isinstance(number, int) else f"{prefix}{number}")
    return tuple(found)


def _not(rows: tuple[str, ...], why: str) -> dict[str, str]:
    return dict.fromkeys(rows, why)


_ASSIGNMENT = ("tests/unit/assignment", "tests/unit/leader")
_RACKS = ("tests/unit/assignment/rack", "tests/unit/leader/steps/test_racks.py")
_LEADER = ("tests/unit/leader", "tests/unit/member")
_NO_CONTAINER = "about a container that is filled step by step; here values are made once"

TABLES = (
    Table("queue of clients with constraints", _ASSIGNMENT, _ids("Q-", range(1, 7))),
    Table(
        "state of a client",
        _ASSIGNMENT,
        _ids("CS-", range(1, 40)),
        _not(_ids("CS-", range(2, 9), 11, range(24, 26), 32, 35), _NO_CONTAINER),
    ),
    Table("task movements", _ASSIGNMENT, _ids("TM-", range(1, 7))),
    Table("high availability", _ASSIGNMENT, _ids("HA-", range(1, 47))),
    Table("high availability, order of the heap", _ASSIGNMENT, _ids("HQ-", range(1, 4))),
    Table("standbys by load", _ASSIGNMENT, (*_ids("SB-", range(1, 4)), *_ids("SR-", range(1, 4)))),
    Table("standbys by tags", _ASSIGNMENT, _ids("TA-", range(1, 19), range(22, 25))),
    Table("high availability with tags", _ASSIGNMENT, _ids("HT-", range(1, 4))),
    Table("choice and rules of standby placement", _ASSIGNMENT, (*_ids("SF-", 1, 2), *_ids("SM-", range(1, 7)))),
    Table(
        "sticky", _ASSIGNMENT, _ids("ST-", range(1, 4), "04a", "04b", "04c", range(5, 8), "08a", "08b", range(9, 43))
    ),
    Table("fallback and identity", _ASSIGNMENT, (*_ids("FB-", 1, 2), *_ids("ID-", 1, 2))),
    Table("public containers", _ASSIGNMENT, _ids("KA-", range(1, 8))),
    Table("validation", _ASSIGNMENT, _ids("VA-", range(1, 12))),
    Table("life of a task assignor", _ASSIGNMENT, _ids("LC-", range(1, 7))),
    Table("convergence", _ASSIGNMENT, _ids("CV-", range(1, 6))),
    Table("large groups", _ASSIGNMENT, _ids("SC-", range(1, 6))),
    Table("racks: actives", _RACKS, _ids("A", range(1, 4), "4a", "4b", range(5, 24), digits=1)),
    Table(
        "racks: errors",
        _RACKS,
        _ids("E", range(1, 9), digits=1),
        {"E4": "the sub-topologies are derived from the tasks, so no task can be outside"},
    ),
    Table("racks: preconditions", _RACKS, _ids("P", range(1, 16), digits=1)),
    Table("racks: standbys", _RACKS, _ids("S", range(10), digits=1)),
    Table(
        "racks: flows",
        _RACKS,
        _ids("F", range(1, 12), digits=1),
        _not(("F10", "F11"), "size of a network of tasks times clients, which is never built"),
    ),
    Table("racks: assignors", _RACKS, _ids("H", range(1, 14), digits=1)),
    Table("leader and member", _LEADER, _ids("L", range(1, 17), range(20, 28), range(30, 37), digits=1)),
    Table("static tasks", ("tests/unit/assignment/assignors/test_static.py",), _ids("T-", range(11), digits=1)),
    Table("wire formats", ("protocol/tests",), _ids("W", range(1, 15), digits=1)),
    Table(
        "wire formats, worked examples", ("protocol/tests/test_worked_examples.py",), _ids("E", range(1, 14), digits=1)
    ),
)


def rows_played(table: Table, path: str, said: str) -> set[str]:
    """Return the rows that a test in the file ``path`` covers. ``said``: its name, parameters' ids and comment."""
    if not path.startswith(table.folders):
        return set()
    words = set(re.findall(r"(?<!\w)[A-Z]{1,2}-?\d+[a-c]?(?!\w)", said))
    words |= {word.upper() for word in re.findall(r"(?<=_)[a-z]\d+(?=_)", said)}
    return words.intersection(table.rows)
