"""The cluster of a command that gets a file with settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from streams_py.cli.commands import app
from streams_py.cli.options import LOCAL, settings_of
from streams_py.errors import ConfigError


def _commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{path} {name}")


def test_cluster_is_that_of_the_option_else_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.properties"
    file.write_text("bootstrap.servers=broker:9093\nsecurity.protocol=SSL\n")
    assert settings_of(None, None) == {"bootstrap.servers": LOCAL}
    assert settings_of(None, None, "embedded") == {"bootstrap.servers": "embedded"}
    assert settings_of(None, file) == {"bootstrap.servers": "broker:9093", "security.protocol": "SSL"}
    assert settings_of("other:1", file, "embedded") == {"bootstrap.servers": "other:1", "security.protocol": "SSL"}
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        settings_of(None, tmp_path / "nowhere.toml")


def test_no_command_has_a_cluster_of_its_own_that_hides_the_one_of_the_file() -> None:
    both = 0
    for path, command in _commands(typer.main.get_command(app)):
        options = {option: parameter for parameter in command.params for option in parameter.opts}
        if {"--bootstrap", "--config"} <= options.keys():
            both += 1
            assert options["--bootstrap"].default is None, path
    assert both >= 12
