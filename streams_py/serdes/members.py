"""A quick check whether a value survives a round trip through pydantic's serializer.

A pydantic schema defines how each member is written and read. :func:`certain` compiles it to one function, once per
class. The function returns True for a value if all of its members are of kinds that always survive: plain numbers,
text, dates, containers of them, and classes without extras. It returns False for all other values: an object of a
subclass, a NaN, a member with a constraint or a custom serializer. For these, the caller reads back the written bytes
and compares. For a flat class, the check is one type comparison per record.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from math import isfinite
from typing import Any, Final

Check = Callable[[Any], bool]

_SAFE_CONFIG: Final = frozenset({
    "title", "extra_fields_behavior", "strict", "loc_by_alias", "validate_by_name", "validate_by_alias",
    "serialize_by_alias", "populate_by_name", "hide_input_in_errors", "cache_strings", "validate_default",
})  # fmt: skip
_ABOUT: Final = frozenset({"type", "ref", "strict", "metadata", "microseconds_precision", "sub_type"})
_SCALARS: Final[Mapping[str, type[Any]]] = {"int": int, "str": str, "bool": bool, "float": float}
_ALWAYS: Final = frozenset({"int", "str", "bool", "none", "bytes", "date", "time", "datetime", "timedelta", "uuid"})
_KEYS: Final = frozenset({"str", "date", "uuid"})


def certain(schema: Mapping[str, Any]) -> Check:
    """Return a function that is True for values that surely survive. It may raise for members of wrong types."""
    return _Compiler().of(schema) or _yes


def member_names(schema: Any) -> frozenset[str]:
    """Return all names of members in a schema, which error messages may use."""
    found: set[str] = set()
    for node in _nodes(schema):
        for field in _fields_of(node) or ():
            found.update((field["name"], field.get("serialization_alias", field["name"]), *names_read(field)))
    return frozenset(found)


def has_sets(schema: Any) -> bool:
    """Whether a member is declared as a set, whose order differs between processes."""
    return any(node.get("type") in ("set", "frozenset") for node in _nodes(schema))


def needs_round_trip_mode(
    schema: Any, *, refuses_unknown: bool = False, computed: Container[str] | None = None
) -> bool:
    """Whether members must be written in pydantic's round-trip mode.

    This mode writes JSON within text (``Json[int]``) as text, and leaves out computed fields. Computed fields are a
    problem if a class would refuse them, or keep them as unknown members, or if the format has no field for them.

    Args:
        schema: The pydantic schema.
        refuses_unknown: Whether the reader refuses unknown members.
        computed: The computed fields that the format has. None: all.
    """
    for node in _nodes(schema):
        if node.get("type") == "json":
            return True
        if node.get("computed_fields") and (refuses_unknown or _extra(node) in ("forbid", "allow")):
            return True
        names = [each.get("alias", each["property_name"]) for each in node.get("computed_fields") or ()]
        if computed is not None and not all(name in computed for name in names):
            return True
    return False


def written_names(schema: Mapping[str, Any], cls: type[Any]) -> frozenset[str]:
    """Return the names under which the fields of ``cls`` are written, without computed fields."""
    for node in _nodes(schema):
        if node.get("type") in ("model", "dataclass") and node["cls"] is cls:
            return frozenset(
                field.get("serialization_alias", field["name"])
                for field in _fields_of(node["schema"]) or ()
                if not field.get("serialization_exclude") and not field.get("init_only")
            )
    return frozenset()


def has_floats(schema: Any) -> bool:
    """Whether a member may be a float. Pydantic reads NaN and Infinity as floats."""
    return any(node.get("type") in ("float", "any", "decimal", "complex", "dict", "list") for node in _nodes(schema))


def without_extras(schema: Any, cls: type[Any]) -> Any:
    """Return a schema whose validator refuses members that the dataclass ``cls`` does not have.

    Exception: a dataclass with fields that its ``__init__`` does not accept. These fields are written too, and must be
    ignored when reading.
    """
    if isinstance(schema, Mapping):
        if schema.get("type") == "dataclass" and schema["cls"] is cls:
            return {**schema, "schema": _forbidding(schema["schema"])}
        inner = {key: without_extras(schema[key], cls) for key in ("schema", "definitions") if key in schema}
        return {**schema, **inner}
    return [without_extras(each, cls) for each in schema]


def _forbidding(arguments: Any) -> Any:
    if arguments.get("type") == "dataclass-args":
        unread = [field for field in arguments["fields"] if field.get("init") is False]
        return arguments if unread else {**arguments, "extra_behavior": "forbid"}
    return {**arguments, "schema": _forbidding(arguments["schema"])} if "schema" in arguments else arguments


def accepted_names(schema: Mapping[str, Any], cls: type[Any]) -> frozenset[str] | None:
    """Return the accepted names of members for a dataclass with fields that its ``__init__`` does not accept.

    None for other classes, for which :func:`without_extras` refuses unknown members.
    """
    for node in _nodes(schema):
        if node.get("type") == "dataclass" and node["cls"] is cls:
            fields = _fields_of(node["schema"]) or []
            if any(field.get("init") is False for field in fields):
                return frozenset(name for field in fields for name in names_read(field))
    return None


def names_read(field: Mapping[str, Any]) -> list[str]:
    """Return the names under which a field is read, best first, without paths into other members."""
    alias = field.get("validation_alias")
    if alias is None:
        return [field["name"]]
    if isinstance(alias, str):
        return [alias]
    paths = alias if alias and isinstance(alias[0], list) else [alias]
    return [path[0] for path in paths if len(path) == 1 and isinstance(path[0], str)]


def _nodes(schema: Any) -> Iterable[Mapping[str, Any]]:
    """Yield every part of a schema that is a schema or a field. A model's settings are merged into its fields' node."""
    if isinstance(schema, Mapping):
        if schema.get("type") in ("model", "dataclass", "typed-dict") and isinstance(schema.get("schema"), Mapping):
            inner = schema["schema"]
            behavior = inner.get("extra_behavior") or (schema.get("config") or {}).get("extra_fields_behavior")
            schema = {**schema, "schema": {**inner, "extra_behavior": behavior}}
        yield schema
        for key, value in schema.items():
            if key not in ("metadata", "config", "default", "expected", "members"):
                yield from _nodes(value)
    elif isinstance(schema, list | tuple):
        for each in schema:
            yield from _nodes(each)


def _extra(node: Mapping[str, Any]) -> str | None:
    found = node.get("extra_behavior") or (node.get("config") or {}).get("extra_fields_behavior")
    return str(found) if found else None


def _fields_of(arguments: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """Return the fields of a model's, dataclass's or typed dict's schema, each with its name."""
    fields = arguments.get("fields")
    if isinstance(fields, Mapping) and arguments.get("type") in ("model-fields", "typed-dict"):
        return [{"name": name, **field} for name, field in fields.items()]
    if isinstance(fields, list) and arguments.get("type") == "dataclass-args":
        return fields
    return None


def _yes(_value: Any) -> bool:
    return True


def _no(_value: Any) -> bool:
    return False


def _finite_decimal(value: Any) -> bool:
    return bool(value.is_finite())


def _is_text(value: Any) -> bool:
    return value.__class__ is str


def _is_int(value: Any) -> bool:
    return value.__class__ is int


def _plain(value: Any) -> bool:
    """Whether a value is plain JSON. For members that allow any value."""
    kind = value.__class__
    if kind is str or kind is int or value is None or kind is bool:
        return True
    if kind is float:
        return isfinite(value)
    if kind is dict:
        return all(key.__class__ is str and _plain(item) for key, item in value.items())
    return kind is list and all(map(_plain, value))


class _Compiler:
    """A compiler from schema nodes to checks. None: the node needs no check."""

    def __init__(self) -> None:
        self._known: dict[str, Mapping[str, Any]] = {}
        self._checks: dict[str, Check | None] = {}

    def of(self, schema: Mapping[str, Any]) -> Check | None:
        """Return the check of one node."""
        kind = schema["type"]
        if "serialization" in schema:
            return _no
        if kind in _ALWAYS or kind in ("float", "decimal"):
            if not schema.keys() <= _ABOUT:
                return _no  # a constraint, which is only checked when reading
            return {"float": isfinite, "decimal": _finite_decimal}.get(kind)
        make = getattr(self, f"_{kind.replace('-', '_')}", None)
        return _no if make is None else make(schema)

    def _any(self, _schema: Mapping[str, Any]) -> Check:
        return _plain

    def _default(self, schema: Mapping[str, Any]) -> Check | None:
        return _no if schema.get("on_error", "raise") != "raise" else self.of(schema["schema"])

    def _nullable(self, schema: Mapping[str, Any]) -> Check | None:
        inner = self.of(schema["schema"])
        if inner is None:
            return None
        return lambda value: value is None or inner(value)

    def _definitions(self, schema: Mapping[str, Any]) -> Check | None:
        self._known.update({each["ref"]: each for each in schema["definitions"]})
        return self.of(schema["schema"])

    def _definition_ref(self, schema: Mapping[str, Any]) -> Check | None:
        ref = schema["schema_ref"]
        if ref not in self._checks:
            if ref not in self._known:
                return _no
            checks = self._checks
            checks[ref] = _later(checks, ref)  # for a class that contains itself
            checks[ref] = self.of(self._known[ref])
        return self._checks[ref]

    def _enum(self, schema: Mapping[str, Any]) -> Check | None:
        values = [member.value for member in schema["members"]]
        return None if _of_one_kind(values) and "missing" not in schema else _no

    def _literal(self, schema: Mapping[str, Any]) -> Check:
        expected = schema["expected"]
        if not _of_one_kind(expected):
            return _no
        kind, allowed = type(expected[0]), frozenset(expected)
        return lambda value: value.__class__ is kind and value in allowed

    def _union(self, schema: Mapping[str, Any]) -> Check:
        choices = [each[0] if isinstance(each, tuple) else each for each in schema["choices"]]
        kinds = [_SCALARS.get(each["type"]) for each in choices if each.keys() <= _ABOUT]
        if None in kinds or len(kinds) < len(choices) or schema.get("mode", "smart") != "smart":
            return _no
        return lambda value: value.__class__ in kinds and (value.__class__ is not float or isfinite(value))

    def _tagged_union(self, schema: Mapping[str, Any]) -> Check:
        by_class: dict[type[Any], Check] = {}
        for choice in schema["choices"].values():
            found = self._known.get(choice["schema_ref"]) if choice["type"] == "definition-ref" else choice
            if found is None or found["type"] not in ("model", "dataclass"):
                return _no
            by_class[found["cls"]] = self.of(choice) or _yes
        return lambda value: by_class.get(value.__class__, _no)(value)

    # -- containers --------------------------------------------------------------------------------------------

    def _items(self, schema: Mapping[str, Any]) -> Check | None:
        if not schema.keys() <= {*_ABOUT, "items_schema"}:
            return _no
        inner = self.of(schema["items_schema"]) if "items_schema" in schema else _plain
        return None if inner is None else lambda value: all(map(inner, value))

    _list = _set = _frozenset = _items

    def _tuple(self, schema: Mapping[str, Any]) -> Check | None:
        if not schema.keys() <= {*_ABOUT, "items_schema", "variadic_item_index"}:
            return _no
        checks = [self.of(each) for each in schema["items_schema"]]
        if not any(checks):
            return None
        if "variadic_item_index" in schema:
            each = checks[0]
            return (lambda value: all(map(each, value))) if len(checks) == 1 and each is not None else _no
        needed = [(at, check) for at, check in enumerate(checks) if check is not None]
        return lambda value: all(check(value[at]) for at, check in needed)

    def _dict(self, schema: Mapping[str, Any]) -> Check | None:
        if not schema.keys() <= {*_ABOUT, "keys_schema", "values_schema"}:
            return _no
        keys = schema.get("keys_schema", {"type": "any"})
        of_key = _is_text if keys["type"] == "any" else self._of_key(keys)
        of_value = self.of(schema["values_schema"]) if "values_schema" in schema else _plain
        if of_key is None:
            return None if of_value is None else lambda value: all(map(of_value, value.values()))
        if of_value is None:
            return lambda value: all(map(of_key, value))
        return lambda value: all(map(of_key, value)) and all(map(of_value, value.values()))

    def _of_key(self, schema: Mapping[str, Any]) -> Check | None:
        kind = schema["type"]
        if kind == "int" and schema.keys() <= _ABOUT:
            return _is_int  # a bool would be written as text that is not a number
        return self.of(schema) if kind in _KEYS else _no

    # -- classes -----------------------------------------------------------------------------------------------

    def _model(self, schema: Mapping[str, Any]) -> Check:
        fields = _fields_of(schema["schema"])
        # A method that runs after validation may set private members, or members that depend on others.
        if fields is None or schema.get("root_model") or schema.get("custom_init") or schema.get("post_init"):
            return _no
        behavior = schema["schema"].get("extra_behavior") or _extra(schema)
        return self._class(schema, fields, keeps_extra=behavior == "allow", is_model=True)

    def _dataclass(self, schema: Mapping[str, Any]) -> Check:
        fields = _fields_of(schema["schema"])
        if fields is None or schema.get("post_init"):
            return _no
        return self._class(schema, fields, keeps_extra=_extra(schema) == "allow", is_model=False)

    def _class(
        self, schema: Mapping[str, Any], fields: list[Mapping[str, Any]], *, keeps_extra: bool, is_model: bool
    ) -> Check:
        if not (schema.get("config") or {}).keys() <= _SAFE_CONFIG or not all(map(_comes_back, fields)):
            return _no
        if keeps_extra and not is_model:
            return _no
        cls, count = schema["cls"], len(fields)
        found = [(field["name"], self.of(field["schema"])) for field in fields]
        members = [(name, check) for name, check in found if check is not None]

        def fits(value: Any) -> bool:
            if value.__class__ is not cls:
                return False
            for name, check in members:  # noqa: SIM110  # a generator costs more than the checks
                if not check(getattr(value, name)):
                    return False
            return True

        def fits_model(value: Any) -> bool:
            if value.__class__ is not cls or len(value.__dict__) < count:
                return False  # another class, or a member was never set
            for name, check in members:
                if not check(getattr(value, name)):
                    return False
            return not (keeps_extra and value.__pydantic_extra__)

        return fits_model if is_model else fits


def _later(checks: Mapping[str, Check | None], ref: str) -> Check:
    def check(value: Any) -> bool:
        return (checks[ref] or _yes)(value)

    return check


def _comes_back(field: Mapping[str, Any]) -> bool:
    if field.get("serialization_exclude") or "serialization_exclude_if" in field:
        return False
    if field.get("init_only") or field.get("init") is False:
        return False
    return field.get("serialization_alias", field["name"]) in names_read(field)


def _of_one_kind(values: list[Any]) -> bool:
    """Whether all values are text, or all are integers, which JSON distinguishes."""
    kinds = {type(value) for value in values}
    return bool(values) and (kinds == {str} or kinds == {int})
