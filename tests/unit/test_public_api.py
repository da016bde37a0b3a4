"""The public API of the package: complete, and fast to import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest

import streams_py

_HEAVY = ("confluent_kafka", "kafka", "orjson", "pydantic", "rocksdict")


def _loaded_by(statement: str) -> set[str]:
    """Return the top-level modules and our modules that ``statement`` loads in a new process."""
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_nothing_heavy() -> None:
    loaded = _loaded_by("import streams_py")
    assert not loaded & set(_HEAVY)
    assert {name for name in loaded if name.startswith(("streams_py", "streams_protocol"))} == {"streams_py"}


def test_describing_a_topology_loads_no_kafka_client_and_no_store() -> None:
    loaded = _loaded_by(
        "from streams_py import StreamsBuilder, serdes; "
        "StreamsBuilder().stream('in', key=serdes.STRING, value=serdes.JSON).to('out')"
    )
    assert not loaded & {"confluent_kafka", "kafka", "rocksdict"}


def test_looking_kafka_streams_up_loads_no_kafka_client_and_no_store() -> None:
    loaded = _loaded_by("from streams_py import KafkaStreams")
    assert not loaded & {
        *_HEAVY,
        "asyncio",
        "streams_py.config.streams_config",
        "streams_py.state.opening.stores",
        "streams_py.leader",
    }


@pytest.mark.parametrize("name", streams_py.__all__)
def test_public_name_loads(name: str) -> None:
    value = getattr(streams_py, name)
    assert getattr(streams_py, name) is value
    assert name in dir(streams_py)


def test_front_page_shows_a_program_that_works_and_names_what_is_there() -> None:
    page = streams_py.__doc__ or ""
    program = re.search(r"\n\n((?:    .*\n|\n)+)", page)
    assert program is not None
    names: dict[str, Any] = {"__name__": "front page"}
    exec(textwrap.dedent(program[1]), names)
    assert names["builder"].build().source_topics("words")
    named = re.findall(r":class:`(?:streams_py\.testing\.)?(\w+)`", page)
    assert len(named) > 8
    assert [name for name in named if name not in streams_py.__all__] == ["TopologyTestDriver"]


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="KafkaStream'"):
        getattr(streams_py, "KafkaStream")  # noqa: B009  # a type checker would refuse the plain form


def test_every_public_name_stands_once_in_the_stub_and_nothing_else_does() -> None:
    stub = Path(streams_py.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    tree = ast.parse(stub)
    names = [alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(names) == sorted(set(names)) == streams_py.__all__
    assert stub.count(" import ") == len(names), "nothing that the front door would not see"


def test_every_error_that_users_see_is_public() -> None:
    from streams_py import errors

    control = {
        "BatchRefusedError",
        "OffsetOutOfRangeError",
        "RecordsExpiredError",
        "TaskCorruptedError",
        "TaskMigratedError",
    }  # internal interfaces of the runtime
    assert {name for name in errors.__all__ if not hasattr(streams_py, name)} == control


@pytest.mark.parametrize("package", ["adapters", "runtime", "serdes", "state", "topology"])
def test_what_runs_an_application_raises_errors_of_that_page_and_no_private_ones(package: str) -> None:
    classes = {
        node.name
        for path in Path(streams_py.__path__[0], package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error")
    }
    ending_where_they_are_waited_for = {"GroupNotStoredError", "InboxClosedError", "_OverrunError", "_RefusedError"}
    assert classes - ending_where_they_are_waited_for <= {"UnfitError", "_UndefinedError"}, (
        "a ValueError and a TypeError to users"
    )


def test_names_of_the_assignment_package_are_those_of_its_modules() -> None:
    from streams_py import assignment

    assert "TaskAssignor" in assignment.__all__
    for name in assignment.__all__:
        assert hasattr(assignment, name)


_PUBLIC = (
    "assignment",
    "backtest",
    "connect.api",
    "errors",
    "metrics",
    "query",
    "serdes",
    "spark",
    "telemetry",
    "testing",
)
_ROOT = Path(streams_py.__file__).parent.parent


def _imports() -> list[tuple[str, str]]:
    """Yield the imports of examples and of the pages' Python blocks: file or page, and ``module:name``."""
    sources = [(path, path.read_text(encoding="utf-8")) for path in sorted((_ROOT / "examples").rglob("*.py"))]
    for page in (_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))):
        blocks = re.findall(r"^```python[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        sources += [(page, block) for block in blocks]
    return [
        (path.relative_to(_ROOT).as_posix(), f"{node.module}:{alias.name}")
        for path, source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streams_p")
        for alias in node.names
    ]


def test_examples_and_pages_import_public_names_only() -> None:
    imports = _imports()
    assert ("examples/custom_assignor.py", "streams_py:create_topics") in imports
    for where, imported in imports:
        module, _, name = imported.partition(":")
        assert module == "streams_py" or module.startswith(tuple(f"streams_py.{public}" for public in _PUBLIC)), where
        if not module.startswith("streams_py.spark"):  # which is optional
            assert name in import_module(module).__all__, f"{where}: {imported}"


def test_version_is_that_of_the_distribution_and_costs_nothing_until_asked() -> None:
    assert streams_py.__version__ == metadata.version("kafka-streams-py")


def test_package_runs_as_the_command() -> None:
    output = subprocess.run(
        [sys.executable, "-m", "streams_py", "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert output == f"kafka-streams-py {streams_py.__version__}\n"
