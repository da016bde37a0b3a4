"""The tables of rights in ``docs/guides/security.md`` as data, so that the tests grant exactly the documented rights.

A line is ``| right | on | for |``. ``right`` is one of Kafka's operations, or several separated by commas. ``on`` is
``group``, ``topic``, ``transactional id`` or ``cluster`` with a name in backticks, or ``topics that begin with`` a
prefix. The test replaces names in angle brackets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streams_py.testing.broker import Right

PAGE = Path(__file__).parents[3] / "docs/guides/security.md"
_ON = re.compile(r"(?P<kind>group|topic|transactional id|cluster)(?P<begins>s that begin with)?( `(?P<name>[^`]+)`)?$")
_PLACEHOLDER = re.compile(r"<[^>]+>")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table; ``name`` still has its placeholders."""

    operation: str
    kind: str
    name: str
    begins: bool

    @property
    def id(self) -> str:
        return f"{self.operation}-{self.kind}-{self.name}".replace(" ", "-").strip("-")

    def right(self, names: Mapping[str, str]) -> Right:
        name = _PLACEHOLDER.sub(lambda found: names[found[0]], self.name)
        return Right(self.operation, self.kind.upper().replace(" ", "_"), name or "kafka-cluster", prefixed=self.begins)


def lines_of(heading: str) -> list[Line]:
    """The lines of the table below ``### heading``, one for each operation."""
    text = PAGE.read_text()
    section = text.partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    found = []
    for row in re.findall(r"^\|(.+)\|$", section, flags=re.MULTILINE)[2:]:
        operations, on, *_ = (cell.strip() for cell in row.split("|"))
        match = _ON.match(on)
        assert match is not None, f"{PAGE.name}, {heading}: {on!r} names no resource"
        found += [
            Line(operation.strip(), match["kind"], match["name"] or "", bool(match["begins"]))
            for operation in operations.split(",")
        ]
    assert found, f"{PAGE.name} has no table below {heading!r}"
    return found
