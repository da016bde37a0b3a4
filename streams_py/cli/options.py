"""Options that several commands share, and the settings that result from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from streams_py.config.files import read_config_file

LOCAL = "localhost:9092"

EMBEDDED = "embedded"


def _bootstrap(help_text: str) -> Any:
    return typer.Option("--bootstrap", "-b", envvar="BOOTSTRAP", help=f"host:port of a broker. Default: {help_text}.")


BOOTSTRAP = Annotated[str | None, _bootstrap(f"the value in --config, or {LOCAL}")]
BOOTSTRAP_OR_EMBEDDED = Annotated[str | None, _bootstrap(f"the value in --config, or {EMBEDDED}")]
CONFIG = Annotated[
    Path | None,
    typer.Option("--config", help="A .toml or .properties file with the cluster and its security settings."),
]
PROCESSES = Annotated[
    int | None, typer.Option("--processes", min=1, help="Number of worker processes. Default: one per core.")
]
SEED = Annotated[int, typer.Option("--seed", help="First seed. The same seed always gives the same run.")]


def settings_of(bootstrap: str | None, config: Path | None, default: str = LOCAL) -> dict[str, Any]:
    """Return the settings of the file, not checked yet.

    ``bootstrap`` names the cluster; without it the file does, and without both ``default``.

    Raises:
        ConfigError: The file cannot be read.
    """
    given = {"bootstrap.servers": default} | ({} if config is None else read_config_file(config))
    return given if bootstrap is None else given | {"bootstrap.servers": bootstrap}
