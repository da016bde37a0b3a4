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
    "one function per keyword": ("registry/json_schema_keywords.py",),
    "the estimates of a parsed pattern, and its graph": ("system/bounded_patterns.py",),
    "one class whose methods share its state": (
        "adapters/confluent/admin.py",
        "adapters/confluent/consumer.py",
        "adapters/confluent/producer.py",
        "adapters/confluent/transactional_producer.py",
        "adapters/kafka_python/classic/coordinator.py",
        "adapters/kafka_python/classic/membership.py",
        "connect/group/member.py",
        "connect/rest/app.py",
        "connect/worker/herder.py",
        "connect/worker/worker.py",
        "events/emitter.py",
        "runtime/commit/committer.py",
        "runtime/commit/open_transactions.py",
        "runtime/restore/updater.py",
        "runtime/tasks/active_task.py",
        "runtime/tasks/asynchronous/in_flight.py",
        "runtime/tasks/record/loop.py",
        "runtime/tasks/record/sinks.py",
        "runtime/tasks/task_table.py",
        "runtime/thread/loop.py",
        "state/caching/cached.py",
        "state/directory/state_directory.py",
        "state/disk/database.py",
        "state/disk/store.py",
        "state/snapshots/snapshots.py",
        "state/stores/key_value.py",
        "state/tasks/global_stores.py",
        "state/tasks/task_stores.py",
        "state/windowed/entries.py",
        "telemetry/fold.py",
        "testing/torture/run.py",
        "topology/physical/assembly.py",
    ),
    "a class of users, documented in place": (
        "config/streams_config.py",
        "runtime/client/kafka_streams.py",
        "testing/driver.py",
        "topology/dsl/builder.py",
        "topology/dsl/kstream.py",
        "topology/dsl/ktable.py",
        "topology/topology.py",
    ),
    "many small types that are read together": (
        "assignment/api.py",
        "connect/api.py",
        "errors.py",
        "events/model.py",
        "runtime/tasks/settings/handlers.py",
        "state/reading/typed_queries.py",
        "topology/declare/nodes.py",
        "topology/declare/processor.py",
        "topology/declare/stores.py",
        "topology/logical/graph.py",
        "topology/operators/stateless.py",
        "topology/operators/tables.py",
    ),
    "a format, its reader beside its writer": (
        "connect/stores/configs.py",
        "events/parts.py",
        "serdes/json.py",
        "protocol/streams_protocol/assignment_info.py",
        "protocol/streams_protocol/buffer.py",
        "protocol/streams_protocol/subscription_info.py",
    ),
    "a list of settings, options or cases, each in a few lines": (
        "adapters/confluent/settings.py",
        "adapters/security/settings.py",
        "backtest/what_if.py",
        "config/fields.py",
        "serdes/members.py",
        "spark/kafka/options.py",
        "system/private_files.py",
        "topology/upgrade/check.py",
    ),
    "one algorithm": (
        "adapters/confluent/bulk/range_reader.py",
        "assignment/assignors/movement_queue.py",
        "assignment/assignors/static_rules.py",
        "assignment/assignors/sticky_placement.py",
        "backtest/kernel.py",
        "events/tasks.py",
        "leader/leader.py",
        "member/member.py",
        "runtime/tasks/record/binding.py",
        "topology/operators/windowed_joins.py",
    ),
    "a report, from its first line to its last": (
        "backtest/summary.py",
        "backtest/verdict.py",
        "telemetry/report/page.py",
    ),
    "commands on one subject, with the help of their options": ("cli/spark/backtest.py", "cli/spark/bootstrap.py"),
    "one implementation of a port or of an interface of Spark, with its parts": (
        "adapters/confluent/connect_clients.py",
        "adapters/confluent/embedded/cluster.py",
        "spark/kafka/source.py",
    ),
    "the steps of one job": (
        "spark/backtest.py",
        "spark/history/inputs.py",
        "spark/history/run.py",
        "spark/history/sinks.py",
        "spark/telemetry.py",
    ),
    "one part of the simulated world": (
        "testing/simulator/models/consumer.py",
        "testing/simulator/models/coordinator.py",
        "testing/simulator/run.py",
        "testing/simulator/thread.py",
        "testing/simulator/world.py",
    ),
    "one benchmark with its processes": (
        "benchmarks/connect.py",
        "benchmarks/records.py",
        "benchmarks/recovery.py",
        "benchmarks/spark_history.py",
        "benchmarks/takeover.py",
    ),
}
"""Files of more than 300 lines, by the reason why they stay whole. Paths without a root are in ``streams_py``.

Do not squeeze lines to get a file off this list. A file that holds two ideas becomes two files.
"""

_LONG_TESTS = {"tests/support/runtime/world.py": "one cluster in memory with all of its clients"}
"""Test files of more than 500 lines, each with the reason."""


def _longer_than(lines: int, *folders: str) -> set[str]:
    modules = [path for folder in folders for path in (_ROOT / folder).rglob("*.py")]
    assert len(modules) > 100
    return {_name(path) for path in modules if path.read_text(encoding="utf-8").count("\n") > lines}


def _listed(by_reason: dict[str, tuple[str, ...]]) -> set[str]:
    paths = [path for paths in by_reason.values() for path in paths]
    assert len(paths) == len({*paths})
    return {path if path.startswith(("protocol/", "benchmarks/")) else f"streams_py/{path}" for path in paths}


def test_file_of_more_than_300_lines_has_a_reason() -> None:
    assert _longer_than(300, "streams_py", "protocol/streams_protocol", "benchmarks") == _listed(_LONG)


def test_test_of_more_than_500_lines_has_a_reason() -> None:
    assert _longer_than(500, "tests", "protocol/tests") == _LONG_TESTS.keys()


_LONG_FUNCTIONS = {
    "the options and the help of a command": (
        "cli/development/simulating.py:simulate",
        "cli/spark/backtest.py:backtest",
    ),
    "closures of the record path that share local names": (
        "state/caching/cached_timestamped.py:CachedTimestampedStore.updater",
        "topology/operators/sessions.py:SessionAggregate.bind",
        "topology/operators/suppress.py:Suppress.bind",
        "topology/operators/windowed_joins.py:StreamJoin.bind",
    ),
    "one round with its whole contract": ("connect/assignment/leader.py:GroupLeader.lead",),
    "the steps of Kafka's class in their order": (
        "connect/assignment/cooperative.py:CooperativeAssignor.assign",
        "leader/steps/decode.py:decode_group",
    ),
    "to be shortened": ("state/opening/stores.py:open_store", "state/windowed/entries.py:WindowedEntries._scan_time"),
}
"""Functions of more than 60 lines, by reason. Remove a function from the list when it has become shorter."""

_MANY_PARAMETERS = {
    "options of a server, each with its default": ("http/service.py:HttpService",),
    "the settings of a simulated consumer, most of them numbers": (
        "testing/simulator/models/consumer.py:SimulatedConsumer",
    ),
}
"""Classes whose hand-written constructor has more than 8 parameters, by reason."""


def _sizes() -> Iterator[tuple[str, int, int]]:
    """Yield each function as ``path:Class.name`` with its lines, and its parameters if it is a constructor, or else 0.

    The constructor that ``@dataclass`` writes is a list of fields, and does not count.
    """

    def walk(node: ast.AST, where: str) -> Iterator[tuple[str, int, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                given = child.args
                count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
                lines = (child.end_lineno or child.lineno) - child.lineno + 1
                yield where + child.name, lines, count if child.name == "__init__" else 0
            inside = f"{where}{child.name}." if isinstance(child, ast.ClassDef) else where
            yield from walk(child, inside)

    for module in (*_modules("."), *(_ROOT / "protocol/streams_protocol").rglob("*.py")):
        yield from walk(ast.parse(module.read_text(encoding="utf-8")), f"{_name(module)}:")


def test_function_has_at_most_60_lines_or_a_reason() -> None:
    assert {name for name, lines, _ in _sizes() if lines > 60} == _listed(_LONG_FUNCTIONS)


def test_constructor_has_at_most_8_parameters_or_a_reason() -> None:
    found = {name.removesuffix(".__init__") for name, _, parameters in _sizes() if parameters > 8}
    assert found == _listed(_MANY_PARAMETERS)


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
    [("thread.loop.parts.updater.metrics", True), ("parts = thread.loop.parts", True), ("parts = loop.parts", False)],
)
def test_check_for_reaching_through_a_loop_notices_it(line: str, reaches: bool) -> None:
    assert bool(_THROUGH_LOOP.search(line)) is reaches


def _modules_imported_by(path: Path) -> Iterator[str]:
    """Return the full names of all modules and names that a file below the root imports, anywhere in it."""
    package = path.relative_to(_ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *([node.module] if node.module else [])))
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def test_what_tests_share_is_in_tests_support() -> None:
    """A test module that no other module imports can be moved, split or deleted alone."""
    found = [
        f"{_name(path)}: {module}"
        for folder in ("tests", "benchmarks", "docs")
        for path in (_ROOT / folder).rglob("*.py")
        for module in _modules_imported_by(path)
        if re.match(r"tests\..*\b(test_\w+|conftest)$", module) and (_ROOT / f"{module.replace('.', '/')}.py").is_file()
    ]
    assert found == []


_NO_ROOM_IN_THE_PACKAGE = {
    "conformance": "the command of tests/conformance",
    "fuzz": "the fuzzer of tests/support/fuzz",
    "suite": "run.py, and the plug-ins and checks of tests",
}
"""Folders of tests/unit that do not exist in the package, each with what its files test."""


def test_unit_test_is_in_the_folder_of_the_package_that_it_tests() -> None:
    """The folder of a test says which part of the package it tests."""
    unit = _ROOT / "tests/unit"
    folders = {path.parent.relative_to(unit).as_posix() for path in unit.rglob("test_*.py")}
    assert {folder for folder in folders if not (_PACKAGE / folder).is_dir()} == _NO_ROOM_IN_THE_PACKAGE.keys()
