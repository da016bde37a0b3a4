"""Pages that are made from the code: where they stand in the site, and what writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

GENERATED: Final[dict[str, Callable[[], str]]] = {}
"""Address below ``docs/`` -> its Markdown."""
