"""Check a value before it is written, for everything that the Avro encoder would change silently.

The encoder drops fields that the schema does not have, writes an int of any size, and converts values of other types
to booleans. The check is compiled once per schema. Its errors name the field and never show a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any, Final

from streams_py.registry.avro_bounds import DECIMAL_BYTES_MAX, decimal_bytes_max, is_decimal
from streams_py.serdes.round_trips import UnfitError

_Fit = Callable[[Any], None]
_HINT: Final = "-type"  # the key with which a dict names its branch of a union
_EXACT_CONTEXT: Final = Context(prec=4 * DECIMAL_BYTES_MAX)
_EXACT: Final[Mapping[str, tuple[type[Any], ...]]] = {
    "boolean": (bool,),
    "string": (str,),
    "bytes": (bytes, bytearray, memoryview),
}


def fit_of(schema: Any) -> _Fit | None:
    """Return a check for values of a parsed schema. It raises UnfitError for a value that encoding would change."""
    return _Compiler().of(schema, "the value")


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
        if is_decimal(schema):
            return self._decimal(schema, where)
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

    def _decimal(self, schema: Mapping[str, Any], where: str) -> _Fit | None:
        if schema["type"] == "bytes":
            return _decimal_within(decimal_bytes_max(schema), schema.get("scale", 0), where)
        size = schema["size"]
        if size <= DECIMAL_BYTES_MAX:
            return None

        def refuse(value: Any) -> None:
            if value is not None:
                raise UnfitError(_too_long(where, size, DECIMAL_BYTES_MAX))

        self._named[schema["name"]] = refuse
        return refuse

    def _union(self, branches: list[Any], where: str) -> _Fit | None:
        fits = [(branch, self.of(branch, where)) for branch in branches if branch != "null"]
        if len(fits) == 1:
            (_, only) = fits[0]
            return None if only is None else lambda value: None if value is None else only(value)
        decimals = [check for branch, check in fits if is_decimal(branch) and check is not None]
        others = any(_holds_bytes(branch) and not is_decimal(branch) for branch, _ in fits)
        of_dict = self._record_of_union(branches, fits)
        if not decimals:
            return of_dict

        def check(value: Any) -> None:
            if isinstance(value, Decimal) or (isinstance(value, bytes) and not others):
                _any_of(decimals, value)
            elif of_dict is not None:
                of_dict(value)

        return check

    def _record_of_union(self, branches: list[Any], fits: list[tuple[Any, _Fit | None]]) -> _Fit | None:
        # With several branches, the encoder chooses one. A dict must fit one of the records.
        records = [self._named[name] for branch, _ in fits if (name := _name_of(branch)) in self._fields]
        has_map = any(isinstance(branch, Mapping) and branch.get("type") == "map" for branch in branches)
        if not records or has_map:
            return None
        return lambda value: _any_of(records, value) if isinstance(value, Mapping) else None


def _name_of(branch: Any) -> str:
    return str(branch["name"] if isinstance(branch, Mapping) and "name" in branch else branch)


def _holds_bytes(branch: Any) -> bool:
    return (branch["type"] if isinstance(branch, Mapping) else branch) in ("bytes", "fixed")


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


def _decimal_within(bytes_max: int, scale: int, where: str) -> _Fit:
    def check(value: Any) -> None:
        size = len(value) if isinstance(value, bytes | bytearray) else _encoded_bytes(value, scale)
        if size > bytes_max:
            raise UnfitError(_too_long(where, size, bytes_max))

    return check


def _encoded_bytes(value: Any, scale: int) -> int:
    """Return the size of a decimal in bytes. 0 for other values, and for decimals that the encoder refuses."""
    if not isinstance(value, Decimal):
        return 0
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent + scale < 0:
        return 0
    count = len(digits) + exponent + scale
    if count > 3 * DECIMAL_BYTES_MAX:  # computing the number could take long
        return count * 5 // 12
    return (int(value.scaleb(scale, _EXACT_CONTEXT)).bit_length() + 8) // 8


def _too_long(where: str, size: int, bytes_max: int) -> str:
    return (
        f"it does not fit the schema: {where} is a decimal of {size:,} bytes, and the deserializer accepts at most "
        f"{bytes_max}; use a smaller number, or declare a higher precision (at most {DECIMAL_BYTES_MAX} bytes)"
    )


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
