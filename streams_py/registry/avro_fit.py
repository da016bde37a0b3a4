"""Check a value before it is written, for everything that the Avro encoder would change silently.

The encoder drops members that the schema does not have, writes an int of any size, and converts values of other types
to booleans. The check is compiled once per schema. Its errors name the field and never show a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from streams_py.serdes.round_trips import UnfitError

_Fit = Callable[[Any], None]
_HINT: Final = "-type"  # the key with which a dict names its branch of a union
_EXACT: Final[Mapping[str, tuple[type[Any], ...]]] = {
    "boolean": (bool,),
    "string": (str,),
    "bytes": (bytes, bytearray, memoryview),
}


def fit_of(schema: Any) -> _Fit | None:
    """Return a check for values of a parsed schema. It raises UnfitError for a value that encoding would change."""
    return _Compiler().of(schema, "the whole")


def top_fields(schema: Any) -> frozenset[str] | None:
    """Return the field names of a schema that is a record, or a union of null and a record. None for others."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        return top_fields(others[0]) if len(others) == 1 else None
    if isinstance(schema, Mapping) and schema.get("type") in ("record", "error"):
        return frozenset(field["name"] for field in schema["fields"])
    return None


class _Compiler:
    def __init__(self) -> None:
        self._named: dict[str, _Fit | None] = {}
        self._fields: dict[str, frozenset[str]] = {}

    def of(self, schema: Any, where: str) -> _Fit | None:
        """Return the check of one type. ``where``: the name of the value in messages."""
        if isinstance(schema, list):
            return self._union(schema, where)
        kind = schema["type"] if isinstance(schema, Mapping) else schema
        if isinstance(kind, Mapping | list):
            return self.of(kind, where)
        if isinstance(schema, Mapping) and "logicalType" in schema:
            return None  # the encoder converts other types
        if kind == "int":
            return _int(where)
        if kind in _EXACT:
            return _exact(_EXACT[kind], kind, where)
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            return _each(self.of(schema["items"], where), list | tuple, lambda value: value)
        if kind == "map":
            return _each(self.of(schema["values"], where), Mapping, lambda value: value.values())
        return self._named.get(kind)

    def _record(self, schema: Mapping[str, Any]) -> _Fit:
        name = schema["name"]
        allowed = frozenset(field["name"] for field in schema["fields"])
        fields: list[tuple[str, _Fit]] = []

        def check(value: Any) -> None:
            if not isinstance(value, Mapping):
                return  # the encoder reports this
            if not value.keys() <= allowed:
                more = sorted(str(key) for key in value.keys() - allowed if key != _HINT)
                if more:
                    raise UnfitError(f"it does not fit the schema: {name} has no field {more[0]!r:.80}")
            for field, fits in fields:
                if field in value:
                    fits(value[field])

        self._named[name] = check
        self._fields[name] = allowed
        for field in schema["fields"]:
            fits = self.of(field["type"], f"{name}.{field['name']}")
            if fits is not None:
                fields.append((field["name"], fits))
        return check

    def _union(self, branches: list[Any], where: str) -> _Fit | None:
        fits = [(branch, self.of(branch, where)) for branch in branches if branch != "null"]
        if len(fits) == 1:
            (_, only) = fits[0]
            return None if only is None else lambda value: None if value is None else only(value)
        # With several branches, the encoder chooses one. A dict must fit one of the records.
        records = [self._named[name] for branch, _ in fits if (name := _name_of(branch)) in self._fields]
        has_map = any(isinstance(branch, Mapping) and branch.get("type") == "map" for branch in branches)
        if not records or has_map:
            return None
        return lambda value: _any_of(records, value) if isinstance(value, Mapping) else None


def _name_of(branch: Any) -> str:
    return str(branch["name"] if isinstance(branch, Mapping) and "name" in branch else branch)


def _any_of(checks: list[Any], value: Any) -> None:
    first: UnfitError | None = None
    for check in checks:
        try:
            check(value)
        except UnfitError as error:
            first = first or error
        else:
            return
    if first is not None:
        raise first


def _int(where: str) -> _Fit:
    def check(value: Any) -> None:
        if isinstance(value, int) and not -(2**31) <= value < 2**31:
            raise UnfitError(f"it does not fit the schema: {where} exceeds the 32 bits of an int; declare a long")

    return check


def _exact(kinds: tuple[type[Any], ...], kind: str, where: str) -> _Fit:
    def check(value: Any) -> None:
        if value is not None and not isinstance(value, kinds):
            raise UnfitError(f"it does not fit the schema: {where} is a {type(value).__name__}, expected {kind}")

    return check


def _each(item: _Fit | None, kind: Any, items: Callable[[Any], Any]) -> _Fit | None:
    if item is None:
        return None

    def check(value: Any) -> None:
        if isinstance(value, kind):
            for each in items(value):
                item(each)

    return check
