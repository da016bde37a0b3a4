"""Docstrings as Markdown, for the API pages (an extension of Griffe) and for the configuration page."""

from __future__ import annotations

import re
from typing import Any, Final

import griffe

_ROLE: Final = re.compile(r":(?:class|meth|func|attr|data|exc|mod):`~?([^`]*)`")


class DocstringsAsMarkdown(griffe.Extension):  # type: ignore[misc]  # mypy skips Griffe
    """Translates the reStructuredText marks of docstrings. Roles become links to names that are on a page.

    The text of a member of an enumeration is its value if it has no other one: ``KILL = "process killed"``.
    """

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each object that Griffe has loaded, before its docstring is parsed."""
        if obj.docstring is None and (phrase := _phrase(obj)):
            obj.docstring = griffe.Docstring(f"{phrase[0].upper()}{phrase[1:]}.", parent=obj)
        if obj.docstring is not None:
            home = obj.path if obj.is_class else obj.path.rpartition(".")[0]
            obj.docstring.value = markdown(_ROLE.sub(lambda role: _link(role[1], home), obj.docstring.value))


def markdown(docstring: str) -> str:
    """Return a docstring as Markdown, with roles as code."""
    text = _ROLE.sub(lambda role: f"`{_short(role[1])}`", docstring)
    text = re.sub(r"::$", ":", text, flags=re.MULTILINE).replace("``", "`")
    return re.sub(r"(?m)^(?=\* )", "\n", text) if "\n* " in text and "\n\n* " not in text else text


def _phrase(obj: griffe.Object) -> str:
    """Return the value of a member of an enumeration if it says more than the name does."""
    if (
        not obj.is_attribute
        or not obj.parent.is_class
        or not any(str(base).endswith("Enum") for base in obj.parent.bases)
    ):
        return ""
    value = str(obj.value).strip("'\"")
    return "" if value.upper() == obj.name else value


def _link(target: str, home: str) -> str:
    """Return a link to a name. It is plain code if no page describes the name."""
    if not target.startswith("streams_p"):
        target = f"streams_py.{target}" if target[:1].isupper() else f"{home}.{target}"
    return f'<autoref optional identifier="{target}"><code>{_short(target)}</code></autoref>'


def _short(target: str) -> str:
    """Return a name without its modules: ``a.b.KStream.map`` -> ``KStream.map``."""
    parts = target.split(".")
    first = next((number for number, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
    return ".".join(parts[first:])
