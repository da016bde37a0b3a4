"""JSON Schema validation ends after a bounded number of steps, whatever the schema, the patterns and the record."""

from __future__ import annotations

import json
import re
from types import FunctionType
from typing import Any

import pytest

pytest.importorskip("jsonschema")

import jsonschema
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from jsonschema import _keywords, _legacy_keywords, _utils, validators

from streams_py.registry import SchemaRegistry
from streams_py.registry.json_schema_bounds import BoundedValidator
from streams_py.serdes.round_trips import UnfitError
from tests.support.registry.schemas import doubling
from tests.support.registry.stub import RegistryStub, running

A = "a" * 60
DRAFTS = [f"http://json-schema.org/draft-0{number}/schema#" for number in (3, 4, 6, 7)] + [
    f"https://json-schema.org/draft/{date}/schema" for date in ("2019-09", "2020-12")
]
NESTED = r"^(a+)+$"


ENDLESS: dict[str, tuple[Any, Any]] = {
    "back reference": ({"pattern": r"^(a+)+\1$"}, A + "!"),
    "large repetition": ({"pattern": "^(a{0,200}){0,200}$"}, A + "!"),
    "alternatives": (doubling(40), "x"),
    "unique objects": ({"uniqueItems": True}, [{"n": n} for n in range(20_000)]),
    "many alternatives": ({"items": {"allOf": [{"maxLength": 9}] * 10_000}}, ["x"] * 10_000),
}
FALSE: dict[str, tuple[Any, Any]] = {
    "nested": ({"pattern": NESTED}, A + "!"),
    "ambiguous alternatives": ({"pattern": "(a|a|aa)+b"}, "a" * 5_000),
    "many stars": ({"pattern": "a*a*a*a*a*a*a*b"}, "a" * 2_000),
    "spaces at the end": ({"pattern": r"\s+$"}, " " * 50_000 + "x"),
    "lookahead": ({"pattern": r"^(?=(a+)+$)"}, A + "!"),
    "property names": ({"propertyNames": {"pattern": NESTED}}, {A + "!": 1}),
    "additional properties": ({"patternProperties": {NESTED: {}}, "additionalProperties": False}, {A + "!": 1}),
    "unevaluated properties": (
        {"allOf": [{"patternProperties": {NESTED: {}}}], "unevaluatedProperties": False}, {A + "!": 1}
    ),
    "another draft inside": (
        {"properties": {"f": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": NESTED}}},
        {"f": A + "!"},
    ),
}  # fmt: skip
TRUE: dict[str, tuple[Any, Any]] = {
    "nested": ({"pattern": NESTED}, A),
    "lookahead": ({"pattern": r"^(?=.*[A-Z])(?=.*\d).{8,}$"}, "a" * 200 + "A1"),
    "pattern properties": ({"patternProperties": {NESTED: {"type": "number"}}}, {A: 1, A + "!": "x"}),
    "long": ({"items": {"pattern": r"^\w+$", "enum": [str(n) for n in range(200)]}}, ["199"] * 50_000),
    "unique": ({"uniqueItems": True}, [str(n) for n in range(100_000)]),
}


def validator_of(schema: Any, draft: str = DRAFTS[-1]) -> BoundedValidator:
    kind = validators.validator_for({"$schema": draft})
    return BoundedValidator(kind(schema), jsonschema.validators.SPECIFICATIONS)


@pytest.mark.parametrize("name", sorted(ENDLESS))
def test_what_would_not_end_is_refused(name: str) -> None:
    schema, value = ENDLESS[name]
    with pytest.raises(UnfitError, match="cannot be checked against the schema") as error:
        validator_of(schema).validate(value)
    assert "aaa" not in str(error.value)


@pytest.mark.parametrize("name", sorted(FALSE))
def test_value_that_does_not_match_is_refused(name: str) -> None:
    schema, value = FALSE[name]
    with pytest.raises(jsonschema.ValidationError):
        validator_of(schema).validate(value)


@pytest.mark.parametrize("name", sorted(TRUE))
def test_value_that_matches_is_accepted(name: str) -> None:
    schema, value = TRUE[name]
    validator_of(schema).validate(value)


@pytest.mark.parametrize("draft", DRAFTS)
def test_all_drafts_are_bounded(draft: str) -> None:
    for schema in ({"pattern": NESTED}, {"patternProperties": {NESTED: {}}, "additionalProperties": False}):
        with pytest.raises(jsonschema.ValidationError):
            validator_of(schema, draft).validate(A + "!" if "pattern" in schema else {A + "!": 1})


def test_every_function_of_the_library_that_searches_is_replaced() -> None:
    """A new version of the library may search in another function, or import the module in another way."""
    searching = {
        (module.__name__, name)
        for module in (_keywords, _legacy_keywords, _utils)
        for name, function in vars(module).items()
        if isinstance(function, FunctionType)
        and function.__module__ == module.__name__
        and "re" in function.__code__.co_names
    }
    assert searching == {
        ("jsonschema._keywords", "pattern"),
        ("jsonschema._keywords", "patternProperties"),
        ("jsonschema._legacy_keywords", "find_evaluated_property_keys_by_schema"),
        ("jsonschema._utils", "find_additional_properties"),
        ("jsonschema._utils", "find_evaluated_property_keys_by_schema"),
    }
    assert _keywords.re is re  # the user's own validators stay as they are


def test_records_that_are_read_and_written_are_checked_in_bounded_time() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "pattern": NESTED}}}
    with running(RegistryStub()) as stub:
        text = json.dumps({"title": "T", **schema})
        number = stub.add({"schemaType": "JSON", "schema": text}, "t-value")
        serde = SchemaRegistry(stub.url).json_schema(text)
        read, write = serde.deserializer("t", is_key=False), serde.serializer("t", is_key=False)
        head = b"\x00" + number.to_bytes(4, "big")
        assert read(head + json.dumps({"name": A}).encode()) == {"name": A}
        with pytest.raises(UnfitError, match=r"\$\.name fails 'pattern'"):
            read(head + json.dumps({"name": A + "!"}).encode())
        with pytest.raises(UnfitError, match=r"\$\.name fails 'pattern'"):
            write({"name": A + "!"})


def test_hook_into_the_library_exists() -> None:
    assert all(callable(kind._get_validator) for kind in (JSONSerializer, JSONDeserializer))
