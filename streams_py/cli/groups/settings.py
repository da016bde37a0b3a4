"""What a command is told of a group's settings, which do not show from outside."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streams_py.assignment.assignors.registry import choose_assignor
from streams_py.cli.options import LOCAL
from streams_py.cli.usage import pairs_of
from streams_py.config.files import read_config_file
from streams_py.config.streams_config import StreamsConfig

__all__ = ["settings_told"]


def settings_told(
    group: str, config: Path | None, told: Iterable[str] | None, option: str, *, assignor: str | None = None
) -> dict[str, Any]:
    """The settings of a file, and those that ``option`` gives as KEY=VALUE, on top. ConfigError for a key or value that
    no application could have, AssignorError for an ``assignor`` that cannot be had: else reasons would be told of
    settings that nobody meant."""
    pairs = pairs_of(told, option)
    StreamsConfig.of({"application.id": group, "bootstrap.servers": LOCAL, **pairs})
    if assignor is not None:
        choose_assignor(assignor)
    return {**({} if config is None else read_config_file(config)), **pairs}
