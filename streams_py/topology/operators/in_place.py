"""Aggregation functions that change their argument: ``def add(key, value, total): total["n"] += 1; return total``.

What a function was given is its own to change. So nothing that is needed afterwards may be given to it: not the old
value that goes downstream, not an aggregate of which another window is made, not an object that the initializer returns
for every key. Where that would be so, the function gets a copy. Serdes whose values cannot change (numbers, text,
bytes) need none of it, nor does an aggregation whose old values nobody wants.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from streams_py.topology.nodes import NodeContext
from streams_py.topology.operators.in_context import within

__all__ = ["copier_of", "fresh_initializer", "on_copies"]

_NONE_YET = object()


def copier_of(store: Any) -> Callable[[Any], Any] | None:
    """The function that copies a value of the store; None when values cannot change."""
    through_serde: Callable[[Any], Any] | None = store.codec.copier()
    if through_serde is None:
        return None

    def copied(value: Any) -> Any:
        try:
            return None if value is None else through_serde(value)
        except Exception:  # an initial value of another type than the results
            return deepcopy(value)

    return copied


def on_copies(aggregator: Callable[[Any, Any, Any], Any], store: Any) -> Callable[[Any, Any, Any], Any]:
    """The same function of (key, value, aggregate), but it gets a copy of the aggregate."""
    copy = copier_of(store)
    if copy is None:
        return aggregator
    return lambda key, value, old: aggregator(key, value, copy(old))


def fresh_initializer(node: NodeContext, initializer: Callable[[], Any], store: Any) -> Callable[[], Any]:
    """The same in this task, but where values can change it never gives an object twice: with ``lambda: EMPTY`` all
    keys would share what the first one makes of it."""
    initializer = within(node, initializer)
    if copier_of(store) is None:
        return initializer
    given: Any = _NONE_YET
    original: Any = None

    def initial() -> Any:
        nonlocal given, original
        value = initializer()
        if value is given:
            return deepcopy(original)
        if given is _NONE_YET:
            original = deepcopy(value)
            given = value
        return value

    return initial
