"""The names that the API pages show, read from the pages and from the code, which is not imported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import griffe

import streams_py
from docs.tools.docstrings import DocstringsAsMarkdown

_ROOT: Final = Path(__file__).resolve().parents[2]
_MODULES: Final = (
    *("assignment", "connect.api", "metrics", "query", "serdes", "spark", "testing", "testing.broker"),
    *("testing.simulator", "testing.store_contract"),
)
"""Further public modules whose every name is on a page. ``streams_py`` has all errors of users."""


@cache
def _package() -> griffe.Module:
    extensions = griffe.load_extensions(DocstringsAsMarkdown)
    loader = griffe.GriffeLoader(
        extensions=extensions, search_paths=[_ROOT, _ROOT / "protocol"], docstring_parser=griffe.Parser.google
    )
    loader.load("streams_protocol")
    package = loader.load("streams_py")
    loader.resolve_aliases(implicit=False, external=False)
    assert isinstance(package, griffe.Module)
    return package


def found(name: str) -> griffe.Object | griffe.Alias:
    """Return what a name such as ``streams_py.KStream`` is."""
    return _package()[name.removeprefix("streams_py.")]


def pages() -> dict[str, list[str]]:
    """Return each page of the API, with the names that it lists."""
    folder = _ROOT / "docs" / "reference" / "api"
    return {
        page.stem: re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        for page in sorted(folder.glob("*.md"))
    }


def listed() -> list[str]:
    """Return the names of all pages."""
    return [name for names in pages().values() for name in names]


def public() -> set[str]:
    """Return every public name, by the place of its definition."""
    names = [f"streams_py.{name}" for name in streams_py.__all__]
    for module in _MODULES:
        home = f"streams_py.{module}"
        # A function may have the name of its module, which Griffe would find first.
        inside = [f"{home}.{name}" for name in import_module(home).__all__]
        names += [f"{name}.{name.rpartition('.')[2]}" if found(name).is_module else name for name in inside]
    return {found(name).canonical_path for name in names if not found(name).is_module}


def entries() -> Iterator[tuple[str, griffe.Object | griffe.Alias]]:
    """Yield every name on a page, with the public members of classes.

    The tests of a contract have names that are sentences. ``model_config`` belongs to pydantic.
    """
    for name in listed():
        entry = found(name)
        yield name, entry
        if entry.is_class:
            for member, value in entry.all_members.items():
                if not member.startswith(("_", "test_")) and member != "model_config":
                    yield f"{name}.{member}", value


def text_of(entry: griffe.Object | griffe.Alias) -> str:
    """Return the text of a name: its docstring, or its line in the section ``Attributes`` of its class."""
    if entry.docstring is not None:
        return entry.docstring.value.strip()
    inside = entry.final_target.parent if isinstance(entry, griffe.Alias) else entry.parent
    sections = inside.docstring.parsed if inside is not None and inside.docstring is not None else []
    attributes = [
        attribute for section in sections if section.kind.value == "attributes" for attribute in section.value
    ]
    return "".join(attribute.description for attribute in attributes if attribute.name == entry.name)
