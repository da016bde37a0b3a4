"""Limits for the size of Avro schemas from the registry, and marks so that the decoder parses no schema per record.

The decoder parses a schema again for each record, unless it has the marks of a parsed record. It copies the names of
all types once per marked branch of a union. Both take longer than the record if the schema is large.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

NAMED_TYPES_MAX: Final = 1000
"""Maximum number of records, enums and fixed types of a schema with its references. Also of branches at the top."""
VALUES_MAX: Final = 20_000
"""Maximum number of JSON values of a schema with its references. A field has about four."""
NESTING_MAX: Final = 500
"""Maximum nesting depth of the JSON text of a schema or a reference."""
NESTING_SUM_MAX: Final = 3000
"""Maximum sum of these. The parser inserts references into one another, and its C stack holds about 15,000 levels."""
PARSED_VALUES_MAX: Final = 5_000_000
"""Maximum number of JSON values that are parsed when a schema is first used: all of them again per reference."""

_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_PARSED_MARK: Final = "__fastavro_parsed"
_NAMES_MARK: Final = "__named_schemas"


class SchemaSizeError(ValueError):
    """A schema is too large. The message contains no text from the registry."""


class _Names(dict[str, Any]):
    """The named types of a schema. They contain one another, and the decoder's errors show the whole schema."""

    def __repr__(self) -> str:
        return "{...}"


def check_size(texts: Sequence[str]) -> None:
    """Raise SchemaSizeError if a schema is too large. ``texts``: the schema itself, then all its references."""
    values = named = nesting_sum = 0
    for text in texts:
        schema = json.loads(text)
        if isinstance(schema, list) and len(schema) > NAMED_TYPES_MAX:
            raise SchemaSizeError(f"a union of more than {NAMED_TYPES_MAX} types")
        for nesting, level in enumerate(_levels(schema), start=1):
            nesting_sum += 1
            values += len(level)
            kinds = [value.get("type") for value in level if isinstance(value, dict)]
            named += sum(isinstance(kind, str) and kind in _NAMED for kind in kinds)
            if named > NAMED_TYPES_MAX:
                raise SchemaSizeError(f"more than {NAMED_TYPES_MAX} named types")
            if values > VALUES_MAX:
                raise SchemaSizeError(f"more than {VALUES_MAX} values")
            if nesting > NESTING_MAX or nesting_sum > NESTING_SUM_MAX:
                raise SchemaSizeError("nested too deeply")
    if values * len(texts) > PARSED_VALUES_MAX:
        raise SchemaSizeError("too many references for its size")


def _levels(root: Any) -> Iterator[list[Any]]:
    """Yield the values of each nesting level of a JSON document."""
    level = [root]
    while level:
        yield level
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]


def mark_parsed(schema: Any) -> None:
    """Mark a parsed schema, so that the decoder does not parse it again.

    Args:
        schema: What the parser returned. It is changed.
    """
    branches = [each for each in (schema if isinstance(schema, list) else [schema]) if isinstance(each, dict)]
    names = _named_types(branches)
    for branch in branches:
        branch[_PARSED_MARK] = True
        branch[_NAMES_MARK] = names
        names = _Names()  # the decoder adds up the names of all branches


def _named_types(schemas: Sequence[Any]) -> _Names:
    names = _Names()
    left: list[Any] = [*schemas]
    while left:
        schema = left.pop()
        if isinstance(schema, list):
            left += schema
        elif isinstance(schema, dict):
            kind = schema["type"]
            if isinstance(kind, dict | list):
                left.append(kind)
            elif kind in _NAMED:  # a copy without marks, so that nothing contains itself
                marks = (_PARSED_MARK, _NAMES_MARK)
                names[schema["name"]] = {key: value for key, value in schema.items() if key not in marks}
                left += [field["type"] for field in schema.get("fields", ())]
            elif kind in ("array", "map"):
                left.append(schema["items" if kind == "array" else "values"])
    return names
