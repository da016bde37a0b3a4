"""``run.py`` keeps the environment up to date with the lock file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

RUN = Path(__file__).parents[3] / "run.py"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the program with an environment of an older lock file. Nothing is installed."""
    spec = importlib.util.spec_from_file_location("run_under_test", RUN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    environment = tmp_path / ".venv"
    environment.mkdir()
    (environment / "kept").touch()
    stamp = environment / ".stamp"
    stamp.write_text("of an older lock file")
    monkeypatch.setattr(module, "VENV", environment)
    monkeypatch.setattr(module, "BIN", environment / "bin")
    monkeypatch.setattr(module, "STAMP", stamp)
    monkeypatch.setattr(module, "pip", lambda *arguments: None)
    monkeypatch.setattr(
        module.subprocess, "run", lambda *_, **__: environment.mkdir() or module.subprocess.CompletedProcess([], 0)
    )
    return module


def test_environment_is_made_anew_when_the_lock_file_has_changed(run: ModuleType) -> None:
    run.ensure_environment()
    assert not (run.VENV / "kept").exists()
    assert run.STAMP.read_text() != "of an older lock file"


def test_environment_that_runs_the_program_is_brought_up_to_date_in_place(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(run.VENV))
    run.ensure_environment()
    assert (run.VENV / "kept").exists()
    assert run.STAMP.read_text() != "of an older lock file"
