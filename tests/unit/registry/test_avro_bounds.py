"""Avro data from others that announces more than it has, or is nested without an end, never reaches the decoder."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastavro")

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.serde import RuleExecutor
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from streams_py.errors import RegistryUnavailableError
from streams_py.registry import SchemaRegistry
from streams_py.registry.avro_bounds import DECIMAL_BYTES_EXTRA, DECIMAL_BYTES_MAX, DEPTH_MAX, bounds_of
from streams_py.registry.caches import BoundedClientCache
from streams_py.registry.checked_schemas import checked
from streams_py.registry.deserializers import BoundedAvroDeserializer
from tests.support.registry.stub import RegistryStub, running

NOTHING = {"type": "record", "name": "Nothing", "fields": []}
NULLS = {"type": "record", "name": "Nulls", "fields": [{"name": "a", "type": "null"}, {"name": "b", "type": NOTHING}]}
FIXED = {"type": "fixed", "name": "F", "size": 0}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "kids", "type": array("Tree")}, {"name": "n", "type": "int"}],
}
CHAIN = {"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}
HAZARDS: dict[str, Any] = {
    "nulls": array("null"),
    "empty records": array(NOTHING),
    "records of nothing": array(NULLS),
    "fixed of no size": array(FIXED),
    "nested": array(array("null")),
    "in a map": {"type": "map", "values": array("null")},
    "in a record": {
        "type": "record",
        "name": "R",
        "fields": [{"name": "f", "type": FIXED}, {"name": "a", "type": array("F")}],
    },
    "in a union": ["null", array("null")],
}
MANY = b"\x80\xa0\x94\xa5\x8d\x1d"
"""A count of about 10^12, in Avro's numbers."""


def reader_of(schema: Any, registry: SchemaRegistry, stub: RegistryStub) -> tuple[Any, bytes]:
    number = stub.add({"schemaType": "AVRO", "schema": json.dumps(schema)}, "t-value")
    return registry.avro(json.dumps(schema)).deserializer("t", is_key=False), b"\x00" + number.to_bytes(4, "big")


@pytest.mark.parametrize("name", sorted(HAZARDS))
def test_record_that_announces_items_without_bytes_goes_to_the_handler(name: str) -> None:
    before = {"nested": b"\x02", "in a map": b"\x02\x02k", "in a union": b"\x02"}.get(name, b"")
    with running(RegistryStub()) as stub:
        read, head = reader_of(HAZARDS[name], stub.registry(), stub)
        for count in (MANY, b"\x7f" + MANY, b"\x27"):
            size = b"\x00" if count != MANY else b""
            with pytest.raises(ValueError, match=r"more items than the record has bytes|too early"):
                read(head + before + count + size + b"\x00" * 4)


def test_sum_over_all_arrays_is_bounded() -> None:
    schema = parse_schema(array(array("null")))
    one = b"\x80\x01\x00"  # 64 items in three bytes
    check = bounds_of(schema)
    assert check is not None
    with pytest.raises(ValueError, match="more items"):
        check(b"\xc8\x01" + one * 100 + b"\x00")


@pytest.mark.parametrize(("schema", "level"), [(CHAIN, b"\x02"), (TREE, b"\x02")])
def test_endless_nesting_is_refused_on_any_thread(schema: Any, level: bytes) -> None:
    failed: list[BaseException] = []

    def run() -> None:
        with running(RegistryStub()) as stub:
            read, head = reader_of(schema, stub.registry(), stub)
            for depth in (DEPTH_MAX + 1, 100_000):
                try:
                    read(head + level * depth)
                except ValueError as error:
                    failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert [("nested" in str(error)) for error in failed] == [True, True]


def test_nesting_within_the_limit_is_read() -> None:
    value: Any = {"next": None}
    for _ in range(DEPTH_MAX // 2 - 2):
        value = {"next": value}
    with running(RegistryStub()) as stub:
        serde = stub.registry().avro(json.dumps(CHAIN))
        assert serde.deserializer("t", is_key=False)(serde.serializer("t", is_key=False)(value)) == value


ORDINARY = array(
    {
        "type": "record",
        "name": "Line",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "tags", "type": array({"type": "map", "values": ["null", "double"]})},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A"]}},
        ],
    }
)


@pytest.mark.parametrize(
    "schema", ["string", {"type": "map", "values": "null"}, array("int"), array(["null", "int"]), ORDINARY]
)
def test_other_schemas_cost_nothing(schema: Any) -> None:
    assert bounds_of(parse_schema(schema)) is None


def doubled(levels: int) -> dict[str, Any]:
    """A type with two fields of a second type, which has two fields of a third type, and so on. No field has bytes."""
    first, *others = range(levels, 0, -1)
    schema: Any = {"type": "record", "name": f"D{first}", "fields": []}
    for level in others:
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"D{level + 1}"}]
        schema = {"type": "record", "name": f"D{level}", "fields": fields}
    return {"type": "record", "name": "D0", "fields": [{"name": "a", "type": schema}, {"name": "b", "type": "D1"}]}


def wide(first: Any) -> dict[str, Any]:
    nulls = [{"name": f"f{number}", "type": "null"} for number in range(10_000)]
    return {"type": "record", "name": "Wide", "fields": [{"name": "first", "type": first}, *nulls]}


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (doubled(40), b"\x00"),
        (["null", doubled(40)], b"\x02"),
        (array(doubled(40)), b"\x02\x00"),
        (array(wide("int")), b"\xa0\x1f" + bytes(2_001)),
        (array(wide("null")), b"\xa0\x1f" + bytes(2_001)),
        (array({"type": "fixed", "name": "F", "size": 0}), b"\x90\xa1\x0f\x00"),
        ({"type": "map", "values": wide("int")}, b"\xa0\x1f" + b"\x02k\x00" * 2_000 + b"\x00"),
        (array(["null", wide("null")]), b"\xa0\x1f" + b"\x02" * 2_000 + b"\x00"),
    ],
    ids=["types", "types in a union", "types in an array", "items", "free items", "no bytes", "entries", "branches"],
)
def test_schema_that_makes_many_values_of_few_bytes_is_refused(schema: Any, data: bytes) -> None:
    """With a hostile registry, or the right to register schemas."""
    with running(RegistryStub()) as stub:
        read, head = reader_of(schema, stub.registry(), stub)
        with pytest.raises(ValueError, match=r"too many values for its size|more items than the record has bytes"):
            read(head + data)


def test_wide_record_without_bytes_is_read() -> None:
    with running(RegistryStub()) as stub:
        read, head = reader_of(wide("int"), stub.registry(), stub)
        assert len(read(head + b"\x02")) == 10_001


def rules_of(**more: Any) -> dict[str, Any]:
    return {"encodingRules": [{"name": "x", "kind": "TRANSFORM", "mode": "WRITE", "type": "X", **more}]}


RULES: dict[str, dict[str, Any]] = {
    "disabled": rules_of(disabled=True),
    "for writers": rules_of(),
    "for readers, disabled": rules_of(mode="READ", disabled=True),
    "elsewhere": {"enableAt": "SERVER", **rules_of(mode="READ")},
}
UNION: list[Any] = ["null", CHAIN]


@pytest.mark.parametrize("strategy", ["TOPIC", "RECORD"])
@pytest.mark.parametrize("schema", [CHAIN, UNION, array("null")], ids=["record", "union", "array"])
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_encoding_rules_that_do_nothing_switch_no_check_off(rules: Any, schema: Any, strategy: str) -> None:
    data = MANY + b"\x00" if schema == array("null") else b"\x02" * (DEPTH_MAX + 1) + b"\x00"
    with running(RegistryStub()) as stub:
        number = stub.add({"schemaType": "AVRO", "schema": json.dumps(schema), "ruleSet": rules}, "t-value")
        registry = stub.registry(deserializer={"subject.name.strategy.type": strategy})
        read = registry.avro(json.dumps(schema)).deserializer("t", is_key=False)
        with pytest.raises(ValueError, match=r"nested more than|more items"):
            read(b"\x00" + number.to_bytes(4, "big") + data)


class Replace(RuleExecutor):
    """An encoding rule that replaces the data of each record."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def configure(self, *_: Any) -> None:
        """There is nothing to configure."""

    def type(self) -> str:
        return "REPLACE"

    def transform(self, *_: Any) -> bytes:
        return self.data


@pytest.mark.parametrize(
    ("data", "replaced", "is_good"),
    [(b"\x00", b"\x02" * (DEPTH_MAX + 1), False), (b"\x02" * (DEPTH_MAX + 1), b"\x02\x00", True)],
    ids=["rule makes hostile data", "encrypted data"],
)
def test_data_that_encoding_rules_return_is_checked(data: bytes, replaced: bytes, is_good: bool) -> None:
    RuleRegistry.register_rule_executor(Replace(replaced))
    try:
        with running(RegistryStub()) as stub:
            rules = rules_of(mode="READ", type="REPLACE")
            number = stub.add({"schemaType": "AVRO", "schema": json.dumps(CHAIN), "ruleSet": rules}, "t-value")
            read = stub.registry().avro(json.dumps(CHAIN)).deserializer("t", is_key=False)
            framed = b"\x00" + number.to_bytes(4, "big") + data
            if is_good:
                assert read(framed) == {"next": {"next": None}}
            else:
                with pytest.raises(ValueError, match="nested more than"):
                    read(framed)
    finally:
        rule_registry: Any = RuleRegistry
        del rule_registry.get_global_instance()._rule_executors["REPLACE"]  # nothing public unregisters it


def test_another_schema_under_the_same_id_is_checked() -> None:
    """A registry may return another schema after its client has cleared its caches. An unusable schema causes that."""
    harmless = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    hostile = {**harmless, "fields": [{"name": "x", "type": array("null")}, *harmless["fields"]]}
    with running(RegistryStub()) as stub:
        read, head = reader_of(harmless, stub.registry(), stub)
        assert read(head + b"\x02a") == {"a": "a"}
        unusable = {"name": "q", "subject": "no", "version": 1}
        other = stub.add({"schemaType": "AVRO", "schema": '"Q"', "references": [unusable]}, "u-value")
        with pytest.raises(RegistryUnavailableError):
            read(b"\x00" + other.to_bytes(4, "big") + b"\x02a")
        stub.schemas[int.from_bytes(head, "big")] = {"schemaType": "AVRO", "schema": json.dumps(hostile)}
        with pytest.raises(ValueError, match="more items than the record has bytes"):
            read(head + MANY + b"\x00\x02a")


def test_another_reference_of_the_same_schema_is_checked() -> None:
    outer = json.dumps({"type": "record", "name": "R", "fields": [{"name": "o", "type": "O"}]})
    inner: dict[str, Any] = {"type": "record", "name": "O", "fields": [{"name": "a", "type": "string"}]}
    with running(RegistryStub()) as stub:
        refers = stub.add({"schemaType": "AVRO", "schema": json.dumps(inner)}, "o")
        reference = {"name": "O", "subject": "o", "version": 1}
        number = stub.add({"schemaType": "AVRO", "schema": outer, "references": [reference]}, "t-value")
        serde = confluent_deserializer(stub)
        framed = b"\x00" + number.to_bytes(4, "big")
        context = SerializationContext("t", MessageField.VALUE)
        assert serde(framed + b"\x02a", context) == {"o": {"a": "a"}}
        inner["fields"].insert(0, {"name": "x", "type": array("null")})
        stub.schemas[refers] = {"schemaType": "AVRO", "schema": json.dumps(inner)}
        serde._registry.clear_caches()  # as if its schemas had been evicted
        serde._parsed_schemas.clear()  # see above
        with pytest.raises(ValueError, match="more items than the record has bytes"):
            serde(framed + MANY + b"\x00\x02a", context)


@pytest.mark.parametrize("has_rules", [False, True])
def test_data_is_decoded_with_the_schema_that_it_was_checked_with(
    monkeypatch: pytest.MonkeyPatch, has_rules: bool
) -> None:
    """The cache removes the schema between the check and the decoder, and the registry then answers otherwise."""
    outer = json.dumps({"type": "record", "name": "R", "fields": [{"name": "o", "type": "O"}]})
    good = {"type": "record", "name": "O", "fields": [{"name": "a", "type": "bytes"}]}
    bad = {"type": "record", "name": "O", "fields": [{"name": "a", "type": array("null")}]}
    with running(RegistryStub()) as stub:
        refers = stub.add({"schemaType": "AVRO", "schema": json.dumps(good)}, "o")
        reference = {"name": "O", "subject": "o", "version": 1}
        schema = {"schemaType": "AVRO", "schema": outer, "references": [reference]}
        number = stub.add(schema | ({"ruleSet": rules_of()} if has_rules else {}), "t-value")
        serde = confluent_deserializer(stub)
        get: Callable[..., Any] = serde._get_parsed_schema  # the library looks up schemas with it
        lookups = []

        def get_and_forget(schema: Any) -> Any:
            found = get(schema)
            lookups.append(found)
            stub.schemas[refers] = {"schemaType": "AVRO", "schema": json.dumps(bad)}
            serde._registry.clear_caches()  # as if its schemas had been evicted
            serde._parsed_schemas.clear()  # see above
            return found

        monkeypatch.setattr(serde, "_get_parsed_schema", get_and_forget)  # see above
        context = SerializationContext("t", MessageField.VALUE)
        assert serde(b"\x00" + number.to_bytes(4, "big") + b"\x02a", context) == {"o": {"a": b"a"}}
    assert len(lookups) > 1


def confluent_deserializer(stub: RegistryStub) -> Any:
    client: Any = SchemaRegistryClient({"url": stub.url})
    client._cache = BoundedClientCache()  # as SchemaRegistry does
    return checked(BoundedAvroDeserializer)(client, None, None, {})


def decimal(kind: str = "bytes", **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": "decimal", "precision": 20, "scale": 2, **more}


LARGE = DECIMAL_BYTES_MAX + 1
FIXED_DECIMAL = decimal("fixed", name="D", size=LARGE)


def long_bytes(size: int) -> bytes:
    return avro("bytes", b"\x7f" * size)


def avro(schema: Any, value: Any) -> bytes:
    file = io.BytesIO()
    schemaless_writer(file, parse_schema(schema), value)
    return file.getvalue()


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (["null", decimal()], b"\x02" + long_bytes(9 + DECIMAL_BYTES_EXTRA + 1)),
        (["null", decimal()], b"\x02" + long_bytes(20_000)),
        (["null", decimal(precision=10**6)], b"\x02" + long_bytes(LARGE)),
        (["null", decimal(precision=None, scale=0)], b"\x02" + long_bytes(LARGE)),
        (array(decimal()), b"\x02" + long_bytes(LARGE) + b"\x00"),
        ({"type": "map", "values": decimal()}, b"\x02\x02k" + long_bytes(LARGE) + b"\x00"),
        (FIXED_DECIMAL, b"\x7f" * LARGE),
        (array(FIXED_DECIMAL), b"\x02" + b"\x7f" * LARGE + b"\x00"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": decimal()}]}, long_bytes(LARGE)),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "a", "type": ["null", FIXED_DECIMAL]}, {"name": "b", "type": "D"}],
            },
            b"\x00" + b"\x7f" * LARGE,
        ),
    ],
    ids=["precision", "long", "huge precision", "none", "array", "map", "fixed", "fixed in array", "field", "by name"],
)
def test_decimal_that_takes_long_to_convert_is_refused(schema: Any, data: bytes) -> None:
    with running(RegistryStub()) as stub:
        read, head = reader_of(schema, stub.registry(), stub)
        with pytest.raises(ValueError, match="a decimal with too many bytes"):
            read(head + data)


def test_long_decimal_is_refused_though_the_reader_skips_its_field() -> None:
    """The writer's schema decides, and comes from the registry."""
    fields = [{"name": "a", "type": "string"}]
    written = {"type": "record", "name": "R", "fields": [*fields, {"name": "d", "type": decimal()}]}
    with running(RegistryStub()) as stub:
        number = stub.add({"schemaType": "AVRO", "schema": json.dumps(written)}, "t-value")
        own = json.dumps({**written, "fields": fields})
        read = stub.registry().avro(own).deserializer("t", is_key=False)
        with pytest.raises(ValueError, match="a decimal with too many bytes"):
            read(b"\x00" + number.to_bytes(4, "big") + b"\x02x" + long_bytes(20_000))


@pytest.mark.parametrize(
    ("schema", "digits"),
    [
        (decimal(precision=20), 20),
        (decimal(precision=1_000), 1_000),
        (decimal("fixed", name="D", size=16), 20),
        (decimal("fixed", name="D", size=DECIMAL_BYTES_MAX), 20),
    ],
)
def test_decimal_with_all_digits_of_its_precision_is_read(schema: Any, digits: int) -> None:
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": schema}]}
    with running(RegistryStub()) as stub:
        serde = stub.registry().avro(json.dumps(record))
        for value in (Decimal(-1).scaleb(-2), Decimal(("9" * (digits - 2)) + ".99")):
            data = serde.serializer("t", is_key=False)({"a": value})
            assert serde.deserializer("t", is_key=False)(data) == {"a": value}


def test_record_of_bytes_is_read_whatever_its_logical_type() -> None:
    """Confluent writes a value whose schema is ``bytes`` without a length, and never converts it."""
    with running(RegistryStub()) as stub:
        read, head = reader_of(decimal(), stub.registry(), stub)
        assert read(head + b"\x7f" * 20_000) == b"\x7f" * 20_000


PRIMITIVE: list[Any] = ["null", "boolean", "int", "long", "float", "double", "string", "bytes"]
NAMES = iter(range(10**9))


def record_of(types: list[Any]) -> dict[str, Any]:
    name = f"R{next(NAMES)}"
    return {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(types)]}


SCHEMAS = st.recursive(
    st.sampled_from(PRIMITIVE)
    | st.integers(0, 3).map(lambda n: {"type": "fixed", "name": f"F{next(NAMES)}", "size": n}),
    lambda inner: inner.map(array) | st.lists(inner, max_size=3).map(record_of),
    max_leaves=6,
)
VALUES: dict[str, Any] = {
    "boolean": True,
    "int": -3,
    "long": 2**40,
    "float": 1.5,
    "double": 0.1,
    "string": "é",
    "bytes": b"\xff",
}


def value_of(schema: Any, count: int) -> Any:
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {field["name"]: value_of(field["type"], count) for field in schema["fields"]}
    if kind == "array":
        return [value_of(schema["items"], count)] * count
    return b"\x01" * schema["size"] if kind == "fixed" else VALUES.get(kind)


@given(SCHEMAS, st.integers(0, 3))
def test_data_of_writers_passes(schema: Any, count: int) -> None:
    parsed = parse_schema(record_of([schema, "string"]))
    file = io.BytesIO()
    schemaless_writer(file, parsed, {"f0": value_of(schema, count), "f1": "0123456789" * 30})
    check = bounds_of(parsed)
    if check is not None:
        check(file.getvalue())


@given(SCHEMAS, st.binary(max_size=60))
def test_data_that_passes_is_decoded_in_the_bytes_it_has(schema: Any, data: bytes) -> None:
    parsed = parse_schema(array(schema))
    check = bounds_of(parsed)
    if check is None:
        return
    try:
        check(data)
    except ValueError:
        return
    value = schemaless_reader(io.BytesIO(data), parsed, None)
    assert isinstance(value, list)
    assert len(value) <= len(data)


@given(st.sampled_from([TREE, CHAIN, *HAZARDS.values()]), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(schema: Any, data: bytes) -> None:
    check = bounds_of(parse_schema(schema))
    assert check is not None
    try:
        check(data)
    except ValueError:
        return
