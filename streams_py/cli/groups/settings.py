"""The settings of a group that the user gives, because they are not visible from outside."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streams_py.assignment.assignors.registry import choose_assignor
from streams_py.cli.options import LOCAL
from streams_py.cli.usage import pairs_of
from streams_py.config.files import read_config_file
from streams_py.config.streams_config import StreamsConfig


def assumed_settings(
    group: str, config: Path | None, given: Iterable[str] | None, option: str, *, assignor: str | None = None
) -> dict[str, Any]:
    """Return the settings of a file, updated with the KEY=VALUE pairs of ``option``.

    Checks the pairs and the assignor, so that no reasons are given for settings that an application cannot have.

    Raises:
        ConfigError: No application can have this key or value.
        AssignorError: ``assignor`` cannot be loaded.
    """
    pairs = pairs_of(given, option)
    StreamsConfig.of({"application.id": group, "bootstrap.servers": LOCAL, **pairs})
    if assignor is not None:
        choose_assignor(assignor)
    return {**({} if config is None else read_config_file(config)), **pairs}
