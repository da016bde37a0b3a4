"""Functions that join two values, in all accepted forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams_py.errors import TopologyError
from streams_py.topology.declare.in_context import WithContext
from streams_py.topology.declare.nodes import RecordContext


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
