"""The page for Java programmers names only what is there, and leaves out no operation of the DSL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import streams_py
from docs.tools import java_classes
from docs.tools.java_names import CLASSES as JAVA_CLASSES
from streams_py import assignment, errors, serdes, testing
from streams_py.config.streams_config import known_keys
from streams_py.testing import driver

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from-java.md").read_text("utf-8")
CALLS = PAGE.partition("\n## Deviations\n")[0]
ROWS = [line.split("|")[1:-1] for line in CALLS.splitlines() if line.startswith(("| `", "| the "))]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row[1])})
CLASSES = ("KStream", "KTable", "KGroupedStream", "KGroupedTable", "CogroupedKStream", "BranchedKStream")
NOT_JAVAS = {"map_async", "map_values_async", "map_batch"}
INTERNAL = {"attach", "place", "repartitioned"}


MODULES = {"testing": testing, "assignment": assignment, "errors": errors, "serdes": serdes}


def resolved(name: str) -> Any:
    first, *rest = name.removeprefix("streams_py.").split(".")
    for module in (streams_py, errors, testing, driver):
        if hasattr(module, first):
            found = getattr(module, first)
            break
    else:
        found = MODULES[first]
    for part in rest:
        found = getattr(found, part, None) or _annotated(found, part)
    return found


def _annotated(kind: type, attribute: str) -> Any:
    """An attribute that is declared, but gets its value when an object is made."""
    for base in kind.__mro__:
        if attribute in getattr(base, "__annotations__", {}):
            return base.__annotations__[attribute]
    raise AttributeError(f"{kind.__name__}.{attribute}")


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


def test_every_public_class_of_kafka_streams_is_answered() -> None:
    assert set(JAVA_CLASSES) == set(java_classes.JAVA)
    assert len(JAVA_CLASSES) == 269


@pytest.mark.parametrize("name", sorted(JAVA_CLASSES))
def test_methods_of_a_java_class_are_answered_with_names_that_exist(name: str) -> None:
    text, said = JAVA_CLASSES[name]
    methods = java_classes.JAVA[name]
    assert set(said) - {"*"} <= set(methods), "methods that Java does not have"
    assert "*" not in said or set(methods) - set(said), "nothing is left that * could speak for"
    for answer in (text, *(java_classes.here(name, method) for method in methods)):
        assert answer
        for ours in re.findall(r"`([A-Za-z_.]+)`", answer):
            assert ours in known_keys() or resolved(ours) is not None, f"{answer}: no {ours}"


def test_page_of_all_classes_has_every_method() -> None:
    rows: dict[str, list[str]] = {}
    for line in java_classes.page().splitlines():
        if line.startswith("## `org.apache.kafka.streams"):
            package = line.strip("#` ").removeprefix("org.apache.kafka.streams").lstrip(".")
        elif line.startswith("| `"):
            java, _, methods = (
                line.strip("| ").split(" | ") if not line.endswith("|  |") else [*line.split(" | ")[:2], ""]
            )
            name = ".".join(filter(None, (package, java.strip("|` "))))
            rows[name] = [
                method
                for part in methods.split("<br>")
                for method in re.findall(r"`(\w+)`", f"{part.split('`: ')[0]}`")
            ]
    assert {name: sorted(methods) for name, methods in rows.items()} == java_classes.JAVA
