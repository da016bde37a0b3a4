"""How copies are spread over tags, and the situations that can be decided again, in the tables of a group."""

from __future__ import annotations

import json

from streams_py.telemetry.replay import input_hash
from tests.support.events.kit import Recorder
from tests.support.leader.kit import member
from tests.support.telemetry.history import DAY_MS, History, fold, rows


def test_spread_names_a_violation_only_when_better_was_possible() -> None:
    history = History(Recorder(num_standby_replicas=1))
    history.rebalance({"a": member(1, tags={"zone": "x"}), "b": member(2, tags={"zone": "x"}, rack="r")})
    found = rows(fold(history.records), "spread")
    assert {(row["tag"], row["replicas"], row["distinct"], row["ideal"], row["violation"]) for row in found} == {
        ("zone", 2, 1, 1, False),
        ("rack", 2, 1, 1, False),
    }
    history = History(Recorder(num_standby_replicas=1))
    zones = {"a": "x", "b": "x", "c": "y"}
    history.rebalance({name: member(n, tags={"zone": zone}) for n, (name, zone) in enumerate(zones.items(), 1)})
    found = rows(fold(history.records), "spread", tag="zone")
    assert {row["ideal"] for row in found} == {2}
    assert all(row["violation"] == (row["distinct"] < 2) for row in found)


def test_equal_situations_have_equal_inputs() -> None:
    history = History()
    history.rebalance({"a": member(1)})
    history.later(DAY_MS)
    history.recorder.generation += 5
    history.rebalance({"a": member(1)})
    first, second = rows(fold(history.records), "rebalance_input")
    assert first["input"] == second["input"]
    assert input_hash(first["input"]) == input_hash(second["input"])
    assert (first["tasks"], first["clients"]) == (4, 1)
    parsed = json.loads(first["input"])
    assert sorted(parsed) == ["clients", "configs", "decision", "lag_ok", "subs", "v"]
