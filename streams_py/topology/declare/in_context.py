"""Functions of the user that want to know about the record in process: topic, partition, offset, timestamp, headers.

The context is the task's, and an operator is shared by all tasks, so a function gets its context when the operator is
bound. One that does not ask pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from streams_py.errors import TopologyError
from streams_py.topology.declare.nodes import NodeContext, Process, RecordContext

__all__ = ["WithContext", "at_its_time", "one_function", "rearranged", "with_context", "within"]

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
    """A function that takes the record's context as well, at the end, for those that are not the only one of their
    call: ``initializer``, ``adder``, ``subtractor``, ``merger``, ``on`` and ``timestamp_extractor``. (Where there is
    one, ``with_context=f``.)

    ``rows.group_by(...).aggregate(dict, adder=with_context(add), subtractor=subtract)``
    """
    return WithContext(function)


def one_function(function: Callable[..., Any] | None, with_context: Callable[..., Any] | None, what: str) -> Any:
    """What an operator is given: the plain function, or the one that wants the context. TopologyError unless exactly
    one is there; ``what`` names the method and says what a plain function takes."""
    if with_context is not None and function is None:
        return WithContext(with_context)
    if function is None or with_context is not None:
        raise TopologyError(f"{what}, or with_context=f for an f that takes the record's context as well, at the end")
    return function


def rearranged(function: Any, arrange: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Any:
    """The function in another form: ``arrange(f)`` gives one that calls ``f`` and hands over further arguments."""
    return WithContext(arrange(function.function)) if isinstance(function, WithContext) else arrange(function)


def within(node: NodeContext, function: Any) -> Callable[..., Any]:
    """The function as the operator calls it in one task."""
    if not isinstance(function, WithContext):
        plain: Callable[..., Any] = function
        return plain
    asking, record = function.function, node.record

    def called(*arguments: Any) -> Any:
        return asking(*arguments, record)

    return called


def at_its_time(node: NodeContext, process: Process, *functions: Any) -> Process:
    """``process``; when one of its functions asks for the context, that has the record's timestamp as it is here."""
    if not any(isinstance(function, WithContext) for function in functions):
        return process
    context: RecordContext = node.record

    def timed(key: Any, value: Any, timestamp_ms: int) -> None:
        context.timestamp = timestamp_ms
        process(key, value, timestamp_ms)

    return timed
