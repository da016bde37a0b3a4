"""When a run of the suite passes: real pytest, in parallel, on a small separate project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.run_suite import plan
from tests.shuffling import order_of
from tests.tiers import is_slow

ROOT = Path(__file__).resolve().parents[3]
DEFAULT = "-mnot slow and not weekly"

Run = Callable[..., subprocess.CompletedProcess[str]]

PASSES_ALONE = """
import os, pathlib

def test_good():
    pass

def test_weak():
    pathlib.Path("runs").open("a").write("weak ")
    assert "PYTEST_XDIST_WORKER" not in os.environ
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
import pytest

@pytest.fixture
def clean_up():
    yield
    raise AssertionError

def test_that_leaves_a_mess(clean_up):
    pass
"""

WRITES_ITS_ORDER = """
import pathlib, pytest

@pytest.mark.parametrize("number", range(6))
def test_alone(number):
    pathlib.Path("order").open("a").write(f"alone{number} ")

class TestTogether:
    @pytest.mark.parametrize("number", range(6))
    def test_in_class(self, number):
        pathlib.Path("order").open("a").write(f"class{number} ")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Create an empty project in a folder that contains settings of other projects."""
    (tmp_path / "setup.py").write_text("raise SystemExit('not part of the project')")
    (tmp_path / "conftest.py").write_text("raise SystemExit('not part of the project')")
    (tmp_path / "tox.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pytest.ini").touch()  # stops pytest's search for a project root
    (folder / "conftest.py").write_text(
        "from tests.parallel import Distribution\n\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(Distribution())\n"
    )
    return folder


@pytest.fixture
def run(project: Path) -> Run:
    """Write the files of a project and run its suite."""
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin", "PYTHONPATH": str(ROOT)}

    def run_it(*arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        for name, text in files.items():
            (project / f"{name}.py").write_text(text)
        return subprocess.run(
            [sys.executable, "-m", "tests.run_suite", *arguments],
            cwd=project,
            env=inherited | plugins,
            capture_output=True,
            text=True,
            check=False,
        )

    return run_it


def test_run_is_red_when_tests_fail_that_would_pass_alone(run: Run, project: Path) -> None:
    done = run(test_weak=PASSES_ALONE, test_mess=BREAKS_AFTER_ITS_CALL)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    assert sorted(failed) == ["test_mess.py::test_that_leaves_a_mess", "test_weak.py::test_weak"]
    assert (project / "runs").read_text() == "weak ", "no test runs twice"


def test_run_is_red_and_runs_the_other_tests_when_a_test_kills_its_worker(run: Run, project: Path) -> None:
    done = run("--shuffle=1", "--maxfail=100", test_killer=KILLS_ITS_WORKER)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE) == ["test_killer.py::test_dies"]
    assert (project / "died").read_text() == "died "  # a test that crashes its worker is not repeated on the next one
    assert (project / "after").exists()


def test_modules_are_compiled_once_for_all_processes_of_a_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    done = run(test_compiled="import sys\n\ndef test_it():\n    assert not sys.dont_write_bytecode\n")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_run_is_red_when_a_file_cannot_be_read(workers: str, run: Run) -> None:
    done = run(workers, test_good="def test_good():\n    pass\n", test_broken="import nothing_of_this_name")
    assert done.returncode != 0, done.stdout


def test_order_of_a_run_is_printed_at_its_start_and_can_be_repeated(run: Run, project: Path) -> None:
    orders = []
    seed = ""
    for _ in range(2):
        done = run("-n0", *([f"--shuffle={seed}"] if seed else []), test_order=WRITES_ITS_ORDER)
        assert done.returncode == 0, done.stdout
        first = done.stdout.splitlines()[0]
        assert first.startswith("order of the tests: --shuffle=")
        seed = first.removeprefix("order of the tests: --shuffle=").split()[0]
        orders.append((project / "order").read_text().split())
        (project / "order").unlink()
    assert orders[0] == orders[1]


def test_workers_of_a_parallel_run_have_one_order(run: Run) -> None:
    done = run("-n2", test_order=WRITES_ITS_ORDER, test_other=WRITES_ITS_ORDER)
    assert done.returncode == 0, done.stdout  # xdist rejects workers that collected in different orders
    assert "24 passed" in done.stdout


def test_seeds_give_different_orders_and_keep_classes_together(run: Run, project: Path) -> None:
    seen = set()
    for seed in range(4):
        assert run("-n0", f"--shuffle={seed}", test_order=WRITES_ITS_ORDER).returncode == 0
        order = (project / "order").read_text().split()
        (project / "order").unlink()
        seen.add(tuple(order))
        places = [place for place, name in enumerate(order) if name.startswith("class")]
        assert places == list(range(places[0], places[0] + 6))
    assert len(seen) == 4


def test_order_of_two_tests_does_not_depend_on_the_others() -> None:
    names = [("a.py", f"a.py::test_{number}", f"a.py::test_{number}") for number in range(10)]
    every = sorted(names, key=lambda name: order_of(7, *name))
    some = sorted(names[::3], key=lambda name: order_of(7, *name))
    assert some == [name for name in every if name in some]


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        ((), [DEFAULT, "-n3", "--shuffle=7"]),
        (("--durations=15",), [DEFAULT, "-n3", "--shuffle=7"]),
        (("-m", "slow"), ["-n3", "--shuffle=7"]),
        (("--shuffle=1",), [DEFAULT, "-n3"]),
        (("--shuffle", "1"), [DEFAULT, "-n3"]),
        (("tests/unit",), ["--shuffle=7"]),
        (("tests/unit/config/test_streams_config.py::test_x", "--shuffle=1"), []),
        (("-n", "3"), [DEFAULT, "--shuffle=7"]),
        (("--pdb",), [DEFAULT, "--shuffle=7"]),
    ],
)
def test_plan_is_made_from_the_arguments(
    arguments: Sequence[str], added: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert plan(arguments, workers=3, seed=7) == [*added, *arguments]


@pytest.mark.parametrize(
    ("arguments", "planned"),
    [
        (["--all"], ["-mnot weekly", "-n3", "--shuffle=7"]),
        (["--rest", "--durations=15"], ["-mslow and not weekly", "-n3", "--shuffle=7", "--durations=15"]),
        (["--weekly"], ["-mweekly", "-n3", "--shuffle=7"]),
        (["--weekly", "tests/unit"], ["-mweekly", "--shuffle=7", "tests/unit"]),
    ],
)
def test_option_chooses_the_tier(arguments: list[str], planned: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert plan(arguments, workers=3, seed=7) == planned


@pytest.mark.parametrize(
    ("nodeid", "marks", "slow"),
    [
        ("tests/unit/test_a.py::test_a", [], False),
        ("tests/unit/test_a.py::test_a", ["broker"], True),
        ("tests/contract/test_a.py::test_a[kafka]", ["broker", "smoke"], False),
        ("tests/spark/test_a.py::test_a", [], True),
        ("tests/browser/test_a.py::test_a", ["timeout"], True),
        ("tests/unit/spark/test_a.py::test_a", [], False),
    ],
)
def test_tests_that_need_a_broker_spark_or_a_browser_are_slow(nodeid: str, marks: list[str], slow: bool) -> None:
    assert is_slow(nodeid, marks) == slow
