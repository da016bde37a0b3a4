"""kafka-python's private names that the membership uses are unchanged since they were last reviewed."""

from __future__ import annotations

import json
from importlib import metadata

from tests.kafka_private_names import OTHERS, TABLE, names_of_others, used_names

_RENEW = "then: python -m tests.kafka_private_names"


def test_private_names_are_there_and_as_they_were() -> None:
    looked_at, now = json.loads(TABLE.read_text(encoding="utf-8")), used_names()
    release = f"kafka-python {metadata.version('kafka-python')}"
    gone = sorted(looked_at.keys() - now.keys())
    assert gone == [], (
        f"{release} no longer has these, or they are unused: remove their use in adapters/kafka_python, {_RENEW}"
    )
    changed = sorted(name for name in looked_at.keys() & now.keys() if looked_at[name] != now[name])
    assert changed == [], f"{release} has changed these: review the change, adapt adapters/kafka_python, {_RENEW}"
    assert sorted(now.keys() - looked_at.keys()) == [], f"newly used: is there a public API? If not, {_RENEW}"


def test_private_names_of_other_objects_have_a_known_home() -> None:
    ours = {"_base"}
    assert names_of_others() - ours <= set(OTHERS), "say in tests/kafka_private_names.py whose it is"


def test_table_knows_what_would_break_a_rebalance() -> None:
    names = {name.rpartition(".")[2] for name in used_names()}
    assert {"_do_join_and_sync_async", "_on_join_complete_async", "_send_heartbeat_request", "_net", "_conns"} <= names
