"""The keywords of JSON Schema, in all versions that ``jsonschema`` supports.

A keyword is a function that returns the first :class:`Fault` of a value, or None. It takes steps from the budget of the
check (:class:`.Steps`) for everything whose time depends on the schema or the value: the items of a list, the length of
a text, a search, a comparison. Checking a part of a schema (:meth:`Check.fault`) also takes steps.

The results are equal to the results of ``jsonschema``, and tests compare them. ``format`` is an annotation, as in the
serializers of confluent-kafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Number
from typing import Any, Final, NamedTuple

from referencing.jsonschema import lookup_recursive_ref, specification_with

from streams_py.system.bounded_patterns import BoundedPattern, Steps

_PART: Final = 1
"""Steps of a part of a schema, in addition to those of its keywords."""
_KEYWORD: Final = 1
_REFERENCE: Final = 8
_SCOPE: Final = 2
"""Steps for each scope in which a dynamic reference may be resolved."""
_SEGMENT: Final = 1
"""Steps for each segment of a JSON pointer."""
_ITEMS_PER_STEP: Final = 8
_CHARACTERS_PER_STEP: Final = 100
_BITS_PER_STEP: Final = 64
_ESCAPES_PER_STEP: Final = 4
_KEYS_MAX: Final = 100_000
"""Maximum number of cached keys of values in a schema."""


class Fault:
    """The first part of a value that does not fit.

    Attributes:
        path: Position in the value, in reverse order. None stands for a name that only the record has.
    """

    __slots__ = ("keyword", "path")

    def __init__(self, keyword: str = "") -> None:
        self.keyword = keyword
        self.path: list[str | int | None] = []

    def at(self, name: str | int | None) -> Fault:
        """Add ``name`` to the path and return this fault. It is then a fault of the containing value."""
        self.path.append(name)
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """A version of JSON Schema."""

    uri: str
    keywords: Mapping[str, Keyword]
    types: Mapping[str, Callable[[Any], bool]]
    id_name: str = "$id"
    is_ref_alone: bool = False
    """Whether keywords next to a ``$ref`` are ignored."""
    specification: Any = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specification", specification_with(self.uri))


class Scope(NamedTuple):
    """Where a part of a schema is: its version of JSON Schema, and what resolves its references."""

    dialect: Dialect
    resolver: Any


class Check:
    """One check of a value: its budget, and what the keywords use.

    Args:
        patterns: Compiled regular expressions of the schema, by their text.
        keys: Keys of the values in the schema (:meth:`key`), by the id of the value.
        uri_steps: Steps to resolve a reference relative to the URI of a schema.
        has_formats: Whether regular expressions (``"format": "regex"``) are checked.
    """

    __slots__ = ("_depth", "_has_formats", "_keys", "_patterns", "_uri_steps", "steps")

    def __init__(
        self,
        steps: Steps,
        patterns: dict[str, BoundedPattern],
        keys: dict[int, tuple[Any, Any]],
        uri_steps: int,
        *,
        has_formats: bool = False,
    ) -> None:
        self.steps = steps
        self._patterns = patterns
        self._keys = keys
        self._uri_steps = uri_steps
        self._has_formats = has_formats
        self._depth = 0

    def fault(self, value: Any, schema: Any, scope: Scope, *, is_entered: bool = False) -> Fault | None:
        """Return the first fault of a value against a part of a schema; None if it fits.

        Args:
            value: The value.
            schema: The part of the schema.
            scope: Scope of the surrounding part; with ``is_entered``, of the part itself.
            is_entered: Whether the scope is that of the part.
        """
        if schema is True:
            self.steps.take()
            return None
        if schema is False:
            return Fault()
        self.steps.take(_PART + len(schema) // _ITEMS_PER_STEP)
        scope = self.entered(schema, scope, is_entered=is_entered)
        dialect = scope.dialect
        self._depth += 1
        for name, argument in _keywords_of(schema, dialect):
            keyword = dialect.keywords.get(name)
            if keyword is not None:
                self.steps.take(_KEYWORD)
                fault = keyword(self, argument, value, schema, scope)
                if fault is not None:
                    fault.keyword = fault.keyword or name
                    self._depth -= 1
                    return fault
        self._depth -= 1
        return None

    def fits(self, value: Any, schema: Any, scope: Scope) -> bool:
        """Whether a value fits a part of a schema."""
        return self.fault(value, schema, scope) is None

    def entered(self, schema: Any, scope: Scope, *, is_entered: bool = False) -> Scope:
        """Return the scope of a part of a schema, which may have another URI or version than ``scope``."""
        dialect, resolver = scope
        if not is_entered and dialect.id_name in schema:
            self.steps.take(_REFERENCE + self._uri_steps)
            resolver = resolver.in_subresource(dialect.specification.create_resource(schema))
        if "$schema" in schema:
            dialect = dialect_of(schema, dialect)
        return scope if resolver is scope.resolver and dialect is scope.dialect else Scope(dialect, resolver)

    def resolved(self, name: str, argument: Any, scope: Scope) -> tuple[Any, Scope]:
        """Return the part to which ``$ref``, ``$dynamicRef`` or ``$recursiveRef`` refers, and its scope."""
        self.steps.take(_REFERENCE + self._uri_steps)
        if name != "$ref":
            self.steps.take(self._depth * (_SCOPE + self._uri_steps))
        if name == "$recursiveRef":
            found = lookup_recursive_ref(scope.resolver)
        else:
            pointer = argument.partition("#")[2]
            segments = pointer.count("/") + pointer.count("%2")  # a slash may be written as %2F
            self.steps.take(len(argument) // _CHARACTERS_PER_STEP + pointer.count("%") // _ESCAPES_PER_STEP)
            self.steps.take(segments * (_SEGMENT + segments // _ITEMS_PER_STEP + self._uri_steps))
            found = scope.resolver.lookup(argument)
        return found.contents, Scope(scope.dialect, found.resolver)

    def loop(self, items: Any) -> None:
        """Take the steps of a loop over items."""
        self.steps.take(len(items) // _ITEMS_PER_STEP)

    def matches(self, pattern: str, text: str) -> bool:
        """Whether a regular expression of the schema matches anywhere in a text."""
        return self.pattern(pattern).search(text, self.steps)

    def pattern(self, text: str) -> BoundedPattern:
        """Compile a regular expression."""
        found = self._patterns.get(text)
        if found is None:
            found = self._patterns[text] = BoundedPattern(text, self.steps)
        return found

    def has_format(self, value: Any, format: Any) -> bool:
        """Whether a value has a format. Only regular expressions are checked, and only in schemas."""
        if not (self._has_formats and format == "regex" and isinstance(value, str)):
            return True
        try:
            self.pattern(value)
        except (re.error, OverflowError):
            return False
        return True

    def key(self, value: Any) -> str:
        """Return a text that is equal for equal JSON values, and different for others.

        Unlike hashes of numbers, hashes of texts cannot be chosen, so a set of keys is fast for all values.
        """
        if isinstance(value, str):
            self.steps.take(len(value) // _CHARACTERS_PER_STEP)
            return f'"{len(value)}:{value}'
        parts: list[str] = []
        self._add_key(value, parts)
        return ",".join(parts)

    def _add_key(self, value: Any, parts: list[str]) -> None:
        self.steps.take()
        if isinstance(value, dict):
            self.steps.take(len(value) * len(value).bit_length() // _ITEMS_PER_STEP)
            parts.append(f"{{{len(value)}")
            for name in sorted(value):
                parts.append(self.key(name))
                self._add_key(value[name], parts)
        elif isinstance(value, list | tuple):
            parts.append(f"[{len(value)}")
            for item in value:
                self._add_key(item, parts)
        elif isinstance(value, str):
            parts.append(self.key(value))
        elif value is None or isinstance(value, bool):
            parts.append(str(value))
        elif isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
            number = int(value)
            self.steps.take(number.bit_length() // _BITS_PER_STEP)
            parts.append(hex(number))
        elif isinstance(value, float):
            parts.append(value.hex())
        else:  # a value of the program without a JSON form
            parts.append(repr(value))

    def known_key(self, value: Any) -> str:
        """Return the key of a value in the schema, from the cache if possible; see :meth:`key`."""
        key: str = self._known(value, self.key)
        return key

    def known_keys(self, values: Any) -> frozenset[str]:
        """Return the keys of the items of a list in the schema."""
        keys: frozenset[str] = self._known(values, lambda items: frozenset(map(self.key, items)))
        return keys

    def _known(self, value: Any, make: Callable[[Any], Any]) -> Any:
        if not isinstance(value, dict | list):  # other objects may be shared, and are cheap
            return make(value)
        found = self._keys.get(id(value))
        if found is None:
            if len(self._keys) >= _KEYS_MAX:
                self._keys.clear()
            found = self._keys[id(value)] = (value, make(value))
        return found[1]


Keyword = Callable[[Check, Any, Any, Any, Scope], Fault | None]


def dialect_of(schema: Any, default: Dialect) -> Dialect:
    """Return the version of JSON Schema that a schema names."""
    named = schema.get("$schema") if isinstance(schema, dict) else None
    return DIALECTS.get(named.removesuffix("#"), default) if isinstance(named, str) else default


def _keywords_of(schema: Any, dialect: Dialect) -> Any:
    if dialect.is_ref_alone and schema.get("$ref") is not None:
        return (("$ref", schema["$ref"]),)
    return schema.items()


# -- references and combinations -------------------------------------------------------------------------------


def _reference(name: str) -> Keyword:
    def refer(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
        part, inner = check.resolved(name, argument, scope)
        return check.fault(value, part, inner, is_entered=True)

    return refer


def _all_of(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    for part in argument:
        fault = check.fault(value, part, scope)
        if fault is not None:
            return fault
    return None


def _any_of(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    for part in argument:
        if check.fits(value, part, scope):
            return None
    return Fault()


def _one_of(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    count = 0
    for part in argument:
        count += check.fits(value, part, scope)
        if count > 1:
            return Fault()
    return None if count else Fault()


def _not(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    return Fault() if check.fits(value, argument, scope) else None


def _if(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    name = "then" if check.fits(value, argument, scope) else "else"
    return check.fault(value, schema[name], scope) if name in schema else None


def _extends(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    return _all_of(check, [argument] if isinstance(argument, dict) else argument, value, schema, scope)


def _disallow(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    for one in _listed(argument):
        if _type(check, [one], value, schema, scope) is None:
            return Fault()
    return None


# -- all types -------------------------------------------------------------------------------------------------


def _type(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    check.loop(argument)
    for one in _listed(argument):
        if isinstance(one, dict):  # draft 3
            if check.fits(value, one, scope):
                return None
        elif scope.dialect.types[one](value):
            return None
    return Fault()


def _enum(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    return None if check.key(value) in check.known_keys(argument) else Fault()


def _const(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    return None if check.key(value) == check.known_key(argument) else Fault()


def _format(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    return None if check.has_format(value, argument) else Fault()


# -- numbers ---------------------------------------------------------------------------------------------------


def _compare(fails: Callable[[Any, Any], bool]) -> Keyword:
    def compare(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
        return Fault() if _is_number(value) and fails(value, argument) else None

    return compare


def _old_minimum(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not _is_number(value):
        return None
    return Fault() if (value <= argument if schema.get("exclusiveMinimum", False) else value < argument) else None


def _old_maximum(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not _is_number(value):
        return None
    return Fault() if (value >= argument if schema.get("exclusiveMaximum", False) else value > argument) else None


def _multiple_of(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not _is_number(value):
        return None
    if isinstance(value, int):
        check.steps.take((value.bit_length() // _BITS_PER_STEP) ** 2 // _ITEMS_PER_STEP)
    if isinstance(argument, float):
        try:
            quotient = value / argument
            return Fault() if int(quotient) != quotient else None
        except OverflowError:  # the quotient, or the value, is too large for a float
            return Fault() if (Fraction(value) / Fraction(argument)).denominator != 1 else None
    return Fault() if value % argument else None


# -- texts -----------------------------------------------------------------------------------------------------


def _pattern(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    return Fault() if isinstance(value, str) and not check.matches(argument, value) else None


def _size(kind: type[Any], fails: Callable[[int, Any], bool]) -> Keyword:
    def limit(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
        return Fault() if isinstance(value, kind) and fails(len(value), argument) else None

    return limit


# -- arrays ----------------------------------------------------------------------------------------------------


def _each(check: Check, part: Any, value: list[Any], scope: Scope, start: int = 0) -> Fault | None:
    for index in range(start, len(value)):
        fault = check.fault(value[index], part, scope)
        if fault is not None:
            return fault.at(index)
    return None


def _prefix_items(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if isinstance(value, list):
        for index, (item, part) in enumerate(zip(value, argument, strict=False)):
            fault = check.fault(item, part, scope)
            if fault is not None:
                return fault.at(index)
    return None


def _items(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not isinstance(value, list):
        return None
    prefix = len(schema.get("prefixItems", ()))
    if argument is False:
        return Fault() if len(value) > prefix else None
    return _each(check, argument, value, scope, prefix)


def _old_items(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not isinstance(value, list):
        return None
    if isinstance(argument, list):
        return _prefix_items(check, argument, value, schema, scope)
    return _each(check, argument, value, scope)


def _additional_items(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    items = schema.get("items")
    if not (isinstance(value, list) and isinstance(items, list)):
        return None
    if argument is False:
        return Fault() if len(value) > len(items) else None
    return _each(check, argument, value, scope, len(items))


def _contains(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not isinstance(value, list):
        return None
    least, most, count = schema.get("minContains", 1), schema.get("maxContains", len(value)), 0
    for item in value:
        if check.fits(item, argument, scope):
            count += 1
            if count > most:
                return Fault("maxContains")
    if count >= least:
        return None
    return Fault("minContains" if count else "contains")


def _old_contains(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not isinstance(value, list):
        return None
    for item in value:
        if check.fits(item, argument, scope):
            return None
    return Fault()


def _unique_items(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not (argument and isinstance(value, list)):
        return None
    seen: set[str] = set()
    for item in value:
        check.steps.take()
        key = check.key(item)
        if key in seen:
            return Fault()
        seen.add(key)
    return None


def _unevaluated_items(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not isinstance(value, list):
        return None
    evaluated = _evaluated_items(check, value, schema, scope, is_whole=False)
    for index, item in enumerate(value):
        check.steps.take()
        if index not in evaluated:
            fault = check.fault(item, argument, scope)
            if fault is not None:
                fault.keyword = ""
                return fault.at(index)
    return None


# -- objects ---------------------------------------------------------------------------------------------------


def _properties(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not isinstance(value, dict):
        return None
    check.loop(argument)
    for name, part in argument.items():
        if name in value:
            fault = check.fault(value[name], part, scope)
            if fault is not None:
                return fault.at(name)
    return None


def _properties_draft3(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not isinstance(value, dict):
        return None
    check.loop(argument)
    for name, part in argument.items():
        if name in value:
            fault = check.fault(value[name], part, scope)
            if fault is not None:
                return fault.at(name)
        elif part.get("required", False):
            return Fault("required").at(name)
    return None


def _pattern_properties(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not isinstance(value, dict):
        return None
    for pattern, part in argument.items():
        check.steps.take()
        for name, item in value.items():
            if check.matches(pattern, name):
                fault = check.fault(item, part, scope)
                if fault is not None:
                    return fault.at(None)
    return None


def _additional_properties(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if argument is True or not isinstance(value, dict):
        return None
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    check.loop(value)
    for name, item in value.items():
        if name in properties or any(check.matches(pattern, name) for pattern in patterns):
            continue
        if argument is False:
            return Fault()
        fault = check.fault(item, argument, scope)
        if fault is not None:
            return fault.at(None)
    return None


def _property_names(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if isinstance(value, dict):
        for name in value:
            fault = check.fault(name, argument, scope)
            if fault is not None:
                return fault
    return None


def _required(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not isinstance(value, dict):
        return None
    check.loop(argument)
    return None if all(name in value for name in argument) else Fault()


def _dependencies(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not isinstance(value, dict):
        return None
    check.loop(argument)
    for name, dependency in argument.items():
        if name not in value:
            continue
        if isinstance(dependency, dict | bool):
            fault = check.fault(value, dependency, scope)
        else:
            fault = _required(check, _listed(dependency), value, schema, scope)
        if fault is not None:
            return fault
    return None


def _unevaluated_properties(check: Check, argument: Any, value: Any, schema: Any, scope: Scope) -> Fault | None:
    if not isinstance(value, dict):
        return None
    evaluated = _evaluated_names(check, value, schema, scope, is_whole=False)
    check.loop(value)
    for name, item in value.items():
        if name not in evaluated:
            fault = check.fault(item, argument, scope)
            if fault is not None:
                fault.keyword = ""
                return fault.at(None)
    return None


# -- what other keywords have evaluated ------------------------------------------------------------------------


def _parts_that_fit(check: Check, value: Any, schema: Any, scope: Scope) -> list[tuple[Any, Scope]]:
    """Return the parts of a schema that also apply to this value: references, and alternatives that it fits.

    These parts evaluate further properties or items of the value.
    """
    found = [
        check.resolved(name, schema[name], scope)
        for name in ("$ref", "$dynamicRef", "$recursiveRef")
        if name in schema and name in scope.dialect.keywords
    ]
    parts = [part for name in ("allOf", "oneOf", "anyOf") for part in schema.get(name, ())]
    if isinstance(value, dict) and "dependentSchemas" in schema:
        check.loop(schema["dependentSchemas"])
        parts += [part for name, part in schema["dependentSchemas"].items() if name in value]
    parts = [part for part in parts if check.fits(value, part, scope)]
    if "if" in schema:
        fits = check.fits(value, schema["if"], scope)
        parts += [schema[name] for name in (("if", "then") if fits else ("else",)) if name in schema]
    found.extend((part, scope if isinstance(part, bool) else check.entered(part, scope)) for part in parts)
    return found


def _evaluated_names(
    check: Check, value: dict[str, Any], schema: Any, scope: Scope, *, is_whole: bool = True
) -> set[str]:
    """Return the names of the properties that a schema evaluates.

    ``is_whole``: include the result of ``unevaluatedProperties``.
    """
    found: set[str] = set()
    check.steps.take(_PART)
    if isinstance(schema, bool):
        return found
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    check.loop(properties)
    found.update(name for name in properties if name in value)
    for name in value:
        check.steps.take()
        if name not in found and any(check.matches(pattern, name) for pattern in patterns):
            found.add(name)
    for part, inner in _parts_that_fit(check, value, schema, scope):
        found |= _evaluated_names(check, value, part, inner)
    for keyword in ("additionalProperties", "unevaluatedProperties") if is_whole else ("additionalProperties",):
        if keyword in schema:
            found.update(
                name for name, item in value.items() if name not in found and check.fits(item, schema[keyword], scope)
            )
    return found


def _evaluated_items(check: Check, value: list[Any], schema: Any, scope: Scope, *, is_whole: bool = True) -> set[int]:
    """Return the indexes of the items that a schema evaluates. ``is_whole``: include ``unevaluatedItems``."""
    found: set[int] = set()
    check.steps.take(_PART)
    if isinstance(schema, bool):
        return found
    has_prefix = "prefixItems" in scope.dialect.keywords
    items, prefix = schema.get("items"), schema.get("prefixItems", ()) if has_prefix else ()
    if not has_prefix and isinstance(items, list) and "additionalItems" not in schema:
        items, prefix = None, items
    check.loop(value)
    found.update(range(len(value) if items is not None else min(len(value), len(prefix))))
    for part, inner in _parts_that_fit(check, value, schema, scope):
        found |= _evaluated_items(check, value, part, inner)
        check.loop(value)
    for keyword in ("contains", "unevaluatedItems") if is_whole else ("contains",):
        if keyword in schema:
            found.update(
                index
                for index, item in enumerate(value)
                if index not in found and check.fits(item, schema[keyword], scope)
            )
    return found


# -- types -----------------------------------------------------------------------------------------------------


def _listed(argument: Any) -> Any:
    return [argument] if isinstance(argument, str) else argument


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) and not isinstance(value, bool)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_int(value) or (isinstance(value, float) and value.is_integer()),
    "null": lambda value: value is None,
    "number": _is_number,
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}
_TYPES_DRAFT4: Final = {**_TYPES, "integer": _is_int}
_TYPES_DRAFT3: Final = {**_TYPES_DRAFT4, "any": lambda _value: True}

# -- versions --------------------------------------------------------------------------------------------------

_COMMON: Final[Mapping[str, Keyword]] = {
    "$ref": _reference("$ref"),
    "additionalProperties": _additional_properties,
    "enum": _enum,
    "format": _format,
    "maxItems": _size(list, lambda size, limit: size > limit),
    "maxLength": _size(str, lambda size, limit: size > limit),
    "minItems": _size(list, lambda size, limit: size < limit),
    "minLength": _size(str, lambda size, limit: size < limit),
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "type": _type,
    "uniqueItems": _unique_items,
}
_OLD: Final = {
    "additionalItems": _additional_items,
    "dependencies": _dependencies,
    "items": _old_items,
    "maximum": _old_maximum,
    "minimum": _old_minimum,
}
_SINCE_DRAFT4: Final = {
    "allOf": _all_of,
    "anyOf": _any_of,
    "maxProperties": _size(dict, lambda size, limit: size > limit),
    "minProperties": _size(dict, lambda size, limit: size < limit),
    "multipleOf": _multiple_of,
    "not": _not,
    "oneOf": _one_of,
    "properties": _properties,
    "required": _required,
}
_SINCE_DRAFT6: Final = {
    "const": _const,
    "exclusiveMaximum": _compare(lambda value, limit: value >= limit),
    "exclusiveMinimum": _compare(lambda value, limit: value <= limit),
    "maximum": _compare(lambda value, limit: value > limit),
    "minimum": _compare(lambda value, limit: value < limit),
    "propertyNames": _property_names,
}
_SINCE_2019: Final = {
    "contains": _contains,
    "dependentRequired": _dependencies,
    "dependentSchemas": _dependencies,
    "if": _if,
    "unevaluatedItems": _unevaluated_items,
    "unevaluatedProperties": _unevaluated_properties,
}
_DRAFT3: Final = {
    **_COMMON,
    **_OLD,
    "disallow": _disallow,
    "divisibleBy": _multiple_of,
    "extends": _extends,
    "properties": _properties_draft3,
}
_DRAFT4: Final = {**_COMMON, **_OLD, **_SINCE_DRAFT4}
_DRAFT6: Final = {**_DRAFT4, **_SINCE_DRAFT6, "contains": _old_contains}
_DRAFT7: Final = {**_DRAFT6, "if": _if}
_DRAFT_2019_09: Final = {
    **_COMMON,
    **_SINCE_DRAFT4,
    **_SINCE_DRAFT6,
    **_SINCE_2019,
    "$recursiveRef": _reference("$recursiveRef"),
    "additionalItems": _additional_items,
    "items": _old_items,
}
_DRAFT_2020_12: Final = {
    **_COMMON,
    **_SINCE_DRAFT4,
    **_SINCE_DRAFT6,
    **_SINCE_2019,
    "$dynamicRef": _reference("$dynamicRef"),
    "items": _items,
    "prefixItems": _prefix_items,
}
LATEST: Final = "https://json-schema.org/draft/2020-12/schema"
DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.uri: dialect
    for dialect in (
        Dialect("http://json-schema.org/draft-03/schema", _DRAFT3, _TYPES_DRAFT3, "id", is_ref_alone=True),
        Dialect("http://json-schema.org/draft-04/schema", _DRAFT4, _TYPES_DRAFT4, "id", is_ref_alone=True),
        Dialect("http://json-schema.org/draft-06/schema", _DRAFT6, _TYPES, is_ref_alone=True),
        Dialect("http://json-schema.org/draft-07/schema", _DRAFT7, _TYPES, is_ref_alone=True),
        Dialect("https://json-schema.org/draft/2019-09/schema", _DRAFT_2019_09, _TYPES),
        Dialect(LATEST, _DRAFT_2020_12, _TYPES),
    )
}
"""The versions of JSON Schema, by their URI without the ``#`` at the end."""
