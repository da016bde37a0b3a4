"""Every operator says whether it may run twice over the same records."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import pytest

from streams_py import StreamsBuilder, serdes
from streams_py.history.refuse import Allowances, findings
from streams_py.topology import operators
from streams_py.topology.operators.stateless import Filter

ONLY_ONCE = {"CallAsync", "CallInBatches", "Foreach", "Peek", "Print"}
BY_INSTANCE = {"ProcessorOperator", "TableTransformValues"}
"""The author of the processor decides."""


def operator_classes() -> list[type[Any]]:
    names = [found.name for found in pkgutil.iter_modules(operators.__path__)]
    return [
        value
        for module in (importlib.import_module(f"{operators.__name__}.{name}") for name in names)
        for value in vars(module).values()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and callable(getattr(value, "bind", None))
        and not inspect.isabstract(value)
    ]


def test_every_operator_says_whether_it_is_replayable() -> None:
    said = {found.__name__: getattr(found, "replayable", None) for found in operator_classes()}
    assert len(said) > 40
    assert {name for name, value in said.items() if value is False} == ONLY_ONCE
    assert {name for name, value in said.items() if value is None} == BY_INSTANCE


@pytest.mark.parametrize("replayable", [True, False])
def test_operator_that_is_not_replayable_is_refused_over_a_history(
    replayable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Filter, "replayable", replayable)
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("in").filter(lambda key, value: True, name="asks-the-clock").to("out")
    found = findings(builder.build(), "app", {}, Allowances(side_effects=True))
    assert [finding.node for finding in found] == ([] if replayable else ["asks-the-clock"])
