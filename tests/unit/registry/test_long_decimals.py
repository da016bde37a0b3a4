"""The serializer writes no decimal that the deserializer would refuse."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("fastavro")

from hypothesis import given
from hypothesis import strategies as st

from streams_py.registry.avro_bounds import DECIMAL_BYTES_MAX
from tests.support.registry.stub import RegistryStub, running


def decimal(kind: str = "bytes", **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": "decimal", "precision": 2_000, "scale": 0, **more}


SMALL = decimal(precision=20, scale=2)
FIXED = decimal("fixed", precision=1_000, name="F", size=DECIMAL_BYTES_MAX + 1)
LONG = Decimal("9" * 1_300)  # 540 bytes
SHIFTED = Decimal("1E+1300")  # one digit
VALUES: dict[str, Any] = {
    "many digits": LONG,
    "negative": LONG.copy_negate(),
    "shifted": SHIFTED,
    "far too long": Decimal("1E+1300000000"),
    "bytes": bytes(DECIMAL_BYTES_MAX + 1),
}


def record(field: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "amount", "type": field}]}


def writer(stub: RegistryStub, field: Any) -> Any:
    registry = stub.registry()
    return registry.avro(json.dumps(record(field))).serializer("t", is_key=False)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize(
    ("field", "wrap"),
    [
        (decimal(), lambda value: value),
        (["null", decimal()], lambda value: value),
        (["null", decimal(), "string"], lambda value: value),
        ({"type": "array", "items": decimal()}, lambda value: [value]),
        ({"type": "map", "values": decimal()}, lambda value: {"k": value}),
        ({"type": "array", "items": ["null", decimal()]}, lambda value: [None, value]),
    ],
    ids=["plain", "optional", "union", "array", "map", "array of optional"],
)
def test_decimal_that_would_not_be_read_is_not_written(field: Any, wrap: Any, value: Any) -> None:
    with running(RegistryStub()) as stub:
        write = writer(stub, field)
        with pytest.raises(ValueError, match=rf"R\.amount is a decimal of .* bytes.* at most {DECIMAL_BYTES_MAX}"):
            write({"amount": wrap(value)})


def test_decimal_that_has_few_digits_and_many_bytes_is_not_written() -> None:
    """The encoder counts digits, and the deserializer counts bytes."""
    with running(RegistryStub()) as stub:
        write = writer(stub, SMALL)
        with pytest.raises(ValueError, match=r"R\.amount is a decimal of 84 bytes.* at most 41"):
            write({"amount": Decimal("1E+198")})


@pytest.mark.parametrize(
    "field", [FIXED, ["null", FIXED], {"type": "array", "items": FIXED}], ids=["plain", "null", "array"]
)
def test_fixed_decimal_that_would_not_be_read_is_not_written(field: Any) -> None:
    value: Any = Decimal(1) if isinstance(field, list) or field is FIXED else [Decimal(1)]
    with running(RegistryStub()) as stub:
        write = writer(stub, field)
        with pytest.raises(ValueError, match=r"R\.amount is a decimal of 513 bytes.* at most 512"):
            write({"amount": value})


@given(
    digits=st.integers(min_value=0, max_value=10**60),
    exponent=st.integers(min_value=-2, max_value=200),
    is_negative=st.booleans(),
)
def test_decimal_that_is_written_is_read(digits: int, exponent: int, is_negative: bool) -> None:
    value = Decimal((int(is_negative), tuple(map(int, str(digits))), exponent))
    with running(RegistryStub()) as stub:
        serde = stub.registry().avro(json.dumps(record(decimal(precision=61, scale=2))))
        try:
            data = serde.serializer("t", is_key=False)({"amount": value})
        except ValueError:
            return
        assert serde.deserializer("t", is_key=False)(data) == {"amount": value}


def test_longest_decimal_is_written_and_read() -> None:
    value = Decimal(2 ** (8 * DECIMAL_BYTES_MAX - 1) - 1)
    with running(RegistryStub()) as stub:
        serde = stub.registry().avro(json.dumps(record(decimal())))
        data = serde.serializer("t", is_key=False)({"amount": value})
        assert serde.deserializer("t", is_key=False)(data) == {"amount": value}
        with pytest.raises(ValueError, match="a decimal of 513 bytes"):
            serde.serializer("t", is_key=False)({"amount": value + 1})
