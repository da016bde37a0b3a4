"""Operators whose functions run outside of the task's thread, for single records or batches.

The functions are coroutine functions, or functions of a whole batch. The runtime runs them
(``runtime/tasks/asynchronous/async_calls.py``, ``batch_calls.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams_py.topology.declare.nodes import AsyncCalls, BatchCalls, NodeContext, Process
from streams_py.topology.operators.stateless import named_if_no_pair


def answered_pair(function: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return a function that unpacks the coroutine's result; its error names ``function``."""

    def pair(key: Any, answer: Any) -> tuple[Any, Any]:
        try:
            new_key, new_value = answer
        except (TypeError, ValueError) as error:
            raise named_if_no_pair(error, function, "map_async") from error
        return new_key, new_value

    return pair


class CallAsync:
    """Calls a coroutine function for each record and forwards the pair of ``calls.pair``."""

    replayable = False

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    def bind(self, node: NodeContext) -> Process:
        return node.call_async(self._calls)


class CallInBatches:
    """Calls a function for each batch and forwards each answer with the key of its record."""

    replayable = False

    def __init__(self, calls: BatchCalls) -> None:
        self._calls = calls

    def bind(self, node: NodeContext) -> Process:
        return node.call_in_batches(self._calls)
