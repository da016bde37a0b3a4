"""Naming candidates, finding their code, multiplying them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streams_py.backtest.candidates import BUILT_IN, Candidate, choose, parse_candidate, seed_of, sweep
from streams_py.backtest.kernel import Orders
from streams_py.errors import ConfigError
from tests.support.backtest.assignors import InTurn
from tests.support.backtest.kit import A, B, client, replay, rows

GOOD = """
from tests.support.backtest.assignors import InTurn

class FromFile(InTurn):
    pass
"""


def test_candidate_is_understood_when_named_and_configured() -> None:
    assert parse_candidate("ha=builtin:high_availability; max.warmup.replicas=8 ;app.x=a=b") == Candidate(
        "ha", "builtin:high_availability", {"max.warmup.replicas": "8", "app.x": "a=b"}
    )
    assert parse_candidate("builtin:sticky").name == "sticky"
    assert parse_candidate("recorded") == Candidate("recorded", "recorded")
    assert parse_candidate("acme.assignors:Best").name == "Best"
    assert parse_candidate("some/where/mine.py:Best") == Candidate("Best", "some/where/mine.py:Best")


@pytest.mark.parametrize("text", ["", "=builtin:sticky", "ha=", "ha=builtin:sticky;max.warmup.replicas"])
def test_candidate_is_refused_when_it_cannot_be_understood(text: str) -> None:
    with pytest.raises(ConfigError, match="candidate"):
        parse_candidate(text)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_assignor_is_found_when_named_with_or_without_its_prefix(name: str) -> None:
    for text in (f"builtin:{name}", name):
        found = choose(parse_candidate(text))
        assert (found.built_in is None) != (found.task_assignor is None)
        assert found.is_ours


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("builtin:best", "high_availability, sticky"),
        ("x=no.such.module:Best", "PYTHONPATH"),
        ("x=tests.support.backtest.assignors:Nothing", "has no Nothing"),
        ("x=collections:OrderedDict", "not a subclass"),
        ("x=no/such/file.py:Best", "check the path"),
        ("x=justaname", "package.module:Class"),
        ("recorded;max.warmup.replicas=3", "cannot have settings"),
        ("x=builtin:sticky;max.warmup.replica=3", "max.warmup.replicas"),
        ("x=builtin:sticky;max.warmup.replicas=0", "at least 1"),
        ("x=builtin:sticky;max.warmup.replicas=many", "whole number"),
    ],
)
def test_candidate_is_refused_with_one_sentence_when_its_code_or_settings_cannot_be_used(
    text: str, remedy: str
) -> None:
    with pytest.raises(ConfigError, match="candidate") as refused:
        choose(parse_candidate(text))
    assert remedy in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "used: =" not in str(refused.value)
    assert ": :" not in str(refused.value)


def test_class_is_found_when_named_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "candidate_of_a_file.py"
    path.write_text(GOOD)
    try:
        found = choose(Candidate("mine", f"{path}:FromFile"))
        assert found.task_assignor is not None
        assert found.task_assignor.__name__ == "FromFile"
        assert not found.is_ours
        with pytest.raises(ConfigError, match="no class Other"):
            choose(Candidate("mine", f"{path}:Other"))
    finally:
        sys.modules.pop(path.stem, None)


def test_file_is_refused_when_it_cannot_be_imported(tmp_path: Path) -> None:
    path = tmp_path / "broken_candidate.py"
    path.write_text("1 / 0\n")
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        choose(Candidate("mine", f"{path}:Any"))
    assert path.stem not in sys.modules


def test_settings_reach_an_assignor_of_ones_own_when_they_are_none_of_the_eight() -> None:
    situation = replay(client(A), client(B))
    (row,) = rows(situation, "x=tests.support.backtest.assignors:Configured;app.client=1", keep_decisions=True)
    assert row["valid"] == "ok"
    assert f'"{B}":["0:0-3"' in row["decision"]


def test_orders_are_refused_when_there_is_nobody_or_two_have_one_name() -> None:
    with pytest.raises(ConfigError, match="no candidate"):
        Orders([])
    with pytest.raises(ConfigError, match="NAME=SPEC"):
        Orders([Candidate("a", InTurn), Candidate("a", "builtin:sticky")])


def test_seed_differs_when_input_name_or_user_seed_do() -> None:
    seeds = {seed_of("a", "x", 0), seed_of("b", "x", 0), seed_of("a", "y", 0), seed_of("a", "x", 1)}
    assert len(seeds) == 4
    assert seed_of("a", "x", 0) == seed_of("a", "x", 0)


# -- sweeps ------------------------------------------------------------------------------------------------------------


def test_sweep_is_the_product_when_there_are_several_settings() -> None:
    made = sweep(
        [parse_candidate("recorded"), parse_candidate("ha=builtin:high_availability;num.standby.replicas=1")],
        ["max.warmup.replicas=1,2", "acceptable.recovery.lag=0,1e4"],
    )
    assert [candidate.name for candidate in made] == [
        "recorded",
        "ha max.warmup.replicas=1 acceptable.recovery.lag=0",
        "ha max.warmup.replicas=1 acceptable.recovery.lag=10000",
        "ha max.warmup.replicas=2 acceptable.recovery.lag=0",
        "ha max.warmup.replicas=2 acceptable.recovery.lag=10000",
    ]
    assert made[-1].overrides == {
        "num.standby.replicas": "1",
        "max.warmup.replicas": "2",
        "acceptable.recovery.lag": "10000",
    }
    for candidate in made:
        choose(candidate)


def test_sweep_over_tags_takes_lists_when_they_are_joined_with_plus() -> None:
    made = sweep([parse_candidate("sticky")], ["rack.aware.assignment.tags=zone,zone+cluster"])
    assert [candidate.overrides["rack.aware.assignment.tags"] for candidate in made] == ["zone", "zone,cluster"]


def test_sweep_is_refused_when_it_is_too_large_or_not_understood() -> None:
    values = ",".join(map(str, range(1, 102)))
    with pytest.raises(ConfigError, match="10,000"):
        sweep([parse_candidate("sticky")], [f"max.warmup.replicas={values}", f"num.standby.replicas={values}"])
    for text in ("max.warmup.replicas", "=1", "max.warmup.replicas=1,,2"):
        with pytest.raises(ConfigError, match="--set"):
            sweep([parse_candidate("sticky")], [text])


def test_swept_setting_changes_the_decision_when_the_assignor_looks_at_it() -> None:
    situation = replay(client(A, "0:0-3"), client(B))
    found = rows(
        situation, *sweep([parse_candidate("ha=builtin:high_availability")], ["num.standby.replicas=0,1"]), rounds=False
    )
    assert [row["moved_standby"] for row in found] == [2, 4]  # warm-ups without standbys; a standby for each task
