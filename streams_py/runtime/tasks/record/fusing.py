"""Fuses a chain of stateless nodes into one function.

With nested calls, each node costs a record two Python calls: the node's function and the user's. A chain of nodes that
only call the user's function becomes the body of one function instead, with one statement per node:

    try:
        value = f0(value)
        if not f1(key, value): return
        key, value = f2(key, value)
    except Exception as error:
        failed(error, key, value, timestamp_ms)
        return
    forward(key, value, timestamp_ms)

The line of an error identifies the failing node. Key and value are then still the node's input.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from streams_py.topology.declare.nodes import Process
from streams_py.topology.operators import stateless

_FIRST_LINE: Final = 4
"""Line number of the first statement."""


Link: TypeAlias = tuple[stateless.Statement, Callable[[Exception, Any, Any, int], None]]
"""A node's operator, and the function that handles its errors."""


def fused(chain: Sequence[Link], tail: Process) -> Process:
    """Return the function of a chain of nodes, parents first. ``tail`` receives the results."""

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
    module = {"__name__": f"{stateless.__name__}.fused"}  # shown in tracebacks
    exec(compile("\n".join(lines), "<fused operators>", "exec"), module)  # the statements contain no user input
    return module["make"]  # type: ignore[return-value]
