"""How a command that was used wrongly ends."""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["WRONG_USAGE", "refuse"]

WRONG_USAGE: Final = 2
"""The exit status."""


def refuse(why: str) -> int:
    """Say in one sentence what is wrong; the exit status."""
    print(" ".join(why.split()), file=sys.stderr)
    return WRONG_USAGE
