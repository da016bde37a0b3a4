"""The functions that join two values, in the forms in which they can be given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams_py.errors import TopologyError

__all__ = ["joiner_with_key"]


def joiner_with_key(
    joiner: Callable[[Any, Any], Any] | None, with_key: Callable[[Any, Any, Any], Any] | None, method: str
) -> Callable[[Any, Any, Any], Any]:
    """A function of key, left and right value; TopologyError unless exactly one form was given."""
    if with_key is not None and joiner is None:
        return with_key
    if joiner is None or with_key is not None:
        raise TopologyError(f"{method} needs one function: f(left, right), or with_key=f for an f(key, left, right)")
    return lambda key, left, right: joiner(left, right)
