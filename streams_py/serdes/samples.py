"""Example values of a class, derived from its pydantic schema.

A serde writes and reads them when it is created. So a class whose values never survive a round trip is refused then,
and not at the first record. Examples that a validator rejects are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from streams_py.serdes.members import names_read

_ALTERNATIVES_MAX: Final = 64
_DEPTH_MAX: Final = 20
_VALUES: Final[Mapping[str, list[Any]]] = {
    "any": ["a"],
    "none": [None],
    "bool": [True],
    "int": [1],
    "float": [1.5],
    "decimal": [Decimal("1.10")],
    "complex": [1 + 2j],
    "bytes": [b"a"],
    "date": [date(2026, 1, 2)],
    "time": [time(1, 2, 3)],
    "datetime": [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)],
    "timedelta": [timedelta(days=1, microseconds=3)],
    "uuid": [UUID(int=5)],
    "url": ["http://a.example/"],
    "multi-host-url": ["http://a.example/"],
}


def samples(schema: Mapping[str, Any]) -> list[Any]:
    """Return inputs for a validator of the schema, each of a different shape. Empty for an unsupported schema."""
    return _Samples().of(schema, 0)[:_ALTERNATIVES_MAX]


class _Samples:
    def __init__(self) -> None:
        self._definitions: dict[str, Mapping[str, Any]] = {}

    def of(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        if depth > _DEPTH_MAX:
            return []
        kind = schema["type"]
        if kind in ("int", "float") and not {"gt", "ge", "lt", "le", "multiple_of"}.isdisjoint(schema):
            return [_number(schema, int if kind == "int" else float)]
        if kind in _VALUES:
            return _VALUES[kind]
        if kind == "str":
            return ["a" * max(1, schema.get("min_length", 1))]
        make = _MAKERS.get(kind)
        return [] if make is None else make(self, schema, depth + 1)[:_ALTERNATIVES_MAX]

    def inner(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        return self.of(schema["schema"], depth) if "schema" in schema else []

    def definitions(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        self._definitions.update({each["ref"]: each for each in schema["definitions"]})
        return self.inner(schema, depth)

    def definition_ref(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        found = self._definitions.get(schema["schema_ref"])
        return [] if found is None else self.of(found, depth + 2)

    def nullable(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        return [*self.inner(schema, depth), None]

    def json_text(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        return [json.dumps(each) for each in (self.inner(schema, depth) or [1]) if isinstance(each, str | int | float)]

    def literal(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        return list(schema["expected"])

    def enum(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        return list(schema["members"])

    def union(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        choices = (each[0] if isinstance(each, tuple) else each for each in schema["choices"])
        return [sample for choice in choices for sample in self.of(choice, depth)]

    def tagged_union(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        return [sample for choice in schema["choices"].values() for sample in self.of(choice, depth)]

    def lax_or_strict(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        return self.of(schema["lax_schema"], depth)

    def json_or_python(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        return self.of(schema["python_schema"], depth)

    def chain(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        return self.of(schema["steps"][0], depth)

    def sequence(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        items = self.of(schema.get("items_schema", {"type": "any"}), depth)
        count = max(1, schema.get("min_length", 1))
        return [[item] * count for item in items] or [[]]

    def a_set(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        return [_as(set, each) for each in self.sequence(schema, depth)]

    def a_frozenset(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        return [_as(frozenset, each) for each in self.sequence(schema, depth)]

    def a_tuple(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        items = [self.of(each, depth) for each in schema["items_schema"]]
        return [tuple(each) for each in _one_changed(items)]

    def mapping(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        keys = self.of(schema.get("keys_schema", {"type": "any"}), depth)
        values = self.of(schema.get("values_schema", {"type": "any"}), depth)
        return [{key: value} for key, value in _one_changed([keys, values]) if _is_hashable(key)] or [{}]

    def fields(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        given = schema["fields"]
        fields = [{"name": n, **f} for n, f in given.items()] if isinstance(given, Mapping) else given
        names, alternatives = [], []
        for field in fields:
            has_default = field["schema"]["type"] == "default" or field.get("required") is False
            if field.get("init") is False or (field.get("serialization_exclude") and has_default):
                continue
            read, found = names_read(field), self.of(field["schema"], depth)
            if read and found:
                names.append(read[0])
                alternatives.append(found)
            elif not has_default:
                return []
        return [dict(zip(names, each, strict=True)) for each in _one_changed(alternatives)]

    def named_tuple(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        return [list(each) for each in _one_changed([self.of(f["schema"], depth) for f in schema["fields"]])]


_MAKERS: Final[Mapping[str, Callable[..., Any]]] = {
    "definitions": _Samples.definitions,
    "definition-ref": _Samples.definition_ref,
    "nullable": _Samples.nullable,
    "json": _Samples.json_text,
    "literal": _Samples.literal,
    "enum": _Samples.enum,
    "union": _Samples.union,
    "tagged-union": _Samples.tagged_union,
    "lax-or-strict": _Samples.lax_or_strict,
    "json-or-python": _Samples.json_or_python,
    "chain": _Samples.chain,
    "list": _Samples.sequence,
    "set": _Samples.a_set,
    "frozenset": _Samples.a_frozenset,
    "tuple": _Samples.a_tuple,
    "dict": _Samples.mapping,
    "model-fields": _Samples.fields,
    "dataclass-args": _Samples.fields,
    "typed-dict": _Samples.fields,
    "named-tuple": _Samples.named_tuple,
    **dict.fromkeys(
        ("model", "dataclass", "default", "function-before", "function-after", "function-wrap", "custom-error"),
        _Samples.inner,
    ),
}


def _one_changed(alternatives: list[list[Any]]) -> Iterable[list[Any]]:
    """Yield the first alternative of each position, then variants with one other alternative in one position.

    Yields nothing if a position has no alternatives.
    """
    if not all(alternatives):
        return
    first = [each[0] for each in alternatives]
    yield first
    for at, each in enumerate(alternatives):
        for other in each[1:]:
            yield [*first[:at], other, *first[at + 1 :]]


def _number(schema: Mapping[str, Any], kind: type[Any]) -> Any:
    """Return a number that meets the constraints, or a guess that the validator then rejects."""
    step = schema.get("multiple_of", 1)
    if "gt" in schema or "ge" in schema:
        low = schema.get("gt", schema.get("ge"))
        return kind(low // step * step + step)
    if "lt" in schema or "le" in schema:
        high = schema.get("lt", schema.get("le"))
        return kind(high // step * step - step)
    return kind(step)


def _as(kind: Callable[[Any], Any], items: Any) -> Any:
    try:
        return kind(items)
    except TypeError:  # the items are not hashable; the validator rejects the list
        return items


def _is_hashable(key: object) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True
