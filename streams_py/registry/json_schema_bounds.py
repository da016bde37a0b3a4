"""Validation against a JSON Schema in a bounded number of steps.

A record or a schema of others may make validation take longer than a life: by a regular expression with nested
repetitions, by ``anyOf`` whose alternatives refer to more alternatives, or by ``uniqueItems`` with many objects. Here,
each keyword and each search counts as steps of one budget per record. A record that exceeds the budget is invalid.

The keywords are those of ``jsonschema``, with another ``re``. This module imports the extra ``registry``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from types import FunctionType, SimpleNamespace
from typing import Any, Final

import attrs
from jsonschema import _keywords, _legacy_keywords, _utils, validators

from streams_py.serdes.round_trips import UnfitError
from streams_py.system.bounded_patterns import BoundedPattern, Steps, StepsExceededError

STEPS_MAX: Final = 5_000_000
"""Budget of one record, some seconds. It is enough for a million keywords, and so for a valid record of 10 MB."""
_KEYWORD: Final = 5
_REFERENCE: Final = 40
"""Steps of a keyword, and of a keyword that refers to another part of the schema. A step takes about 1 us."""

_ITEMS_PER_STEP: Final = 8
"""Items of a keyword or a value that a keyword examines in the time of one step."""

_Keyword = Callable[..., Any]
_current = threading.local()
_pattern = lru_cache(1_000)(BoundedPattern)


class BoundedValidator:
    """A validator like ``validator``, whose :meth:`validate` takes at most ``STEPS_MAX`` steps.

    ``references`` resolves the references of the schema.
    """

    def __init__(self, validator: Any, references: Any) -> None:
        kind: Any = type(validator)
        self._validator = _bounded_class(kind)(validator.schema, registry=references)

    def validate(self, value: Any) -> None:
        """Raise ValidationError if the value does not fit the schema, UnfitError if the check takes too long."""
        _current.steps = Steps(STEPS_MAX)
        try:
            self._validator.validate(value)
        except StepsExceededError as error:
            raise UnfitError(f"it cannot be checked against the schema: {error}") from None
        finally:
            del _current.steps


@cache
def _bounded_class(kind: Any) -> Any:
    keywords = {name: _counted(name, keyword) for name, keyword in kind.VALIDATORS.items()}
    made: Any = validators.extend(kind, keywords)
    evolve = made.evolve

    def evolve_bounded(validator: Any, **changes: Any) -> Any:
        evolved = evolve(validator, **changes)
        if evolved.VALIDATORS.get("type") is keywords["type"]:
            return evolved
        # A part of the schema names another version of JSON Schema.
        kind: Any = type(evolved)
        return _bounded_class(kind)(
            **{field.alias: getattr(evolved, field.name) for field in attrs.fields(kind) if field.init}
        )

    made.evolve = evolve_bounded
    return made


def _counted(name: str, keyword: _Keyword) -> _Keyword:
    """Return a keyword of ``jsonschema`` that takes steps of the budget."""
    keyword = _bounded_functions().get(keyword, keyword)
    base = _REFERENCE if name.endswith(("ref", "Ref")) else _KEYWORD

    def count(validator: Any, argument: Any, instance: Any, schema: Any) -> Any:
        steps: Steps = _current.steps
        steps.take(base + (_size(argument) + _size(instance)) // _ITEMS_PER_STEP)
        if name == "uniqueItems" and isinstance(instance, list):
            compared = any(isinstance(item, dict | list) for item in instance)  # others are sorted
            steps.take(len(instance) ** 2 // 2 if compared else 0)
        return keyword(validator, argument, instance, schema)

    return count


@cache
def _bounded_functions() -> Mapping[_Keyword, _Keyword]:
    """Return copies of the functions of ``jsonschema`` that search with :class:`BoundedPattern`, by original."""
    copies: dict[Any, Any] = {}
    shared: dict[str, Any] = {"re": SimpleNamespace(search=_search)}
    for module in (_utils, _keywords, _legacy_keywords):
        namespace = {**vars(module), **shared}
        for name, function in vars(module).items():
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                copies[function] = namespace[name] = _copy(function, namespace)
        shared.update((name, copies[value]) for name, value in vars(module).items() if _is_copied(value, copies))
        if module is _utils:  # the legacy keywords call its functions through the module
            shared["_utils"] = SimpleNamespace(**namespace)
    return copies


def _copy(function: FunctionType, namespace: dict[str, Any]) -> FunctionType:
    copy = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _is_copied(value: Any, copies: Mapping[Any, Any]) -> bool:
    return isinstance(value, FunctionType) and value in copies


def _size(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0


def _search(pattern: str, text: str) -> bool:
    return _pattern(pattern).search(text, _current.steps)
