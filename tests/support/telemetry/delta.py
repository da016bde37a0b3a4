"""Commits of a Delta table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def commit(table: Path, version: int, *, add: tuple[str, ...] = (), remove: tuple[str, ...] = ()) -> None:
    """A commit in the table's log."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    actions: list[dict[str, Any]] = [{"commitInfo": {"operation": "WRITE"}}]
    actions += [{"remove": {"path": path}} for path in remove]
    actions += [{"add": {"path": path, "dataChange": True}} for path in add]
    (log / f"{version:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
