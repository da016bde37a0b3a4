"""Every row of the scenario tables has a test, and tests/README.md lists exactly these rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scenarios import TABLES, Table, rows_played

ROOT = Path(__file__).parents[2]


def files_of(table: Table) -> list[Path]:
    found = []
    for folder in table.folders:
        path = ROOT / folder
        found += [path] if path.is_file() else [p for p in path.rglob("*") if p.suffix in (".py", ".txt")]
    return found


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_every_row_that_can_be_played_is_named_by_a_test(table: Table) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in files_of(table))
    named = {row for row in table.rows if re.search(rf"(?<![\w-]){row}(?!\w)|_{row.lower()}_", text)}
    assert [row for row in table.playable if row not in named] == []


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_rows_are_listed_once_and_those_not_played_are_among_them(table: Table) -> None:
    assert len(set(table.rows)) == len(table.rows)
    assert set(table.not_played) <= set(table.rows)


def test_readme_lists_the_tables() -> None:
    readme = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    lines = readme.partition("## Scenario tables\n")[2].splitlines()
    listed = [line for line in lines if line.startswith("| ") and not line.startswith(("| table", "|---"))]
    assert listed == [table.summary for table in TABLES]


@pytest.mark.parametrize(
    ("path", "said", "rows"),
    [
        ("tests/unit/leader/test_leader.py", "test_l5_l6_task_is_withheld ", {"L5", "L6"}),
        ("tests/unit/leader/test_leader.py", "test_all  # L12, and L1", {"L12", "L1"}),
        ("tests/unit/leader/test_leader.py", "test_x[L16-later]", {"L16"}),
        ("tests/unit/leader/test_leader.py", "test_x[L99] # L160 XL1", set()),
        ("tests/unit/events/test_assign.py", "test_x[L16]", set()),
    ],
)
def test_rows_are_found_in_names_parameters_and_comments(path: str, said: str, rows: set[str]) -> None:
    [table] = [table for table in TABLES if table.title == "leader and member"]
    assert rows_played(table, path, said) == rows
