"""Pages that are made from the code: where they stand in the site, and what writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from docs.tools import command_line, configuration, java_classes

GENERATED: Final[dict[str, Callable[[], str]]] = {
    "reference/configuration.md": configuration.page,
    "reference/command-line.md": command_line.page,
    "reference/java-classes.md": java_classes.page,
}
"""Address below ``docs/`` -> what writes its Markdown."""
