"""Limits for untrusted Avro data, checked before the decoder runs.

The decoder is vulnerable to these kinds of data:

* An array whose items take no bytes (null, an empty record, a fixed of size 0) may declare 10^12 items. The decoder
  loops without releasing the interpreter's lock.
* A record that contains itself may be nested a million times. The decoder's C stack overflows.
* A schema may give a few bytes many values. A record with two fields of a second type, which has two fields of a third
  type, and so on, has 2^30 values after thirty types, without any byte of data.

Only data of schemas that allow one of these is checked, in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

DEPTH_MAX: Final = 200
"""Maximum nesting depth of records, arrays, maps and unions."""
VALUES_PER_BYTE_MAX: Final = 4
"""Maximum number of values (fields, items, records) per byte of data. Ordinary data has at most three."""
VALUES_FREE_MAX: Final = 20_000
"""Maximum number of values beyond this, for schemas with many fields that take no bytes."""
DECIMAL_BYTES_MAX: Final = 512
"""Maximum size of a decimal, about 1,200 digits."""
DECIMAL_BYTES_EXTRA: Final = 32
"""Number of bytes that a decimal may have more than its precision requires. Some writers fill up to a fixed size."""
_COUNT_MAX: Final = 1 << 62
"""Counts of values stop here. They double with each type of a schema, and would have millions of digits."""
_FIXED_SIZES: Final = {"float": 4, "double": 8, "boolean": 1, "null": 0}
_NUMBER_BYTES_MAX: Final = 10

_Skip = Callable[["_Data"], None]


class _Data:
    """The data of a record, and a position in it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.depth = 0
        self.items_left = len(data)
        """Number of items without bytes that the rest of the record may still have."""
        self.values_left = VALUES_FREE_MAX + VALUES_PER_BYTE_MAX * len(data)
        """Number of values that the rest of the record may still have."""

    def spend(self, values: int) -> None:
        """Count values."""
        self.values_left -= values
        if self.values_left < 0:
            raise ValueError("the data has too many values for its size")

    def skip(self, count: int) -> None:
        """Advance over ``count`` bytes."""
        if not 0 <= count <= len(self.data) - self.at:
            raise ValueError("the data ends too early")
        self.at += count

    def number(self) -> int:
        """Read a zigzag varint."""
        value = 0
        for group in range(_NUMBER_BYTES_MAX):
            if self.at >= len(self.data):
                raise ValueError("the data ends too early")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << (7 * group)
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise ValueError("a number of more than 64 bits")


def bounds_of(schema: Any) -> Callable[[bytes], None] | None:
    """Return a check for data of a parsed writer's schema. None if no check is needed.

    The check raises ValueError for data that declares more items than it contains, is nested too deeply, or has a
    decimal that is too long.
    """
    walk = _Walk()
    skip = walk.of(schema)
    has_hazard = walk.has_free_items or walk.is_recursive or walk.has_decimals
    if not has_hazard and walk.excess(schema) <= VALUES_FREE_MAX:
        return None

    def check(data: bytes) -> None:
        skip(_Data(data))

    return check


class _Walk:
    def __init__(self) -> None:
        self.has_free_items = False
        self.is_recursive = False
        self.has_decimals = False
        self._named: dict[str, _Skip] = {}
        self._sizes: dict[str, bool] = {}  # name -> whether a value takes no bytes
        self._excess: dict[str, int] = {}

    def of(self, schema: Any) -> _Skip:
        """Return a function that skips one value."""
        if isinstance(schema, list):
            return self._union([self.of(each) for each in schema])
        kind = schema["type"] if isinstance(schema, Mapping) else schema
        if isinstance(kind, Mapping | list):
            return self.of(kind)
        if kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
            return _skip_nothing if size == 0 else lambda data: data.skip(size)
        if kind in ("int", "long", "enum"):
            skip: _Skip = _skip_number
        elif kind == "bytes" and is_decimal(schema):
            self.has_decimals = True
            return _decimal(decimal_bytes_max(schema))
        elif kind in ("string", "bytes"):
            return _skip_bytes
        elif kind == "array":
            item = self.of(schema["items"])
            self.has_free_items |= self.excess(schema["items"]) > 0
            is_free = self._takes_nothing(schema["items"])
            return self._blocks(item, values_of_free=self.excess(schema["items"]) if is_free else 0)
        elif kind == "map":
            value = self.of(schema["values"])
            self.has_free_items |= self.excess("string") + self.excess(schema["values"]) > 0
            return self._blocks(_entry(value), values_of_free=0)
        elif kind == "fixed":
            count = int(schema["size"])
            skip = _skip_nothing if count == 0 else lambda data: data.skip(count)
            if count > DECIMAL_BYTES_MAX and is_decimal(schema):
                self.has_decimals = True
                skip = _refuse_decimal
        elif kind in ("record", "error"):
            return self._record(schema)
        else:
            return self._reference(kind)
        if isinstance(schema, Mapping) and "name" in schema:
            self._named[schema["name"]] = skip
            self._sizes[schema["name"]] = kind == "fixed" and count == 0
            excess = 1 - VALUES_PER_BYTE_MAX * (count if kind == "fixed" else 1)
            self._excess[schema["name"]] = max(-_COUNT_MAX, excess)
        return skip

    def _record(self, schema: Mapping[str, Any]) -> _Skip:
        name = schema["name"]
        self._sizes[name] = False  # for references within the record: a direct one would never end
        self._excess[name] = 0  # the same; these schemas are checked in any case
        fields: list[_Skip] = []

        def skip(data: _Data) -> None:
            _enter(data)
            for field in fields:
                field(data)
            data.depth -= 1

        self._named[name] = skip
        fields.extend(self.of(field["type"]) for field in schema["fields"])
        self._sizes[name] = all(self._takes_nothing(field["type"]) for field in schema["fields"])
        excess = 1 + sum(self.excess(field["type"]) for field in schema["fields"])
        self._excess[name] = max(-_COUNT_MAX, min(excess, _COUNT_MAX))
        return skip

    def _reference(self, name: str) -> _Skip:
        if name not in self._named:
            raise ValueError(f"the schema has the unknown type {name[:80]!r}")
        self.is_recursive = True  # or only used twice: then the check is unnecessary, but harmless
        return self._named[name]

    def _union(self, branches: list[_Skip]) -> _Skip:
        def skip(data: _Data) -> None:
            index = data.number()
            if not 0 <= index < len(branches):
                raise ValueError("the data has a branch of a union that does not exist")
            _enter(data)
            branches[index](data)
            data.depth -= 1

        return skip

    def excess(self, schema: Any) -> int:
        """Return how many values one value of a schema has beyond the allowed number for its bytes, at most.

        Items of arrays and maps are not included.
        """
        if isinstance(schema, list):
            return max(map(self.excess, schema), default=0) - VALUES_PER_BYTE_MAX
        kind = schema["type"] if isinstance(schema, Mapping) else schema
        if isinstance(kind, Mapping | list):
            return self.excess(kind)
        if kind in ("record", "error", "fixed"):
            return self._excess[schema["name"]]
        if kind in self._excess:
            return self._excess[kind]
        return 1 - VALUES_PER_BYTE_MAX * _FIXED_SIZES.get(kind, 1)

    def _blocks(self, item: _Skip, *, values_of_free: int) -> _Skip:
        """Return a function that skips an array or a map.

        Args:
            item: Skips one item.
            values_of_free: Number of values of an item without bytes; 0 if the items have bytes.
        """

        def skip(data: _Data) -> None:
            _enter(data)
            while (count := data.number()) != 0:
                if count < 0:
                    count = -count
                    data.number()  # the size of the block, which the decoder ignores too
                if values_of_free:
                    data.items_left -= count
                    if data.items_left < 0:
                        raise ValueError("an array declares more items than the record has bytes")
                    data.spend(count * values_of_free)
                    continue
                if count > len(data.data) - data.at:
                    raise ValueError("the data ends too early")
                for _ in range(count):
                    item(data)
            data.depth -= 1

        return skip

    def _takes_nothing(self, schema: Any) -> bool:
        if isinstance(schema, list):
            return False
        kind = schema["type"] if isinstance(schema, Mapping) else schema
        if isinstance(kind, Mapping | list):
            return self._takes_nothing(kind)
        if kind in ("record", "error", "fixed"):
            return self._sizes[schema["name"]]
        return kind == "null" or self._sizes.get(kind, False)


def _entry(value: _Skip) -> _Skip:
    def skip(data: _Data) -> None:
        _skip_bytes(data)
        value(data)

    return skip


def is_decimal(schema: Any) -> bool:
    """Whether a type is a decimal."""
    return isinstance(schema, Mapping) and schema.get("logicalType") == "decimal"


def decimal_bytes_max(schema: Mapping[str, Any]) -> int:
    """Return the maximum size of a decimal of type bytes."""
    precision = schema.get("precision")
    if not isinstance(precision, int):  # the decoder refuses such a schema
        return DECIMAL_BYTES_MAX
    # A byte holds at least 2.4 digits.
    return min(DECIMAL_BYTES_MAX, precision * 5 // 12 + 1 + DECIMAL_BYTES_EXTRA)


def _decimal(bytes_max: int) -> _Skip:
    def skip(data: _Data) -> None:
        count = data.number()
        if count > bytes_max:
            _refuse_decimal(data)
        data.skip(count)

    return skip


def _refuse_decimal(_data: _Data) -> None:
    raise ValueError("the data has a decimal with too many bytes")


def _enter(data: _Data) -> None:
    data.spend(1)
    data.depth += 1
    if data.depth > DEPTH_MAX:
        raise ValueError(f"the data is nested more than {DEPTH_MAX} levels deep")


def _skip_nothing(data: _Data) -> None:
    data.spend(1)


def _skip_number(data: _Data) -> None:
    data.number()


def _skip_bytes(data: _Data) -> None:
    data.skip(data.number())
