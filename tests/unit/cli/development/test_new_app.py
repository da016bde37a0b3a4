"""``streams-py new app``: a complete project or no project."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams_py.cli.commands import app
from streams_py.cli.development.new_app import project_files

yaml = pytest.importorskip("yaml")
_ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _new(name: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["new", "app", name])
    return done.exit_code, done.stderr


def test_test_of_a_new_project_passes(folder: Path) -> None:
    assert _new("my-words") == (0, "")
    environment = {**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{_ROOT / 'protocol'}"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder / "my-words",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert os.stat(folder / "my-words").st_mode == os.stat(folder / "my-words" / "tests").st_mode


def test_project_has_nothing_but_its_files(folder: Path) -> None:
    _new("words")
    made = {path.relative_to(folder / "words").as_posix() for path in (folder / "words").rglob("*") if path.is_file()}
    assert made == set(project_files("words"))
    assert [path.name for path in folder.iterdir()] == ["words"]


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_what_exists_is_left_alone(kind: str, folder: Path) -> None:
    if kind == "file":
        (folder / "words").write_text("mine")
    elif kind == "folder":
        (folder / "words").mkdir()
    else:
        (folder / "words").symlink_to("nowhere")
    assert _new("words") == (2, "words exists already; choose another name, or run this in another folder\n")
    assert [path.name for path in folder.iterdir()] == ["words"]


@pytest.mark.parametrize("name", ["../x", "a/b", "Words", "9lives", "-x", "a--b", "", ".", "x" * 61, "wörter"])
def test_name_that_cannot_be_one_is_refused(name: str, folder: Path) -> None:
    done = CliRunner().invoke(app, ["new", "app", "--", name])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "cannot name a project" in done.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["json", "streams-py", "class", "tests", "pydantic"])
def test_name_of_a_module_that_python_would_find_instead_is_refused(name: str, folder: Path) -> None:
    status, said = _new(name)
    assert status == 2
    assert "another module" in said
    assert list(folder.iterdir()) == []


def test_disk_that_is_full_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path.write_text

    def write_text(path: Path, text: str, encoding: str) -> int:
        if path.name == "test_app.py":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole(path, text, encoding)

    monkeypatch.setattr(Path, "write_text", write_text)
    status, said = _new("words")
    assert status == 2
    assert said == f"words cannot be created here ({os.strerror(errno.ENOSPC)}); no file was left behind\n"
    assert list(folder.iterdir()) == []


def test_broker_of_the_compose_file_is_that_of_this_repository() -> None:
    ours = yaml.safe_load((_ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]["broker"]
    made = yaml.safe_load(project_files("words")["compose.yaml"])["services"]["broker"]
    assert made["image"] in ours["image"]
    assert made["ports"] == ours["ports"]
    assert made["healthcheck"] == ours["healthcheck"]
    assert made["environment"].items() <= ours["environment"].items()
