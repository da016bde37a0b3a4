"""The published package installs and works outside of this checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_SMOKE = """
import streams_py, streams_protocol, sys
from streams_py import StreamsBuilder, serdes
from streams_py.testing import TopologyTestDriver
assert all(module.__file__.startswith(sys.argv[1]) for module in (streams_py, streams_protocol)), streams_py.__file__
for name in streams_py.__all__:
    getattr(streams_py, name)
builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
builder.stream("in").group_by_key().count(store="counts").to_stream().to("out")
with TopologyTestDriver(builder.build()) as driver:
    driver.input_topic("in", key=serdes.STRING, value=serdes.STRING).send("a", "1")
    assert driver.output_topic("out", key=serdes.STRING, value=serdes.INT64).read_to_dict() == {"a": 1}
print(streams_py.__version__)
"""


def _run(*command: object, cwd: Path = _ROOT, environment: dict[str, str] | None = None) -> str:
    without = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=without | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this checkout, and the wheel that was built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def test_wheel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    where = {"PYTHONPATH": str(tmp_path / "site")}
    printed = _run(sys.executable, "-W", "ignore", "-c", _SMOKE, tmp_path / "site", cwd=tmp_path, environment=where)
    assert printed.strip() == _PROJECT["version"]


def test_wheel_has_both_packages_their_types_and_the_licence_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"streams_py", "streams_protocol", f"kafka_streams_py-{_PROJECT['version']}.dist-info"}
    for needed in ("streams_py/py.typed", "streams_py/__init__.pyi", "streams_protocol/py.typed"):
        assert needed in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert [name for name in names if "__pycache__" in name or "/tests/" in name] == []


def test_wheel_has_every_file_that_the_source_has(wheel: Path) -> None:
    tracked = _run("git", "ls-files", "streams_py", "protocol/streams_protocol").splitlines()
    expected = {name.removeprefix("protocol/") for name in tracked}
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    assert sorted(expected - inside) == []
    kinds = {Path(name).suffix for name in expected} - {".py", ".pyi", ".typed"}
    assert kinds >= {".html", ".css", ".js", ".json", ".xml"}  # the page, its metrics in Grafana, messages, the kit


_PAGE = """
import urllib.request, sys
import streams_py.adapters.kafka_python.admin.streams_groups  # reads its messages
from streams_py.dashboard.board import Board
from streams_py.dashboard.app import serve_board
assert streams_py.__file__.startswith(sys.argv[1])
with serve_board(Board(), None) as server:
    for path, kind in (("", "html"), ("page.css", "css"), ("page.js", "javascript"), ("grid.js", "javascript")):
        with urllib.request.urlopen(server.url + path, timeout=60) as answer:
            assert kind in answer.headers["content-type"], answer.headers
            assert answer.read()
print("served")
"""


def test_wheel_serves_the_page(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    where = {"PYTHONPATH": str(tmp_path / "site")}
    printed = _run(sys.executable, "-W", "ignore", "-c", _PAGE, tmp_path / "site", cwd=tmp_path, environment=where)
    assert printed.strip() == "served"


def test_sdist_has_what_a_packager_needs(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "mkdocs.yml", "tests/README.md"} <= inside
    assert [name for name in inside if name.startswith((".venv", "build/", "dist/"))] == []


def test_metadata_names_the_version_the_extras_and_the_pythons(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Version"] == _PROJECT["version"]
    assert set(metadata.get_all("Provides-Extra", ())) == set(_PROJECT["optional-dependencies"])
    assert metadata["Requires-Python"] == ">=3.11"
    assert {"3.11", "3.12", "3.13"} <= {line.rpartition(" ")[2] for line in metadata.get_all("Classifier", ())}


def test_version_stands_in_one_place_and_is_the_newest_of_the_changelog() -> None:
    headings = re.findall(r"^## (\S+)", (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    released = headings[1:] if headings[0] == "Unreleased" else headings
    assert released[0] == _PROJECT["version"]
    written = re.compile(rf"""version[^\n]{{0,20}}["']{re.escape(_PROJECT["version"])}["']""", re.IGNORECASE)
    modules = [*(_ROOT / "streams_py").rglob("*.py"), *(_ROOT / "protocol" / "streams_protocol").rglob("*.py")]
    assert [module for module in modules if written.search(module.read_text(encoding="utf-8"))] == []


def test_readme_names_every_extra() -> None:
    readme = (_ROOT / "README.md").read_text(encoding="utf-8")
    assert [extra for extra in _PROJECT["optional-dependencies"] if f"`{extra}`" not in readme] == []


def _pythons() -> list[str]:
    """Other Pythons of this machine, and this one."""
    found = [f"{sys.version_info.major}.{sys.version_info.minor}"]
    for version in ("3.11", "3.12", "3.13"):
        if version not in found and _interpreter(version):
            found.append(version)
    return found


def _interpreter(version: str) -> str | None:
    """An interpreter that runs, not only a name on the path."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    others = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    candidates = [shutil.which(f"python{version}"), *others]
    for candidate in filter(None, candidates):
        done = subprocess.run([candidate, "-c", "import sys, venv"], capture_output=True, check=False)
        if done.returncode == 0:
            return str(candidate)
    return None


@pytest.mark.weekly
@pytest.mark.parametrize("version", _pythons())
def test_wheel_installs_in_a_clean_environment_and_its_first_application_works(
    version: str, wheel: Path, tmp_path: Path
) -> None:
    _run(_interpreter(version), "-m", "venv", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", f"{wheel}[cli,testing]")
    assert _run(python, "-m", "pip", "check").startswith("No broken requirements")
    printed = _run(python, "-W", "ignore", "-c", _SMOKE, tmp_path / "env", cwd=tmp_path)
    assert printed.strip() == _PROJECT["version"]
    command = tmp_path / "env" / "bin" / "streams-py"
    _run(command, "new", "app", "words", cwd=tmp_path)
    assert "1 passed" in _run(python, "-m", "pytest", "-q", cwd=tmp_path / "words")
