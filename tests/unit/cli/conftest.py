"""Fixtures of the tests of commands."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from typer import testing


@pytest.fixture(autouse=True, scope="package")
def _commands_are_built_once() -> Iterator[None]:
    """Without this, Typer's runner builds all commands from the signatures of their functions before each call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "_get_command", cache(testing._get_command))  # Typer has no public one
        yield
