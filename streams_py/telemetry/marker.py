"""The marker of a folder: a small JSON file that says what the folder is of, so that nothing else is mixed in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from streams_py.system.foreign_json import loads as loads_foreign

__all__ = ["marker_in", "marker_text"]


def marker_text(marker: Mapping[str, Any]) -> str:
    """The content of its file."""
    return json.dumps(marker) + "\n"


def marker_in(text: str) -> dict[str, Any]:
    """Nothing where it is damaged: a process that was killed may have left half of it."""
    try:
        found = loads_foreign(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
