"""The file of a plan: JSON, the old one or the new one whatever happens while it is written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streams_py.errors import ConfigError

__all__ = ["save_plan"]


def save_plan(path: Path, plan: Mapping[str, Any]) -> None:
    """Write it. ConfigError when that cannot be."""
    beside = path.with_name(f"{path.name}.new")
    try:
        beside.write_text(json.dumps(plan, indent=1), encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        why = error.strerror
        raise ConfigError(f"the plan {path} cannot be written ({why}); name another file with --plan") from None
