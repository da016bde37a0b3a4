"""Private names of the package that tests use: each use says why.

A test that reaches into a private attribute breaks when the code is rearranged, although its behaviour is the same. A
test has a reason if it sets up what no public call can, such as a failure at one step. The comment on the line, or
above it, gives this reason. A constant that a test replaces needs no comment: its name and its new value say that a
limit or a time is made small.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]

_PUBLIC = ("KafkaError._", "confluent_kafka.KafkaError._", "os._exit", "sys._getframe")
"""Documented names of libraries: error codes, such as ``KafkaError._TIMED_OUT``, and functions."""
_OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in _OF_NAMED_TUPLES


def _own_names(tree: ast.AST) -> set[str]:
    """Return the names that a file defines itself: functions, classes, variables, and attributes of ``self``."""
    own: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_of_self(node):
            own.add(node.attr)
    return own


def _is_of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}


def _private_uses(tree: ast.AST) -> Iterator[ast.Attribute | ast.Call | ast.ImportFrom]:
    """Return the places that use a private name of another file: as an attribute, as a text, or by an import."""
    own = _own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
            if not _is_of_self(node) and not ast.unparse(node).startswith(_PUBLIC):
                yield node
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("setattr", "getattr", "delattr")):
            texts = [value.value for value in node.args[:2] if isinstance(value, ast.Constant)]
            names = [text.rpartition(".")[2] for text in texts if isinstance(text, str)]
            if any(_is_private(name) and not name.isupper() for name in names):  # a constant: see the docstring
                yield node
        elif isinstance(node, ast.ImportFrom) and any(_is_private(alias.name) for alias in node.names):
            yield node


_WITHOUT_REASON = re.compile(r"#\s*(type: ignore\[[^\]]*\]|noqa(: [A-Z0-9, ]+)?|fmt: \w+|pragma: .*)")


def _reasons(source: str) -> tuple[set[int], set[int]]:
    """Return the lines with a comment that says something, and those with nothing else."""
    commented, alone = set(), set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and _WITHOUT_REASON.sub("", token.string).strip("# "):
            commented.add(token.start[0])
            if not token.line[: token.start[1]].strip():
                alone.add(token.start[0])
    return commented, alone


def _unexplained(source: str) -> list[int]:
    """Return the lines with a private use and without a reason, one for each use."""
    tree = ast.parse(source)
    commented, alone = _reasons(source)
    statements = {id(part): node for node in ast.walk(tree) if isinstance(node, ast.stmt) for part in _parts(node)}
    lines = []
    for node in _private_uses(tree):
        first = statements[id(node)].lineno
        if first - 1 not in alone and not commented & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)):
            lines.append(node.lineno)
    return lines


def _parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """Return a statement and its expressions, without the statements inside it."""
    yield statement
    waiting = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt))


def test_private_names_are_used_with_a_reason() -> None:
    files = [path for folder in ("tests", "protocol/tests") for path in (_ROOT / folder).rglob("*.py")]
    assert len(files) > 500
    assert not [
        f"{path.relative_to(_ROOT).as_posix()}:{line} uses a private name; say why in a comment on the line or above it"
        for path in files
        for line in _unexplained(path.read_text("utf-8"))
    ]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("task._stores.close()", [1]),
        ("task._stores.close()  # a disk that fails", []),
        ("# a disk that fails\ntask._stores.close()", []),
        ("# a disk that fails\n\ntask._stores.close()", [3]),
        ("task._stores.close()  # type: ignore[attr-defined]", [1]),
        ("task._stores.close()  # type: ignore[attr-defined]  # a disk that fails", []),
        ("if task._a:\n    task._b = 1  # why", [1]),
        ("call(\n    task._a,\n    task._b,  # why\n)", [2]),
        ("monkeypatch.setattr(database, '_attempt', die)", [1]),
        ("monkeypatch.setattr('streams_py.state.disk._open', die)", [1]),
        ("monkeypatch.setattr('streams_py.state.disk._WAIT_S', 3)", []),
        ("wait_s = disk._WAIT_S", [1]),
        ("from streams_py.serdes.json import _Json", [1]),
        ("class Fake:\n    def __init__(self):\n        self._a = 1\n\nassert Fake()._a", []),
        ("self._a()", []),
        ("error = KafkaError._TIMED_OUT", []),
        ("row._replace(a=1)", []),
        ("x.__class__", []),
    ],
)
def test_uses_of_private_names_are_found(source: str, lines: list[int]) -> None:
    assert _unexplained(source) == lines
