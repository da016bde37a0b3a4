"""Which changes of a topology change its fingerprint."""

from __future__ import annotations

from typing import Any

import pytest

from streams_py import StreamsBuilder, serdes
from streams_py.history.fingerprint import fingerprint_of


def of(source: Any, sink: Any, store: Any = serdes.INT64) -> str:
    builder = StreamsBuilder(key=serdes.STRING)
    lines = builder.stream("lines", value=source)
    lines.to("out", value=sink)
    lines.group_by_key().aggregate(lambda: 0, lambda _key, _value, total: total, store="totals", value=store)
    return fingerprint_of(builder.build())


def test_topology_that_is_built_again_is_the_same() -> None:
    assert of(serdes.STRING, serdes.STRING) == of(serdes.STRING, serdes.STRING)


@pytest.mark.parametrize(
    "other",
    [
        (serdes.BYTES, serdes.STRING),
        (serdes.STRING, serdes.BYTES),
        (None, serdes.STRING),
        (serdes.STRING, serdes.STRING, serdes.STRING),
    ],
    ids=["source", "sink", "default", "store"],
)
def test_topology_with_another_serde_is_another_one(other: tuple[Any, ...]) -> None:
    assert of(*other) != of(serdes.STRING, serdes.STRING)
