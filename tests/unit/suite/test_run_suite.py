"""What makes a run of the suite green: real pytest, in parallel, on a little project of its own."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.run_suite import Outcome, plan, run_suite

ROOT = Path(__file__).resolve().parents[3]

Run = Callable[..., subprocess.CompletedProcess[str]]

PASSES_ALONE = """
import os, pathlib

def test_good():
    pass

def test_weak():
    pathlib.Path("runs").open("a").write("weak ")
    assert "PYTEST_XDIST_WORKER" not in os.environ
"""

FAILS = """
import pathlib

def test_bad():
    pathlib.Path("runs").open("a").write("bad ")
    assert False
"""

KILLS_ITS_WORKER = """
import os

def test_before():
    pass

def test_dies():
    if "PYTEST_XDIST_WORKER" in os.environ:
        with open("died", "a") as file:
            file.write("died ")
        os._exit(1)

def test_after():
    open("after", "w")
"""

BREAKS_AFTER_ITS_CALL = """
import os, pytest

@pytest.fixture
def clean_up():
    yield
    assert "PYTEST_XDIST_WORKER" not in os.environ

def test_that_leaves_a_mess(clean_up):
    pass
"""

SKIPS_WHEN_ALONE = """
import os, pytest

def test_shy():
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("no witness")
    assert False
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Writes the files of a project and runs its suite."""
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin", "PYTHONPATH": str(ROOT)}

    def run_it(*arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
        ours = ("PYTEST_", "STREAMS_PY_TEST")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        (tmp_path / "conftest.py").write_text(
            "from tests.parallel import Sharing\n\n"
            "def pytest_configure(config):\n    config.pluginmanager.register(Sharing())\n"
        )
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        return subprocess.run(
            [sys.executable, "-m", "tests.run_suite", *arguments],
            cwd=tmp_path,
            env=inherited | plugins,
            capture_output=True,
            text=True,
            check=False,
        )

    return run_it


def test_run_is_green_and_names_them_when_all_failed_tests_pass_alone(run: Run, tmp_path: Path) -> None:
    done = run(test_weak=PASSES_ALONE, test_killer=KILLS_ITS_WORKER, test_mess=BREAKS_AFTER_ITS_CALL)
    assert done.returncode == 0, done.stdout
    named = done.stdout.partition("failed under load, passed alone (3):\n")[2].split()
    assert sorted(named) == [
        "test_killer.py::test_dies",
        "test_mess.py::test_that_leaves_a_mess",
        "test_weak.py::test_weak",
    ]
    assert (tmp_path / "runs").read_text() == "weak weak "
    assert (tmp_path / "died").read_text() == "died "  # a test that kills its worker is not tried on the next one
    assert (tmp_path / "after").exists()


def test_run_is_red_when_a_test_fails_alone_too_or_is_skipped_then(run: Run, tmp_path: Path) -> None:
    done = run("--retry", "-n2", "-rA", ".", test_weak=PASSES_ALONE, test_bad=FAILS, test_shy=SKIPS_WHEN_ALONE)
    assert done.returncode == 1, done.stdout
    assert "passed alone (1):\n  test_weak.py::test_weak\n" in done.stdout
    named = done.stdout.partition("failed again (2):\n")[2].split()
    assert sorted(named) == ["test_bad.py::test_bad", "test_shy.py::test_shy"]
    assert sorted((tmp_path / "runs").read_text().split()) == ["bad", "bad", "weak", "weak"]
    second = done.stdout.partition("once more, alone")[2]
    assert "PASSED test_weak.py::test_weak" in second  # -rA holds for it too
    assert "test_good" not in second


def test_modules_are_compiled_once_for_all_processes_of_a_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    done = run(test_compiled="import sys\n\ndef test_it():\n    assert not sys.dont_write_bytecode\n")
    assert done.returncode == 0, done.stdout


def test_run_is_red_when_a_file_cannot_be_read(run: Run) -> None:
    done = run(test_weak=PASSES_ALONE, test_broken="import nothing_of_this_name")
    assert done.returncode != 0
    assert "once more" not in done.stdout


def test_given_files_are_not_run_again(run: Run, tmp_path: Path) -> None:
    assert run("test_bad.py", test_bad=FAILS).returncode == 1
    assert (tmp_path / "runs").read_text() == "bad "


@pytest.mark.parametrize(
    ("arguments", "parallel", "retry"),
    [
        ((), True, True),
        (("--durations=15",), True, False),
        (("--retry", "--durations=15"), True, True),
        (("-m", "slow"), True, False),
        (("tests/unit",), False, False),
        (("tests/unit/test_config.py::test_x", "--retry"), False, True),
        (("-n", "3"), False, False),
        (("--pdb",), False, False),
    ],
)
def test_plan_is_made_from_the_arguments(
    arguments: Sequence[str], parallel: bool, retry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert plan(arguments)[1:] == (parallel, retry)


class Scripted:
    """pytest runs that end as given."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.asked: list[Sequence[str]] = []

    def __call__(self, arguments: Sequence[str]) -> Outcome:
        self.asked.append(arguments)
        return self.outcomes.pop(0)


suite = functools.partial(run_suite, workers=2, retry=True, say=lambda line: None)


def test_run_is_red_when_tests_could_not_be_collected_even_if_pytest_were_content() -> None:
    pytest_runs = Scripted(Outcome(0, broken=("a.py",)))
    assert suite([], pytest_runs) == 1


@pytest.mark.parametrize("status", [2, 3, 4, 5, -9])
def test_what_is_no_failed_test_is_never_repeated(status: int) -> None:
    pytest_runs = Scripted(Outcome(status, ("a::b",)))
    assert suite([], pytest_runs) == status
    assert len(pytest_runs.asked) == 1


def test_run_that_failed_without_a_failed_test_is_red() -> None:
    assert suite([], Scripted(Outcome(1))) == 1


def test_green_run_is_not_repeated() -> None:
    pytest_runs = Scripted(Outcome(0))
    assert suite([], pytest_runs) == 0
    assert pytest_runs.asked == [["-n2"]]


def test_run_is_red_when_the_repetition_did_not_come_to_a_test() -> None:
    assert suite([], Scripted(Outcome(1, ("a", "b")), Outcome(0, (), frozenset({"a"})))) == 1
