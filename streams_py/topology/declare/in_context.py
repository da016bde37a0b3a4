"""User functions with the context of the current record: topic, partition, offset, timestamp, headers.

The context belongs to a task, and an operator is shared by all tasks. So a function gets its context when the operator
is bound. Functions without the context have no extra cost. :func:`joiner_with_key` accepts all forms of a function that
joins two values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from streams_py.errors import TopologyError
from streams_py.topology.declare.nodes import NodeContext, Process, RecordContext

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
R = TypeVar("R")


class WithContext:
    """A function whose last argument is the record's context."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


@overload
def with_context(function: Callable[[RecordContext], R]) -> Callable[[], R]: ...
@overload
def with_context(function: Callable[[A, RecordContext], R]) -> Callable[[A], R]: ...
@overload
def with_context(function: Callable[[A, B, RecordContext], R]) -> Callable[[A, B], R]: ...
@overload
def with_context(function: Callable[[A, B, C, RecordContext], R]) -> Callable[[A, B, C], R]: ...
@overload
def with_context(function: Callable[[A, B, C, D, RecordContext], R]) -> Callable[[A, B, C, D], R]: ...
def with_context(function: Callable[..., Any]) -> Any:
    """Mark a function whose last argument is the record's context.

    Use it for the arguments ``initializer``, ``adder``, ``subtractor``, ``merger``, ``on`` and ``timestamp_extractor``.
    Methods with a single function take ``with_context=f`` instead.

    ``rows.group_by(...).aggregate(dict, adder=with_context(add), subtractor=subtract)``
    """
    return WithContext(function)


def one_function(function: Callable[..., Any] | None, with_context: Callable[..., Any] | None, what: str) -> Any:
    """Return the function for an operator: the plain one, or the one with the context.

    ``what`` names the method and the arguments of a plain function.

    Raises:
        TopologyError: not exactly one function was passed.
    """
    if with_context is not None and function is None:
        return WithContext(with_context)
    if function is None or with_context is not None:
        raise TopologyError(f"{what}, or with_context=f for a function with the record's context as last argument")
    return function


def rearranged(function: Any, arrange: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Any:
    """Return the function in another form.

    ``arrange(f)`` returns a function that calls ``f`` and passes on further arguments.
    """
    return WithContext(arrange(function.function)) if isinstance(function, WithContext) else arrange(function)


def within(node: NodeContext, function: Any) -> Callable[..., Any]:
    """Return the function as the operator calls it in one task."""
    if not isinstance(function, WithContext):
        plain: Callable[..., Any] = function
        return plain
    asking, record = function.function, node.record

    def called(*arguments: Any) -> Any:
        return asking(*arguments, record)

    return called


def at_its_time(node: NodeContext, process: Process, *functions: Any) -> Process:
    """Return ``process``. If a function takes the context, the timestamp of the context is set before each call."""
    if not any(isinstance(function, WithContext) for function in functions):
        return process
    context: RecordContext = node.record

    def timed(key: Any, value: Any, timestamp_ms: int) -> None:
        context.timestamp = timestamp_ms
        process(key, value, timestamp_ms)

    return timed


def joiner_with_key(
    joiner: Callable[[Any, Any], Any] | None,
    with_key: Callable[[Any, Any, Any], Any] | None,
    with_context: Callable[[Any, Any, Any, RecordContext], Any] | None,
    method: str,
) -> Any:
    """Return a function of key, left value and right value for an operator.

    Raises:
        TopologyError: not exactly one form was passed.
    """
    if sum(function is not None for function in (joiner, with_key, with_context)) == 1:
        if with_context is not None:
            return WithContext(with_context)
        if with_key is not None:
            return with_key
    if joiner is None or with_key is not None or with_context is not None:
        raise TopologyError(
            f"{method} needs one function: f(left, right), or with_key=f for f(key, left, right), or with_context=f "
            "for f(key, left, right, record)"
        )
    return lambda key, left, right: joiner(left, right)
