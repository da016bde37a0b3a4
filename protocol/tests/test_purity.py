"""The package needs only the standard library, and no part of it that does I/O."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import streams_protocol

MODULES = sorted(Path(streams_protocol.__file__).parent.glob("*.py"))
BANNED = {"logging", "time", "random", "os", "socket", "threading", "pickle", "marshal"}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_module_imports_only_harmless_standard_library(module: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported.add(str(node.module).partition(".")[0])
    assert imported <= sys.stdlib_module_names - BANNED


def test_every_public_name_exists_once() -> None:
    assert len(set(streams_protocol.__all__)) == len(streams_protocol.__all__)
    assert all(hasattr(streams_protocol, name) for name in streams_protocol.__all__)
