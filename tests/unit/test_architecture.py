"""Architecture rules that a machine can check: allowed imports, and a core without side effects.

import-linter checks the contracts between our packages (pyproject.toml). This file checks the source text for rules
that a contract cannot express.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGE = _ROOT / "streams_py"
_CORE = ("topology", "assignment", "leader", "member")

# Modules of the standard library that have side effects.
_WORLDLY = {
    "asyncio", "concurrent", "fcntl", "ftplib", "glob", "http", "multiprocessing", "os", "pathlib", "queue", "random",
    "sched", "secrets", "select", "selectors", "shutil", "signal", "socket", "socketserver", "sqlite3", "ssl",
    "subprocess", "sys", "tempfile", "threading", "time", "urllib",
}  # fmt: skip
_WORLDLY_CALLS = {
    "open", "input", "print", "exec", "eval",
    "uuid.uuid1", "uuid.uuid4", "uuid1", "uuid4",
    "datetime.now", "datetime.utcnow", "datetime.today", "date.today",
}  # fmt: skip

# Exceptions by module, with the reasons.
_ALLOWED: dict[str, dict[str, str]] = {
    "streams_py/assignment/assignors/static.py": {
        "datetime.now": "default of an injectable clock: KIP-924's follow-up deadline is an instant"
    },
    "streams_py/topology/operators/stateless.py": {"sys": "KStream.print without a file writes to standard output"},
}

_CLIENTS = {"kafka", "confluent_kafka"}


def _modules(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (_PACKAGE / package).rglob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(_ROOT).as_posix()


def _imported(tree: ast.AST) -> Iterator[str]:
    """Return the top-level packages imported anywhere in a module, including inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


def _called(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield ast.unparse(node.func)


def _worldly(source: str) -> set[str]:
    """Return the uses of a module that a pure module must not have."""
    tree = ast.parse(source)
    return {name for name in _imported(tree) if name in _WORLDLY} | {
        name for name in _called(tree) if name in _WORLDLY_CALLS
    }


def test_import_contracts_are_kept() -> None:
    done = subprocess.run(  # a separate process, because import-linter configures logging
        [Path(sys.executable).parent / "lint-imports", "--config", "pyproject.toml", "--no-cache", "--no-logo"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("module", _modules(*_CORE), ids=_name)
def test_core_module_does_not_touch_the_world(module: Path) -> None:
    used = _worldly(module.read_text(encoding="utf-8"))
    assert used <= set(_ALLOWED.get(_name(module), {}))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", {"time"}),
        ("def f():\n    from os.path import join", {"os"}),
        ("import uuid\nx = uuid.uuid4()", {"uuid.uuid4"}),
        ("from datetime import datetime\nx = datetime.now()", {"datetime.now"}),
        ("x = open('file')", {"open"}),
        ("from uuid import UUID\nx = UUID(int=1)", set()),
    ],
)
def test_purity_check_notices_what_it_should(source: str, found: set[str]) -> None:
    assert _worldly(source) == found


def test_wire_formats_import_the_standard_library_only() -> None:
    for module in (_ROOT / "protocol" / "streams_protocol").glob("*.py"):
        foreign = set(_imported(ast.parse(module.read_text(encoding="utf-8")))) - sys.stdlib_module_names
        assert not foreign, f"{module.name} imports {foreign}"


def test_only_adapters_and_the_test_kit_import_a_kafka_client() -> None:
    importing = {
        module.relative_to(_PACKAGE).parts[0]
        for module in _PACKAGE.rglob("*.py")
        if _CLIENTS & set(_imported(ast.parse(module.read_text(encoding="utf-8"))))
    }
    assert importing == {"adapters", "registry", "testing"}  # the registry's client connects to no broker


def test_adapters_do_not_know_the_factory_of_clients() -> None:
    """Not as text either: starting a program by name would be an import that no contract detects."""
    assert [_name(path) for path in _modules("adapters") if "streams_py.clients" in path.read_text("utf-8")] == []


def test_what_is_installed_does_not_import_the_tests_and_benchmarks_of_the_repository() -> None:
    for module in _PACKAGE.rglob("*.py"):
        imported = set(_imported(ast.parse(module.read_text(encoding="utf-8"))))
        assert not imported & {"tests", "benchmarks", "examples"}, _name(module)


def test_rocksdb_is_imported_in_one_folder() -> None:
    importing = {
        _name(module).rpartition("/")[0]
        for module in _PACKAGE.rglob("*.py")
        if "rocksdict" in set(_imported(ast.parse(module.read_text(encoding="utf-8"))))
    }
    assert importing == {"streams_py/state/disk"}


def test_http_services_are_served_in_one_folder() -> None:
    """A separate server would lack the limits of connections, time and memory, and the check of host names."""
    importing = {
        _name(module).rpartition("/")[0]
        for module in _PACKAGE.rglob("*.py")
        if {"uvicorn", "h11", "socketserver"} & set(_imported(ast.parse(module.read_text(encoding="utf-8"))))
    }
    assert importing == {"streams_py/http"}


def test_nothing_is_pickled() -> None:
    for module in (*_PACKAGE.rglob("*.py"), *(_ROOT / "protocol" / "streams_protocol").glob("*.py")):
        imported = set(_imported(ast.parse(module.read_text(encoding="utf-8"))))
        assert not imported & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, _name(module)


_LONG = {
    "streams_py/state/disk/store.py": "one store with its reads, scans and errors",
    "streams_py/adapters/confluent/producer.py": "one class around librdkafka's producer; to be cut with adapters/",
    "streams_py/adapters/confluent/transactional_producer.py": "one class, the producer with transactions",
    "streams_py/adapters/kafka_python/classic/coordinator.py": "one class of kafka-python; to be cut with adapters/",
    "streams_py/history/bootstrap.py": "the plan of a warm start with its checks, and a table of all its fields",
    "streams_py/runtime/wiring/shared.py": "the wiring of a client; to be cut with the layout of runtime/",
    "streams_py/runtime/client/kafka_streams.py": "the public client; to be cut with the layout of runtime/",
    "streams_py/runtime/tasks/active_task.py": "one task and its services; to be cut with the layout of runtime/",
    "streams_py/runtime/global_thread/global_thread.py": "one thread with its stores; to be cut with runtime/",
    "streams_py/state/caching/cached.py": "one class of which each method needs the order of use",
    "streams_py/state/directory/state_directory.py": "one directory with its locks",
    "streams_py/state/tasks/task_stores.py": "all that a task's stores have in common; to be cut with seam 6",
    "tests/unit/runtime/world.py": "one cluster in memory with all of its clients",
    "tests/spark/test_history_commands.py": "all commands over a history, on one set of topics",
}
"""Files of more than 500 lines, each with the reason. Do not squeeze lines to get a file off this list."""


def test_file_of_more_than_500_lines_has_a_reason() -> None:
    folders = ("streams_py", "protocol", "tests", "benchmarks")
    modules = [path for folder in folders for path in (_ROOT / folder).rglob("*.py")]
    assert len(modules) > 1000
    assert {_name(path) for path in modules if path.read_text(encoding="utf-8").count("\n") > 500} == _LONG.keys()


_PREFIX_TEXT = re.compile(r"(main|restore|global)\.consumer\.|assignment\.events\.producer\.")
_PREFIX_ALONE = re.compile(r"(consumer|producer|admin)\.")


def _client_prefixes(source: str) -> list[str]:
    """Return the string constants that are prefixes of client settings, or contain a special one."""
    texts = (
        node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant) and type(node.value) is str
    )
    return [text for text in texts if _PREFIX_TEXT.search(text) or _PREFIX_ALONE.fullmatch(text)]


def test_prefixes_of_client_settings_are_known_to_the_configuration_alone() -> None:
    """Other modules name a ``ClientRole``. A Connect worker has its own configuration and prefixes."""
    found = {_name(path) for path in _modules(".") if _client_prefixes(path.read_text(encoding="utf-8"))}
    found = {name for name in found if not name.startswith("streams_py/config/")}
    assert found == {"streams_py/connect/settings.py", "streams_py/connect/worker/clients.py"}


def test_check_of_prefixes_notices_them() -> None:
    source = 'x = ("consumer.", "main.consumer.x", f"restore.consumer.{x}", "the producer.", "admin")'
    assert _client_prefixes(source) == ["consumer.", "main.consumer.x", "restore.consumer."]


_READ_HEADERS = {
    "streams_py/ports/record_headers.py": "the place",
    "streams_py/runtime/tasks/record/loop.py": "after it has made the headers of the batch readable",
}


def test_headers_of_records_are_read_in_one_place() -> None:
    """A client's own ``headers()`` leaves an exception pending when a name is not UTF-8."""
    found = [
        f"{_name(path)}:{node.lineno}"
        for path in _modules(".")
        if _name(path) not in _READ_HEADERS
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Call) and not node.args and ast.unparse(node.func).endswith(".headers"))
        or (isinstance(node, ast.Attribute) and ast.unparse(node) == "Message.headers")
    ]
    assert found == []


_THROUGH_LOOP = re.compile(r"\.loop\.parts\b|\bloop\.parts\.")


def test_no_module_reaches_through_the_loop_of_a_stream_thread() -> None:
    """A stream thread answers questions about its tasks, restoration and membership."""
    found = [
        f"{_name(path)}:{number}"
        for path in _modules(".")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _THROUGH_LOOP.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "reaches"),
    [("thread.loop.parts.updater.figures", True), ("parts = thread.loop.parts", True), ("parts = loop.parts", False)],
)
def test_check_for_reaching_through_a_loop_notices_it(line: str, reaches: bool) -> None:
    assert bool(_THROUGH_LOOP.search(line)) is reaches
