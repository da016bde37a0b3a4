"""The input and the decision of an assignor as canonical JSON: equal inputs have equal bytes.

It contains no generation, time or duration. So a situation that occurs twice has one hash, and it can be decided again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from streams_py.events.fields import write_record
from streams_py.events.parts import WholeRebalance

_VERSION: Final = 1
_WEIGHT_DIGITS: Final = 2
_PART_FIELDS: Final = ("rebalance_id", "part", "parts", "slice", "slices")
_DECISION_FIELDS: Final = ("active", "standby", "warmup", "threads", "reasons")


def canonical_input(whole: WholeRebalance) -> str:
    """Return JSON with sorted keys: ``configs``, ``lag_ok``, ``subs``, ``clients`` (by id) and ``decision``."""
    clients: list[dict[str, Any]] = []
    decision: dict[str, dict[str, Any]] = {}
    for part in sorted(whole.clients, key=lambda part: part.client):
        fields = write_record(part)
        decision[part.client] = {name: fields.pop(name) for name in _DECISION_FIELDS}
        clients.append({name: value for name, value in fields.items() if name not in _PART_FIELDS})
    assignor = write_record(whole.header.assignor)
    value = {
        "v": _VERSION,
        "configs": dict(whole.header.configs),
        "lag_ok": whole.header.lag_ok,
        "subs": [write_record(piece) for piece in whole.slices],
        "clients": clients,
        "decision": {"assignor": assignor, "clients": decision},
    }
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def weighed(whole: WholeRebalance, work: Mapping[str, float]) -> WholeRebalance:
    """Add the ``weight`` of each task to slices of which all tasks were measured.

    ``work`` is the share of each task in all work. Weights are rounded, so that small differences do not make another
    situation.
    """
    slices = []
    for piece in whole.slices:
        shares = [work.get(f"{piece.sub}_{piece.first + number}") for number in range(piece.count)]
        known = [round(share, _WEIGHT_DIGITS) for share in shares if share is not None]
        slices.append(replace(piece, weight=known) if known and len(known) == len(shares) else piece)
    return replace(whole, slices=slices)


def input_hash(text: str) -> str:
    """Return the SHA-256 of a canonical input, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()
