"""Checks against a JSON Schema that take a bounded number of steps, whatever the schema and the value.

A record or schema from another party can make a check take practically forever. Causes are regular expressions with
nested repetitions, alternatives that refer to more alternatives, references that are costly to resolve, and error
messages that repeat a large value for each alternative. The validators of ``jsonschema`` do not limit any of them. So
this library has its own keywords (:mod:`.json_schema_keywords`), and all of them take steps from one budget per record.
A record that exceeds the budget is invalid. A schema from the registry has a separate budget when it is first used.
Error messages contain no part of a value.

This module imports the extra ``registry``.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import Any, Final

from jsonschema.exceptions import ValidationError
from jsonschema.validators import SPECIFICATIONS

from streams_py.registry.json_schema_keywords import DIALECTS, LATEST, Check, Dialect, Fault, Scope, dialect_of
from streams_py.serdes.round_trips import UnfitError
from streams_py.system.bounded_patterns import BoundedPattern, Steps, StepsExceededError
from streams_py.system.printable import printable

STEPS_MAX: Final = 5_000_000
"""Budget of one record, and of one schema from the registry: some seconds. It is enough for a valid record of 10 MB."""
_UNLIMITED: Final = 10**18
_CRAWLED: Final = 5
"""Steps to find the names of one part of a schema."""
_CHARACTERS_PER_STEP: Final = 100
_SHOWN_PATH: Final = 300
_SIMPLE_NAME: Final = re.compile("[A-Za-z][A-Za-z0-9_]*")


class InvalidSchemaError(UnfitError):
    """A schema is not a valid JSON Schema. The message contains the position in the schema."""


class BoundedValidator:
    """A validator that takes a bounded number of steps.

    Args:
        validator: A validator of ``jsonschema`` for the schema.
        references: Registry of ``referencing`` with the schemas to which the schema refers.
        is_trusted: Whether the schema comes from the program. If not, checking the schema itself has a budget, too.

    Raises:
        InvalidSchemaError: The schema is not a valid JSON Schema.
        StepsExceededError: The schema is too large or its check takes too long.
    """

    def __init__(self, validator: Any, references: Any, *, is_trusted: bool = False) -> None:
        steps = Steps(_UNLIMITED if is_trusted else STEPS_MAX)
        dialect = dialect_of(validator.META_SCHEMA, DIALECTS[LATEST])
        self._schema = schema = validator.schema
        self._patterns: dict[str, BoundedPattern] = {}
        self._keys: dict[int, tuple[Any, Any]] = {}
        self._uri_steps = _measure([schema, *(resource.contents for resource in references.values())], steps)
        self._refuse_invalid(dialect, steps)
        self._scope = Scope(dialect, _resolver(schema, references, dialect))

    def validate(self, value: Any) -> None:
        """Check a value.

        Raises:
            ValidationError: The value does not fit the schema. The message shows only names of the schema.
            UnfitError: The check takes too many steps, or the value is nested too deeply.
            Exception: The schema has an invalid part, in a place that the rules for schemas do not cover.
        """
        check = Check(Steps(STEPS_MAX), self._patterns, self._keys, self._uri_steps)
        try:
            fault = check.fault(value, self._schema, self._scope, is_entered=True)
        except StepsExceededError as error:
            raise UnfitError(f"it cannot be checked against the schema: {error}") from None
        except RecursionError:
            raise UnfitError(
                "it cannot be checked against the schema: the value or the schema is nested too deeply"
            ) from None
        if fault is not None:
            raise ValidationError(
                f"it does not fit the schema: {_described(fault)}",
                validator=fault.keyword,
                path=["*" if name is None else name for name in reversed(fault.path)],
            )

    def _refuse_invalid(self, dialect: Dialect, steps: Steps) -> None:
        rules, scope = _rules(dialect)
        check = Check(steps, self._patterns, {}, 0, has_formats=True)
        fault = check.fault(self._schema, rules, scope, is_entered=True)
        if fault is not None:
            raise InvalidSchemaError(f"the schema is invalid: {_described(fault)}")


@cache
def _rules(dialect: Dialect) -> tuple[Any, Scope]:
    """Return the schema for schemas."""
    rules = SPECIFICATIONS.contents(dialect.uri)
    return rules, Scope(dialect, _resolver(rules, SPECIFICATIONS, dialect))


def _resolver(schema: Any, references: Any, dialect: Dialect) -> Any:
    resource = dialect.specification.create_resource(schema)
    uri = resource.id() or ""
    registry = SPECIFICATIONS.combine(references).with_resource(uri, resource)
    # The crawl indexes all parts. Without it, each resolution of a name would search all parts again. An error is
    # ignored here: a schema with an invalid part is usable if no reference needs that part. Otherwise, resolving the
    # reference raises the error again.
    with suppress(Exception):
        registry = registry.crawl()
    return registry.resolver(uri)


def _measure(documents: list[Any], steps: Steps) -> int:
    """Take the steps of looking at all parts of the schemas. Return the largest number of steps to join two URIs."""
    left, ids, characters = documents, 0, 0
    while left:
        part = left.pop()
        steps.take()
        if isinstance(part, dict):
            steps.take(_CRAWLED)
            left.extend(part.values())
            for name in ("$id", "id"):
                if isinstance(text := part.get(name), str):
                    ids += 1
                    characters += len(text)
        elif isinstance(part, list):
            left.extend(part)
    steps.take(ids * characters // _CHARACTERS_PER_STEP)  # each id may be relative to the ids of all parts around it
    return characters // _CHARACTERS_PER_STEP


def _described(fault: Fault) -> str:
    path = "$"
    for name in reversed(fault.path):
        if name is None:
            path += ".*"
        elif isinstance(name, int):
            path += f"[{name}]"
        elif _SIMPLE_NAME.fullmatch(name):
            path += f".{name}"
        else:
            escaped = name[:_SHOWN_PATH].replace("\\", "\\\\").replace("'", r"\'")
            path += f"['{escaped}']"
    return f"{printable(path, _SHOWN_PATH)} fails {fault.keyword!r}"
