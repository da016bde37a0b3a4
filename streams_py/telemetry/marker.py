"""The marker of a folder: a small JSON file with the owner of the folder, so that contents are never mixed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from streams_py.system.foreign_json import loads as loads_foreign


def marker_text(marker: Mapping[str, Any]) -> str:
    """Return the content of the marker's file."""
    return json.dumps(marker) + "\n"


def marker_in(text: str) -> dict[str, Any]:
    """Read a marker; empty if it is damaged, because a killed process may have written only a part of it."""
    try:
        found = loads_foreign(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
