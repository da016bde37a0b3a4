"""The promises of SECURITY.md: each names a test, and each of these tests exists."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_every_promise_has_a_test_that_is_there() -> None:
    text = (_ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## Promises")[2]
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    named = [re.search(r"`([\w/.]+\.py)` \|$", row) for row in rows]
    assert len(rows) > 20
    assert [row for row, test in zip(rows, named, strict=True) if test is None] == [], "a promise without a test"
    paths = {test[1] for test in named if test is not None}
    assert [path for path in sorted(paths) if not (_ROOT / path).is_file()] == []
