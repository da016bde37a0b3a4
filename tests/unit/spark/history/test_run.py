"""The results of a run, by name."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from streams_py.errors import StreamsError
from streams_py.history.kept_state import stores_without_state
from streams_py.history.plan import plan_history
from streams_py.spark.history.blocks import STATE
from streams_py.spark.history.run import Results
from tests.support.history.kept_state import own, prices


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """The rows that were requested."""
    found: list[tuple[int, str]] = []
    monkeypatch.setattr(Results, "rows", lambda _, channel, topic: found.append((channel, topic)))
    return found


def results_of(topology: Any, *topics: str) -> Results:
    nothing: Any = None
    plan = plan_history(topology, "app", {}, dict.fromkeys(topics, 1))
    return Results(nothing, plan, nothing, stores_without_state(topology))


def test_store_whose_changelog_is_its_source_topic_is_found_by_name(asked: list[tuple[int, str]]) -> None:
    results = results_of(prices().build({"topology.optimization": "all"}), "prices")
    assert (list(results.stores), list(results.changelogs), "table" in results.stores) == (["table"], [], True)
    results.stores["table"]
    assert asked == [(STATE, "app-table-changelog")]


def test_store_without_state_says_why_and_what_to_do(asked: list[tuple[int, str]]) -> None:
    results = results_of(own(False), "orders")
    assert (list(results.stores), "own" in results.stores) == ([], False)
    with pytest.raises(
        StreamsError, match=r"store own is a custom store without a changelog, .*: declare it with logging"
    ):
        results.stores["own"]
    with pytest.raises(StreamsError, match=r"global store rates is filled from topic rates .*: read that input"):
        results.stores["rates"]
    with pytest.raises(KeyError, match="'none' does not exist; expected one of"):
        results.stores["none"]
    assert not asked
