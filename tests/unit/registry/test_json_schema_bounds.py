"""JSON Schema validation ends after a bounded number of steps, whatever the schema, the patterns and the record."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("jsonschema")

import jsonschema
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from jsonschema import validators
from referencing import Registry

from streams_py.errors import RegistryUnavailableError
from streams_py.registry import json_schema_bounds
from streams_py.registry.json_schema_bounds import BoundedValidator, InvalidSchemaError
from streams_py.registry.json_schema_keywords import DIALECTS, Check
from streams_py.serdes.round_trips import UnfitError
from streams_py.system.bounded_patterns import Steps, StepsExceededError
from tests.support.registry.schemas import doubling
from tests.support.registry.stub import RegistryStub, running

A = "a" * 60
DRAFTS = [f"http://json-schema.org/draft-0{number}/schema#" for number in (3, 4, 6, 7)] + [
    f"https://json-schema.org/draft/{date}/schema" for date in ("2019-09", "2020-12")
]
NESTED = r"^(a+)+$"
REFERENCES = [{"$ref": "#/$defs/large"}] * 1_000
LARGE = [[0] * 20_000 + [number] for number in range(3)]
NESTED_PARTS: dict[str, Any] = json.loads('{"x":' * 201 + "{}" + "}" * 201)
BUDGET = 200_000
"""A smaller budget, so that the tests are quick."""


class Opaque(list[Any]):
    """A list that a check may neither write as text nor compare. Both take time that cannot be limited."""

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise AssertionError("a check wrote a value as text")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a check compared values without a limit")

    def __lt__(self, other: object) -> bool:
        raise AssertionError("a check sorted values without a limit")


def evaluated(keyword: str, levels: int = 40) -> dict[str, Any]:
    """A schema that decides what is evaluated by twice as many parts at each level."""
    parts: dict[str, Any] = {}
    for level in range(levels):
        two = [{"$ref": f"#/$defs/p{level + 1}"}] * 2
        parts[f"p{level}"] = {keyword: {"a": two[0], "b": two[1]} if keyword == "dependentSchemas" else two}
    return {"unevaluatedProperties": False, "$ref": "#/$defs/p0", "$defs": {**parts, f"p{levels}": {"required": ["a"]}}}


ENDLESS: dict[str, tuple[Any, Any]] = {
    "back reference": ({"pattern": r"^(a+)+\1$"}, A + "!"),
    "large repetition": ({"pattern": "^(a{0,200}){0,200}$"}, A + "!"),
    "alternatives": (doubling(40), "x"),
    "many alternatives": ({"items": {"allOf": [{"maxLength": 9}] * 1_000}}, ["x"] * 1_000),
    "const of large values": ({"allOf": REFERENCES, "$defs": {"large": {"const": LARGE}}}, LARGE),
    "enum of large values": ({"allOf": REFERENCES, "$defs": {"large": {"enum": [LARGE]}}}, LARGE),
    "unique large values": ({"allOf": REFERENCES, "$defs": {"large": {"uniqueItems": True}}}, LARGE),
    "dependent schemas": (evaluated("dependentSchemas"), {"a": 1, "b": 1}),
    "evaluated by alternatives": (evaluated("anyOf"), {"a": 1, "b": 1}),
    "evaluated by all": (evaluated("allOf"), {"a": 1, "b": 1}),
    "unknown keywords": ({"items": {f"x{number}": 1 for number in range(2_000)}}, [0] * 2_000),
    "long pointers": ({"items": {"$ref": "#/x" + "/x" * 200}, "x": NESTED_PARTS}, [0] * 10_000),
    "pointers with escapes": ({"items": {"$ref": "#/" + "%61" * 9_000}, "a" * 9_000: {}}, [0] * 1_000),
    "references in a circle": ({"$ref": "#"}, 1),
    "a value as deep as the schema": ({"items": {"$ref": "#"}}, json.loads("[" * 900 + "]" * 900)),
}  # fmt: skip
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
    "const": ({"const": LARGE}, [*LARGE[:-1], [*LARGE[2][:-1], 2.5]]),
    "not unique": ({"uniqueItems": True}, [*LARGE, [*LARGE[2][:-1], 2.0]]),
    "a large multiple": ({"multipleOf": 0.75}, 10**4_000 + 1),
    "large texts of errors": ({"anyOf": [{"type": "string"}] * 1_000}, ["x" * 10_000_000]),
}  # fmt: skip
TRUE: dict[str, tuple[Any, Any]] = {
    "nested": ({"pattern": NESTED}, A),
    "lookahead": ({"pattern": r"^(?=.*[A-Z])(?=.*\d).{8,}$"}, "a" * 200 + "A1"),
    "pattern properties": ({"patternProperties": {NESTED: {"type": "number"}}}, {A: 1, A + "!": "x"}),
    "long": ({"items": {"pattern": r"^\w+$", "enum": [str(n) for n in range(200)]}}, ["199"] * 50_000),
    "unique": ({"uniqueItems": True}, [str(n) for n in range(100_000)]),
    "unique objects": ({"uniqueItems": True}, [{"n": n} for n in range(20_000)]),
    "unique numbers with equal hashes": ({"uniqueItems": True}, [n * (2**61 - 1) for n in range(20_000)]),
    "a large multiple": ({"multipleOf": 0.5}, 10**4_000),
    "a dependency of the same": (evaluated("dependentSchemas", 5) | {"unevaluatedProperties": True}, {"a": 1, "b": 1}),
}


def validator_of(schema: Any, draft: str = DRAFTS[-1]) -> BoundedValidator:
    kind = validators.validator_for({"$schema": draft})
    return BoundedValidator(kind(schema), jsonschema.validators.SPECIFICATIONS)


@pytest.mark.parametrize("name", sorted(ENDLESS))
def test_what_would_not_end_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, value = ENDLESS[name]
    validator = validator_of(schema)
    monkeypatch.setattr(json_schema_bounds, "STEPS_MAX", BUDGET)
    with pytest.raises(UnfitError, match="cannot be checked against the schema") as error:
        validator.validate(value)
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


def test_keywords_are_those_of_the_library() -> None:
    """A new version of the library may have new keywords."""
    for uri, dialect in DIALECTS.items():
        assert set(validators.validator_for({"$schema": uri}).VALIDATORS) == set(dialect.keywords)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"type": "string"}, {}]},
        {"oneOf": [{"maxItems": 1}, {}]},
        {"not": {"minItems": 9}},
        {"if": {"items": {"maxItems": 0}}, "else": {}},
        {"contains": {"contains": {"const": 2}}},
        {"const": [[1], [2]]},
        {"enum": [1, [[1], [2]]]},
        {"uniqueItems": True},
    ],
)
def test_values_are_neither_written_as_text_nor_compared(schema: Any) -> None:
    validator_of(schema).validate(Opaque([Opaque([1]), Opaque([2])]))


@pytest.mark.parametrize(
    "schema",
    [False, {"type": "string"}, {"const": 1}, {"enum": [1]}, {"not": {}}, {"items": False}, {"maxItems": 1},
     {"minItems": 3}, {"prefixItems": [True, False]}, {"contains": False}, {"anyOf": [False]}, {"oneOf": [{}, {}]},
     {"unevaluatedItems": False}, {"uniqueItems": True, "items": {"type": "null"}}],
)  # fmt: skip
def test_errors_do_not_write_values_as_text(schema: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validator_of(schema).validate(Opaque([Opaque([1]), Opaque([2])]))


def test_names_that_only_the_record_has_are_not_shown() -> None:
    schema = {"properties": {"a": {"additionalProperties": {"items": {"type": "string"}}}}}
    with pytest.raises(jsonschema.ValidationError) as error:
        validator_of(schema).validate({"a": {"4000123412341234": ["", 5]}})
    assert error.value.message == "it does not fit the schema: $.a.*[1] fails 'type'"
    schema = {"properties": {"\x1b" * 1_000: False}}
    with pytest.raises(jsonschema.ValidationError) as error:
        validator_of(schema).validate({"\x1b" * 1_000: 1})
    assert "\x1b" not in error.value.message
    assert len(error.value.message) < 2_000


def test_names_are_resolved_without_a_search_of_the_whole_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"x": {"$anchor": "x", "$id": "https://e.example/x", "type": "string"}}
    for reference in ("#/$defs/x", "https://e.example/x", "https://e.example/x#x"):
        validator = validator_of({"items": {"$ref": reference}, "$defs": parts})
        assert not validator._scope.resolver._registry._uncrawled  # a name that does not exist is also searched once
        with monkeypatch.context() as patch:
            patch.setattr(Registry, "crawl", lambda *_: pytest.fail("searched"))
            validator.validate(["a"])


WIDE = "[\x01-\uffff]"
COSTLY: dict[str, Any] = {
    "patterns": {"pattern": WIDE * 50},
    "a long pattern": {"pattern": "a" * 60_000},
    "names that are patterns": {"patternProperties": {f"{WIDE}{number}": {} for number in range(50)}},
    "URIs": {"$id": "https://e.example/" + "a" * 30_000, "$defs": {f"{n}": {"$id": "b"} for n in range(700)}},
    "parts": {"allOf": [{}] * 30_000},
    "values": {"default": [0] * (BUDGET + 1)},
}


@pytest.mark.parametrize("name", sorted(COSTLY))
def test_schema_that_takes_too_many_steps_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema_bounds, "STEPS_MAX", BUDGET)
    with pytest.raises(StepsExceededError):
        validator_of(COSTLY[name])


def test_schemas_of_the_program_may_be_large() -> None:
    kind = validators.validator_for({"$schema": DRAFTS[-1]})
    schema = {
        "items": {"enum": [f"{number}" for number in range(200_000)]},
        "$defs": {f"{n}": {} for n in range(9_000)},
    }
    BoundedValidator(kind(schema), Registry(), is_trusted=True).validate(["7", "199999"])


def test_invalid_schema_is_refused_with_its_position() -> None:
    with pytest.raises(InvalidSchemaError, match=r"invalid: \$\.properties\.\*\.pattern fails 'format'"):
        validator_of({"properties": {"a": {"pattern": "("}}})


def foreign(schema: Any) -> Callable[[Any], Any]:
    """Return a function that checks a value against a schema that only the registry has."""

    def read(value: Any) -> Any:
        with running(RegistryStub()) as stub:
            number = stub.add({"schemaType": "JSON", "schema": json.dumps({"title": "t", **schema})}, "t-value")
            registry = stub.registry(deserializer={"use.latest.version": True})
            serde = registry.json_schema('{"title": "t"}').deserializer("t", is_key=False)
            return serde(b"\x00" + number.to_bytes(4, "big") + json.dumps(value).encode())

    return read


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": 5}, "the schema is invalid"),
        ({"pattern": WIDE * 2_000}, "it takes too many steps"),
        ({"$ref": "#/no", "no": 5}, "TypeError"),
        ({"$ref": "#/no", "no": {"properties": 5}}, "TypeError"),
        ({"$ref": "#/nowhere"}, "PointerToNowhere"),
        ({"$ref": "#/no", "no": {"propertyNames": {"pattern": "("}}}, "error"),
    ],
)
def test_schema_of_the_registry_that_cannot_be_used_is_an_outage(schema: Any, said: str) -> None:
    named = rf"a schema in the registry cannot be used \(id 1, subject t-value\): .*{said}"
    with pytest.raises(RegistryUnavailableError, match=named):
        foreign(schema)({"a": "b"})


def test_value_that_does_not_fit_a_schema_of_the_registry_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema_bounds, "STEPS_MAX", BUDGET)
    with pytest.raises(UnfitError, match="fails 'pattern'"):
        foreign({"pattern": "^x"})("b")
    with pytest.raises(UnfitError, match="too many steps"):
        foreign(doubling(40))("b")
    assert foreign({"pattern": "^x"})("x") == "x"


@pytest.mark.parametrize("seed", range(6))
def test_results_are_those_of_the_library(seed: int) -> None:
    rng = random.Random(seed)
    kind: Any = validators.validator_for({"$schema": DRAFTS[seed]})
    outcomes = {True: 0, False: 0}
    while min(outcomes.values()) < 100:
        schema, value = drawn_schema(rng, sorted(kind.VALIDATORS)), drawn_value(rng)
        try:
            kind.check_schema(schema)
            expected = kind(schema).is_valid(value)
        except Exception:  # an invalid schema, or one for which the library has a defect
            continue
        try:
            validator_of(schema, DRAFTS[seed]).validate(value)
            found = True
        except jsonschema.ValidationError:
            found = False
        assert found is expected, (schema, value)
        outcomes[found] += 1


@pytest.mark.parametrize("seed", range(4))
def test_keys_are_equal_for_equal_values_only(seed: int) -> None:
    from jsonschema._utils import equal

    rng = random.Random(seed)
    check = Check(Steps(10_000_000), {}, {}, 0)
    values = [drawn_value(rng) for _ in range(200)] + [0, -0.0, False, 1, 1.0, True, "1", None, "None", [], {}, [[]]]
    for one in values:
        for other in values:
            assert (check.key(one) == check.key(other)) is equal(one, other), (one, other)


def drawn_value(rng: random.Random, depth: int = 0) -> Any:
    match rng.randrange(9 if depth < 3 else 6):
        case 0 | 1:
            return rng.choice([0, 1, 2, 1.0, 2.5, -1, 10**30])
        case 2 | 3:
            return rng.choice(["", "a", "b", "ab", "abc"])
        case 4:
            return rng.choice([True, False])
        case 5:
            return None
        case 6:
            return [drawn_value(rng, depth + 1) for _ in range(rng.randrange(4))]
        case _:
            return {rng.choice("abc"): drawn_value(rng, depth + 1) for _ in range(rng.randrange(4))}


def drawn_schema(rng: random.Random, keywords: list[str], depth: int = 0) -> Any:
    """A schema that may be invalid."""

    def part() -> Any:
        return drawn_schema(rng, keywords, depth + 1)

    def named() -> dict[str, Any]:
        return {rng.choice("abc"): part() for _ in range(rng.randrange(1, 3))}

    if depth > 3 or rng.random() < 0.05:
        return rng.choice([True, False, {}, {"type": "string"}])
    known: dict[str, Callable[[], Any]] = {
        "type": lambda: rng.choice(["string", "object", "array", ["integer", "null"], "number", "boolean"]),
        "enum": lambda: [drawn_value(rng) for _ in range(3)],
        "const": lambda: drawn_value(rng),
        "required": lambda: rng.choice([["a"], ["a", "b"], True]),
        "uniqueItems": lambda: True,
        "pattern": lambda: rng.choice(["^a", "b$", "[ac]+"]),
        "properties": named,
        "dependentSchemas": named,
        "patternProperties": named,
        "dependentRequired": lambda: {"a": ["b"]},
        "dependencies": lambda: rng.choice([{"a": ["b"]}, named()]),
        "allOf": lambda: [part(), part()],
        "anyOf": lambda: [part(), part()],
        "oneOf": lambda: [part(), part()],
        "extends": lambda: [part(), part()],
        "prefixItems": lambda: [part(), part()],
        "items": lambda: rng.choice([part(), [part(), part()]]),
        "disallow": lambda: "string",
        "$ref": lambda: "#/definitions/a",
        "$dynamicRef": lambda: "#/definitions/a",
        "format": lambda: "regex",
        "multipleOf": lambda: rng.choice([2, 0.5]),
        "divisibleBy": lambda: 2,
    }
    numbers = ("minimum", "maximum", "exclusive", "min", "max")
    schema: dict[str, Any] = {}
    for name in rng.sample(keywords, rng.randrange(1, 4)):
        make = known.get(name, (lambda: rng.randrange(3)) if name.startswith(numbers) else part)
        schema[name] = make()
    if depth == 0:
        schema["definitions"] = {"a": rng.choice([{"type": "string"}, {"minLength": 1}, {"minItems": 1}])}
    return schema


def test_records_that_are_read_and_written_are_checked_in_bounded_time() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "pattern": NESTED}}}
    with running(RegistryStub()) as stub:
        text = json.dumps({"title": "T", **schema})
        number = stub.add({"schemaType": "JSON", "schema": text}, "t-value")
        serde = stub.registry().json_schema(text)
        read, write = serde.deserializer("t", is_key=False), serde.serializer("t", is_key=False)
        head = b"\x00" + number.to_bytes(4, "big")
        assert read(head + json.dumps({"name": A}).encode()) == {"name": A}
        with pytest.raises(UnfitError, match=r"\$\.name fails 'pattern'"):
            read(head + json.dumps({"name": A + "!"}).encode())
        with pytest.raises(UnfitError, match=r"\$\.name fails 'pattern'"):
            write({"name": A + "!"})


def test_hook_into_the_library_exists() -> None:
    assert all(callable(kind._get_validator) for kind in (JSONSerializer, JSONDeserializer))  # streams_py overrides it
