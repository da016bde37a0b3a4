"""JSON in UTF-8, for plain values and, by pydantic, for classes.

The text is the same with and without orjson (:mod:`streams_py.serdes.json_text`). Record keys are written with sorted
member names, so that equal objects are equal keys.

A class is checked once, when its serde is created, and refused if its values do not survive a round trip. For each
record, a quick check (:mod:`streams_py.serdes.members`) decides whether the value surely survives. If that is not
certain, the serde reads back the written bytes and compares. So no data is lost, and no unreadable data is written.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar, get_args, overload

from streams_py.serdes.json_text import certain_encoder, decoder, encoder, has_msgspec, has_orjson, parse
from streams_py.serdes.members import (
    accepted_names,
    certain,
    has_floats,
    has_sets,
    member_names,
    needs_round_trip_mode,
    without_extras,
)
from streams_py.serdes.msgpack import MsgspecSerde, is_struct
from streams_py.serdes.round_trips import UnfitError, lost
from streams_py.serdes.samples import samples
from streams_py.serdes.serde import Serde

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

_ERRORS_SHOWN = 5
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
# Pydantic errors whose message quotes a value, or the message of an exception from a validator of the class.
_QUOTING = frozenset(
    """
    value_error assertion_error get_attribute_error iteration_error mapping_type union_tag_invalid uuid_parsing
    url_parsing url_syntax_violation datetime_object_invalid timezone_offset
    """.split()
)


class _Json(Serde[Any]):
    name = "json"

    def __init__(
        self, *, sort_keys: bool = False, use_orjson: bool | None = None, use_msgspec: bool | None = None
    ) -> None:
        self._sort_keys = sort_keys
        self._use_orjson = has_orjson() if use_orjson is None else use_orjson
        self._use_msgspec = has_msgspec() if use_msgspec is None else use_msgspec

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[Any], bytes]:
        return encoder(sort_keys=self._sort_keys or is_key, use_orjson=self._use_orjson)

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], Any]:
        return decoder(use_msgspec=self._use_msgspec)

    def certain_serializer(self, *, is_key: bool) -> Callable[[Any], bytes]:
        """Return a faster serializer for plain members that have a JSON form. It raises for others."""
        return certain_encoder(sort_keys=self._sort_keys or is_key, use_orjson=self._use_orjson)


class _UndefinedError(TypeError):
    """A class refers to another class that is not defined yet."""


class ClassForm(Generic[T]):
    """The pydantic conversion of a class, and the check which of its values surely survive a round trip.

    Args:
        cls: The class.
        as_text: Whether members are converted to JSON types. Otherwise they stay Python objects.
        refuses_unknown: Whether the reader refuses members that the class does not have.
        computed: The computed fields that the format has. None: all.

    Raises:
        TypeError: Pydantic does not support the class.
    """

    def __init__(
        self, cls: type[T], *, as_text: bool, refuses_unknown: bool = False, computed: Container[str] | None = None
    ) -> None:
        from pydantic import TypeAdapter  # imported here to keep `import streams_py` fast
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError

        self.cls = cls
        try:
            self.adapter: TypeAdapter[T] = TypeAdapter(cls)
            self.schema: Any = dict(self.adapter.core_schema)
        except PydanticUndefinedAnnotation as error:
            raise _UndefinedError(f"{cls.__qualname__} cannot be serialized: {error.name} is not defined") from None
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            if error.code == "class-not-fully-defined":
                text = f"{cls.__qualname__} cannot be serialized: a class that it refers to is not defined"
                raise _UndefinedError(text) from None
            raise TypeError(f"{cls.__qualname__} cannot be serialized: {error.message.splitlines()[0]}") from None
        self.is_certain: Callable[[Any], bool] = certain(self.schema)
        self.has_floats = has_floats(self.schema)
        self._names = member_names(self.schema)
        self._round_trip = needs_round_trip_mode(self.schema, refuses_unknown=refuses_unknown, computed=computed)
        self._mode = "json" if as_text else "python"

    def writer(self) -> Callable[[Any], Any]:
        """Return a function that returns the members of a value. It raises pydantic's errors."""
        write = self.adapter.serializer.to_python
        if self._round_trip:
            return partial(write, mode=self._mode, by_alias=True, warnings="error", round_trip=True)
        return partial(write, mode=self._mode, by_alias=True, warnings="error")  # each argument costs time

    def members(self, value: Any) -> Any:
        """Return the members of a value. ValueError, which does not show values, if pydantic cannot write them."""
        from pydantic_core import PydanticSerializationError

        try:
            return self.writer()(value)
        except PydanticSerializationError as error:
            raise UnfitError(_wrong_members(error)) from None

    def what_is_wrong(self, error: ValidationError) -> str:
        """Describe which members are wrong and why, without record contents.

        Keys of mappings, and messages from validators of the class, are left out, because they may be secret.
        """
        found = error.errors(include_url=False, include_input=False, include_context=False)
        unknown = [each["loc"][-1] for each in found if each["type"] == "unexpected_keyword_argument"]
        if len(unknown) == len(found):
            return _unknown_members(self.cls, unknown)
        return "; ".join(
            f"{self._path(each['loc'])}: {_message(each['type'], each['msg'])}" for each in found[:_ERRORS_SHOWN]
        )

    def _path(self, location: tuple[int | str, ...]) -> str:
        parts = (str(part) if isinstance(part, int) or part in self._names else "*" for part in location)
        return ".".join(parts) or "the value"

    def check(self, value: Any, read: Callable[[], Any]) -> None:
        """Check that ``read`` returns an equal value. For values that are not certain to survive a round trip.

        Raises:
            ValueError: The value would change, or cannot be read. The message describes the difference.
        """
        try:
            back = read()
        except ValueError as error:
            raise UnfitError(f"it cannot be read back: {error}") from None
        what = lost(value, back)
        if what is not None:
            raise UnfitError(f"it would change when it is read back: {what}")

    def refuse_hopeless(self, write: Callable[[T], bytes], read: Callable[[bytes], T]) -> None:
        """Raise TypeError for a class whose values never survive a round trip.

        Args:
            write: Encodes a value, without checking it.
            read: Decodes bytes. Raises ValueError.
        """
        for sample in samples(self.schema):
            try:
                value = self.adapter.validate_python(sample)
                if value.__class__ is not self.cls or self.is_certain(value):
                    continue
                data = write(value)
            except Exception:  # an example that validators of the class reject, or that cannot be written
                continue
            try:
                self.check(value, lambda data=data: read(data))  # type: ignore[misc]
            except ValueError as error:
                raise TypeError(f"values of {self.cls.__qualname__} do not survive a round trip: {error}") from None


class _JsonModel(Serde[T]):
    """A serde for a pydantic model or a dataclass.

    Pydantic checks the types of members when writing and when reading, and creates nested objects. The encoder of plain
    JSON writes the members, so that the text is the same with and without a class.
    """

    def __init__(self, cls: type[T], inner: _Json) -> None:
        if not dataclasses.is_dataclass(cls) and not hasattr(cls, "model_validate_json"):
            raise TypeError(f"json() requires a pydantic model, a dataclass or a msgspec.Struct, got {cls!r}")
        self._cls = cls
        self._inner = inner
        self._form: ClassForm[T] | None = None
        with suppress(_UndefinedError):  # a class may be defined later in the module; checked again when a task starts
            self._known_form()

    def __reduce__(self) -> tuple[type[_JsonModel[T]], tuple[type[T], _Json]]:
        """Support pickling, because topologies are sent to Spark's workers, and validators cannot be pickled."""
        return type(self), (self._cls, self._inner)

    @property
    def name(self) -> str:
        return f"json ({self._cls.__qualname__})"

    def is_declared(self, value: object) -> bool:
        return isinstance(value, self._cls)

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[T], bytes]:
        form, cls = self._known_form(), self._cls
        if is_key and has_sets(form.schema):
            raise TypeError(
                f"{cls.__qualname__} cannot be a key, because it has a set. The order of a set differs between "
                "processes, so equal keys would have different bytes. Use a sorted tuple, or a msgspec.Struct"
            )
        encode, members, is_certain = self._inner.serializer(topic, is_key=is_key), form.members, form.is_certain
        encode_certain, certain_members = self._inner.certain_serializer(is_key=is_key), form.writer()
        read = self._reader(form)

        def serialize(value: T) -> bytes:
            try:
                if is_certain(value):
                    return encode_certain(certain_members(value))
            except Exception:  # a member of another type than declared, which is reported below
                pass
            if not isinstance(value, cls):
                raise TypeError(f"expected {cls.__qualname__}, got {type(value).__name__}")
            data = encode(members(value))
            form.check(value, lambda: read(data))
            return data

        return serialize

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], T]:
        return self._reader(self._known_form())

    def _known_form(self) -> ClassForm[T]:
        if self._form is None:
            form = ClassForm(self._cls, as_text=True, refuses_unknown=_is_plain(self._cls))
            encode = self._inner.serializer("", is_key=False)
            form.refuse_hopeless(lambda value: encode(form.members(value)), self._reader(form))
            self._form = form
        return self._form

    def _reader(self, form: ClassForm[T]) -> Callable[[bytes], T]:
        from pydantic import ValidationError
        from pydantic_core import SchemaValidator

        validate: Callable[..., T] = form.adapter.validator.validate_json
        has_floats = form.has_floats
        if _is_plain(self._cls):
            # A model defines how unknown members are handled. A dataclass cannot keep them, so they are refused.
            validate = SchemaValidator(without_extras(form.schema, self._cls)).validate_json
        expected = accepted_names(form.schema, self._cls) if _is_plain(self._cls) else None

        def deserialize(data: bytes) -> T:
            try:
                value = validate(data, strict=True)
            except ValidationError as error:
                raise UnfitError(form.what_is_wrong(error)) from None
            if has_floats and (data.find(b"NaN") >= 0 or data.find(b"Infinity") >= 0):
                parse(data)  # refuses NaN and Infinity outside of strings, which pydantic accepts as numbers
            if expected is not None and (unknown := parse(data).keys() - expected):
                raise UnfitError(_unknown_members(self._cls, unknown))
            return value

        return deserialize


def _is_plain(cls: type[Any]) -> TypeGuard[type[DataclassInstance]]:
    return dataclasses.is_dataclass(cls) and not hasattr(cls, "__pydantic_validator__")


def _unknown_members(cls: type[Any], unknown: Iterable[int | str]) -> str:
    names = sorted(str(name) if _NAME.fullmatch(str(name)) else "*" for name in unknown)
    return f"members that {cls.__qualname__} does not have: {', '.join(names[:_ERRORS_SHOWN])}"


def _message(kind: str, message: str) -> str:
    from pydantic_core.core_schema import ErrorType

    if kind in _QUOTING or kind not in get_args(ErrorType):
        return f"it does not pass a check ({_shown_kind(kind)})"
    return message


def _shown_kind(kind: str) -> str:
    return kind if _NAME.fullmatch(kind) else "a check of the class"


def _wrong_members(error: Exception) -> str:
    """Describe which members pydantic could not write. Its own message would show the values."""
    found = re.findall(r"Expected `([^`]*)`[^\[]*\[(?:field_name='(\w+)')?", str(error))
    return "; ".join(f"{field or 'the value'}: expected {kind}" for kind, field in found) or "it cannot be serialized"


@overload
def json(*, sort_keys: bool = ...) -> Serde[Any]: ...
@overload
def json(cls: type[T], *, sort_keys: bool = ...) -> Serde[T]: ...


def json(cls: type[Any] | None = None, *, sort_keys: bool = False) -> Serde[Any]:
    """Return a serde for JSON text.

    With a class, values are objects of that class, which are written as JSON objects. Nested objects are read back as
    their classes. A member of the wrong type is an error when writing and when reading.

    Args:
        cls: A pydantic model, a dataclass or a ``msgspec.Struct``. Default: plain JSON values.
        sort_keys: Whether to sort member names. Record keys are always sorted.

    Raises:
        TypeError: ``cls`` is another kind of class, or its values would not survive a round trip. The message has the
            reason.
    """
    if cls is not None and is_struct(cls):
        return MsgspecSerde(cls, "json", sort_keys=sort_keys)
    inner = _Json(sort_keys=sort_keys)
    return inner if cls is None else _JsonModel(cls, inner)


JSON: Serde[Any] = _Json()
"""Plain JSON values: dict, list, str, int, float, bool."""
