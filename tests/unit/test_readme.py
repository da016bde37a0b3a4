"""The promises of the pages: code blocks that work, and commands and files that exist."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from docs.tools.generated import GENERATED
from streams_protocol.types import ProcessId, TaskId
from streams_py import KafkaStreams, Topology
from streams_py.assignment import AssignmentError, validate_task_assignment

_ROOT = Path(__file__).resolve().parents[2]
_PAGES = (
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md", "protocol/README.md"),
    *sorted(page.relative_to(_ROOT).as_posix() for page in (_ROOT / "docs").rglob("*.md")),
)
_README = (_ROOT / "README.md").read_text(encoding="utf-8")
_BENCHMARKS = (_ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
_COMPATIBILITY = (_ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
_FEATURES = (_ROOT / "docs" / "features.md").read_text(encoding="utf-8")
_INSTALLATION = (_ROOT / "docs" / "installation.md").read_text(encoding="utf-8")


def _blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of one language; "" for blocks without a language."""
    fenced = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [block for found, block in fenced if found == language]


def _run(block: str) -> dict[str, object]:
    names: dict[str, object] = {"__name__": "readme"}
    exec(compile(block, "README.md", "exec", dont_inherit=True), names)
    return names


def _block_with(text: str, page: str = _README) -> str:
    (block,) = [block for block in _blocks(page, "python") if text in block]
    return block


def test_application_describes_a_topology_and_a_configuration_that_are_accepted(tmp_path: Path) -> None:
    names = _run(_block_with("word-counts"))
    topology = names["builder"].build()  # type: ignore[attr-defined]  # a builder, as the page says
    assert isinstance(topology, Topology)
    assert set(topology.source_topics("word-count")) == {"KSTREAM-SOURCE-0000000000", "counts-repartition-source"}
    config = {**names["config"], "bootstrap.servers": "localhost:1", "state.dir": str(tmp_path)}  # type: ignore[dict-item]
    clients = SimpleNamespace(close=lambda: None, group_admin=None)
    assert KafkaStreams(topology, config, clients=clients).close()  # type: ignore[arg-type]


def test_application_of_the_page_is_the_example() -> None:
    def pipeline(text: str) -> str:
        return re.sub(r"\s", "", text[text.index(".flat_map_values") : text.index(".to(")])

    example = (_ROOT / "examples" / "word_count" / "app.py").read_text(encoding="utf-8")
    assert pipeline(_block_with("word-counts")) == pipeline(example)


def test_application_is_about_twenty_lines() -> None:
    assert len([line for line in _block_with("word-counts").splitlines() if line.strip()]) <= 20


def test_assignor_of_the_page_gives_a_valid_assignment() -> None:
    assignor = _run(_block_with("TaskAssignor", _FEATURES))["InTurn"]()  # type: ignore[operator]  # a class, as the page says
    processes = [ProcessId(uuid.UUID(int=number)) for number in (1, 2)]
    tasks = [TaskId(subtopology, partition) for subtopology in (0, 1) for partition in range(3)]
    state = SimpleNamespace(
        kafka_streams_states=lambda: dict.fromkeys(processes), all_tasks=lambda: dict.fromkeys(tasks)
    )
    answer = assignor.assign(state)
    assert validate_task_assignment(state, answer) is AssignmentError.NONE  # type: ignore[arg-type]  # as far as asked
    assert [len(given.tasks) for given in answer.assignment] == [3, 3]


def test_assignor_of_the_page_passes_a_strict_type_checker(tmp_path: Path) -> None:
    (tmp_path / "in_turn.py").write_text(_block_with("TaskAssignor", _FEATURES))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", str(tmp_path / "in_turn.py")],  # as strict as for our code
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


def test_page_is_named_like_the_distribution() -> None:
    assert _README.startswith("# kafka-streams-py\n")


def test_page_names_no_other_distribution_to_install() -> None:
    for page in _PAGES:
        installed = re.findall(r"pip install '?([a-z][\w-]*)", (_ROOT / page).read_text(encoding="utf-8"))
        assert set(installed) <= {"kafka-streams-py"}, page


def test_test_of_the_page_passes() -> None:
    _run(_block_with("TopologyTestDriver"))


@pytest.mark.parametrize("page", _PAGES)
def test_python_blocks_compile(page: str) -> None:
    for block in _blocks((_ROOT / page).read_text(encoding="utf-8"), "python"):
        compile(block, page, "exec")


@pytest.mark.parametrize("page", _PAGES)
def test_linked_and_named_files_exist(page: str) -> None:
    text = (_ROOT / page).read_text(encoding="utf-8")
    folder = (_ROOT / page).parent
    linked = [target for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if "://" not in target]
    made = {(_ROOT / "docs" / name).resolve() for name in GENERATED}
    assert [name for name in linked if not (folder / name).exists() and (folder / name).resolve() not in made] == []
    named = {name for name in re.findall(r"`([\w./-]+\.(?:py|toml|md|yml|lock))`", text) if "*" not in name}
    written = set(re.findall(r'title="([^"]*)"', text))  # created by the page itself
    assert [name for name in sorted(named - written) if not _exists(name, folder)] == []


def _exists(name: str, folder: Path) -> bool:
    """Whether a file exists. Names are relative to the page, to the root, or to a folder that the sentence mentions."""
    if any((base / name).exists() for base in (folder, _ROOT)):
        return True
    return any(any((_ROOT / top).glob(f"**/{name}")) for top in ("streams_py", "protocol", "examples"))


def test_pages_name_commands_of_run_py_that_exist() -> None:
    listed = subprocess.run(
        [sys.executable, _ROOT / "run.py", "--help"], capture_output=True, text=True, check=True
    ).stdout
    known = set(re.findall(r"^  (\w+) ", listed, flags=re.MULTILINE))
    for page in _PAGES:
        used = set(re.findall(r"python3 run\.py (\w+)", (_ROOT / page).read_text(encoding="utf-8")))
        assert used <= known, page


@pytest.mark.parametrize("page", _PAGES)
def test_pages_name_modules_that_can_be_run(page: str) -> None:
    text = (_ROOT / page).read_text(encoding="utf-8")
    made = tuple(f"{name}." for name in re.findall(r"streams-py new app (\w+)", text))
    for module in re.findall(r"python -m ([\w.]+)", text):
        if made and module.startswith(made):
            continue
        spec = importlib.util.find_spec(module)
        assert spec is not None, module
        assert spec.submodule_search_locations is None or importlib.util.find_spec(f"{module}.__main__"), module


def test_compose_profile_and_ports_of_the_page_are_those_of_the_file() -> None:
    compose = (_ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert "profiles: [cluster]" in compose
    ports = set(re.findall(r"localhost:(\d{4})", _README + _INSTALLATION))
    assert len(ports) == 4
    for port in ports:
        assert f"127.0.0.1:{port}:{port}" in compose


def test_conformance_command_of_the_page_finds_the_vectors() -> None:
    from tests.conformance.command import vector_files

    (line,) = re.findall(r"conformance (.+)", _block_of_conformance())
    assert len(vector_files([_ROOT / path for path in line.split()])) > 20


def _block_of_conformance() -> str:
    (block,) = [block for block in _blocks(_COMPATIBILITY, "sh") if "conformance" in block]
    return block


def test_messages_that_the_operations_page_explains_are_messages_of_ours() -> None:
    page = (_ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.partition("\n## What does a log message mean?\n")[2].partition("\n## ")[0]
    quoted = re.findall(r"\*\*`([^`]*)`\*\*", " ".join(section.split()))
    pieces = [piece.strip() for text in quoted for piece in text.split("...") if piece.strip()]
    ours = "\n".join(module.read_text(encoding="utf-8") for module in (_ROOT / "streams_py").rglob("*.py"))
    theirs = {os.strerror(errno.EMFILE)}
    assert len(pieces) >= 60
    assert [piece for piece in pieces if piece not in ours and piece not in theirs] == []


@pytest.mark.parametrize(
    ("page", "figures"),
    [
        ("guides/tuning.md", r"\| ([\d,]+) \||in (\d+ ms) (?:when|after)|takes (\d[\d.]+ s) and"),
        ("guides/from-quix.md", r"runs ([\d.]+) times|changelog ([\d.]+) times"),
    ],
    ids=["tuning", "from-quix"],
)
def test_measured_figures_of_a_page_are_in_the_benchmarks(page: str, figures: str) -> None:
    text = " ".join((_ROOT / "docs" / page).read_text(encoding="utf-8").split())
    found = ["".join(groups) for groups in re.findall(figures, text)]
    assert len(found) >= 2
    assert [figure for figure in found if figure not in _BENCHMARKS] == [], "benchmarks.md has other figures"
