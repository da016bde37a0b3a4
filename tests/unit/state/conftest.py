"""What tests of stores share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streams_py.state.directory.state_directory import StateDirectory
from tests.support.contract.store_kit import make_kit as make_kit


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StateDirectory]:
    directory = StateDirectory(str(tmp_path), "app", warns_of_temporary=False)
    directory.open()
    yield directory
    directory.close()
