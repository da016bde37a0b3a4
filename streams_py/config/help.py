"""The text of ``help(StreamsConfig)``: every key with its default and meaning, without the members of pydantic."""

from __future__ import annotations

import inspect
import os
import tempfile
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_HOLDERS = {"clients", "topics", "client_tags", "app", "original"}
"""Fields that are not keys."""


class ExplainedKeys(type(BaseModel)):  # type: ignore[misc]  # its metaclass has no public name
    """A metaclass that builds the documentation of a configuration from the documentation of its fields."""

    @property
    def __doc__(cls) -> str:  # type: ignore[override]
        text = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
        return f"{text}\n\nKeys of Kafka Streams, with their defaults:\n\n{_keys(cls)}"

    def __dir__(cls) -> list[str]:
        """Return the names that users need."""
        mine = [name for name, value in vars(cls).items() if not name.startswith(("_", "model_")) and _is_own(value)]
        return sorted({*mine, "__doc__", "__module__"})


def _is_own(value: object) -> bool:
    return isinstance(value, property | classmethod) or inspect.isfunction(value)


def key_of(name: str, field: FieldInfo) -> str:
    """Return the dotted key of a field. Empty if the field is not a key."""
    return "" if name in _HOLDERS else field.alias or name.replace("_", ".")


def meaning_of(field: FieldInfo) -> tuple[str, str]:
    """Return the meaning of a key, and the advice when to change it."""
    meaning, _, change = " ".join((field.description or "").split()).partition(" Change it: ")
    return meaning, change


def default_of(field: FieldInfo) -> str:
    """Return the default as in a configuration file: ``required`` without a default, empty for an empty text."""
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).replace(os.path.join(tempfile.gettempdir(), ""), "/tmp/")


def _keys(cls: Any) -> str:
    paragraphs = []
    for name, field in cls.model_fields.items():
        key = key_of(name, field)
        if key:
            meaning, change = meaning_of(field)
            default = default_of(field)
            first = f"{key} ({default})" if default == "required" else f"{key} = {default}".rstrip()
            paragraphs.append("\n".join([first, *_wrapped(meaning), *_wrapped(f"Change it: {change}")]))
    return "\n\n".join(paragraphs)


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width=96, initial_indent="    ", subsequent_indent="    ")
