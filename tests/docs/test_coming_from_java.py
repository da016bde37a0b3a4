"""The page for Java programmers names only what is there, and leaves out no operation of the DSL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import streams_py
from streams_py import errors, testing
from streams_py.testing import driver

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from-java.md").read_text("utf-8")
ROWS = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith(("| `", "| the "))]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row[1])})
CLASSES = ("KStream", "KTable", "KGroupedStream", "KGroupedTable", "CogroupedKStream", "BranchedKStream")
NOT_JAVAS = {"map_async", "map_values_async", "map_batch"}
INTERNAL = {"attach", "place", "repartitioned"}


def resolved(name: str) -> Any:
    first, *rest = name.removeprefix("streams_py.").split(".")
    for module in (streams_py, errors, testing, driver):
        if hasattr(module, first):
            found = getattr(module, first)
            break
    else:
        raise AttributeError(first)
    for part in rest:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_name_on_the_page_exists(name: str) -> None:
    assert resolved(name) is not None


@pytest.mark.parametrize("cls", CLASSES)
def test_every_operation_is_on_the_page(cls: str) -> None:
    operations = {name for name in vars(resolved(cls)) if not name.startswith("_")} - NOT_JAVAS - INTERNAL
    assert {name for name in operations if f"`{cls}.{name}`" not in PAGE} == set()


def test_every_row_names_something() -> None:
    assert len(ROWS) > 60
    assert all(re.search(r"`[^`]+`", row[1]) for row in ROWS)
