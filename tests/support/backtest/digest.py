"""A checksum of score rows: equal results of two runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from streams_py.backtest.kernel import Row


def score_digest(rows: Iterable[Row], without: Sequence[str] = ("ns_wall", "ns_cpu")) -> str:
    """Checksum of score rows without their times."""
    digest = hashlib.sha256()
    for row in rows:
        kept: dict[str, Any] = {name: value for name, value in row.items() if name not in without}
        digest.update(json.dumps(kept, sort_keys=True).encode())
    return digest.hexdigest()
