"""Fixtures of the tests on the embedded cluster."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A scratch folder with a short path: sockets live in it, and their paths may have about 100 characters."""
    folder = Path(tempfile.mkdtemp(prefix="sp-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
