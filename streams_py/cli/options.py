"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["BOOTSTRAP", "CONFIG"]

BOOTSTRAP = Annotated[
    str, typer.Option("--bootstrap", "-b", envvar="BOOTSTRAP", help="host:port of a broker, or embedded.")
]
CONFIG = Annotated[
    Path | None, typer.Option("--config", help="A .toml or .properties file, for security settings for example.")
]
