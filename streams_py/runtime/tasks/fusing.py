"""One function for a chain of stateless nodes.

Nested calls cost a record two Python calls per node: the node's and the user's. A chain of nodes that do nothing but
call the user's function is written out as the body of one function instead, with one statement per node:

    try:
        value = f0(value)
        if not f1(key, value): return
        key, value = f2(key, value)
    except Exception as error:
        failed(error, key, value, timestamp_ms)
        return
    forward(key, value, timestamp_ms)

What fails is told by the line that it failed in; key and value are then still those that the failing node got.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from streams_py.topology.nodes import Process
from streams_py.topology.operators import stateless

__all__ = ["Link", "fused"]

_FIRST_LINE: Final = 4
"""Of the statements."""


Link: TypeAlias = tuple[stateless.Statement, Callable[[Exception, Any, Any, int], None]]
"""A node's operator, and what hears of its errors."""


def fused(chain: Sequence[Link], tail: Process) -> Process:
    """The function of a chain of nodes, parents first. ``tail`` gets what comes through."""

    def failed(error: Exception, key: Any, value: Any, timestamp_ms: int) -> None:
        assert error.__traceback__ is not None
        operator, node_failed = chain[error.__traceback__.tb_lineno - _FIRST_LINE]
        node_failed(operator.explained(error), key, value, timestamp_ms)

    make = _factory(tuple(operator.statement for operator, _ in chain))
    process: Process = make(failed, tail, *(operator.function for operator, _ in chain))
    return process


@functools.lru_cache(maxsize=256)
def _factory(statements: tuple[str, ...]) -> Callable[..., Process]:
    functions = [f"f{number}" for number in range(len(statements))]
    lines = [
        f"def make(failed, forward, {', '.join(functions)}):",
        "  def process(key, value, timestamp_ms):",
        "    try:",
        *(f"      {statement.format(f=name)}" for statement, name in zip(statements, functions, strict=True)),
        "    except Exception as error:",
        "      failed(error, key, value, timestamp_ms)",
        "      return",
        "    forward(key, value, timestamp_ms)",
        "  return process",
    ]
    module = {"__name__": f"{stateless.__name__}.fused"}  # where errors come from, for those who look at tracebacks
    exec(compile("\n".join(lines), "<fused operators>", "exec"), module)  # statements of ours alone
    return module["make"]  # type: ignore[return-value]
