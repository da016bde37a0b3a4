"""Functions that change a value in place instead of creating a new one.

An aggregation function may do this: ``def add(key, value, total): total["n"] += 1; return total``. A function may
change its arguments. So it must not get an object that is needed later: the old value that is forwarded, an aggregate
from which another window starts, or an object that the initializer returns for every key. In these cases the function
gets a copy. Copies are not needed for serdes with immutable values (numbers, text, bytes), or for an aggregation whose
old values are not used.

Two things are not allowed, but do not raise an error by themselves. Operators forward values as objects: if several
operators get the same object and one of them changes it, the operators after it get the changed one. And an aggregator
that changes its aggregate but returns None (like ``total.append(x)``) deletes the aggregate. The test driver detects
both (:func:`forward_unchanged`, :func:`aggregating`). A stream thread does not, because that costs a copy of each
value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NoReturn

from streams_py.errors import ChangedInPlaceError
from streams_py.topology.declare.in_context import within
from streams_py.topology.declare.nodes import Change, InPlaceChecks, NodeContext, Process

_NONE_YET = object()


def copier_of(store: Any) -> Callable[[Any], Any] | None:
    """Return the function that copies a value of the store; None if values are immutable."""
    through_serde: Callable[[Any], Any] | None = store.codec.copier()
    if through_serde is None:
        return None

    def copied(value: Any) -> Any:
        try:
            return None if value is None else through_serde(value)
        except Exception:  # the initial value has another type than the results
            return deepcopy(value)

    return copied


def on_copies(aggregator: Callable[[Any, Any, Any], Any], store: Any) -> Callable[[Any, Any, Any], Any]:
    """Return the same function of (key, value, aggregate), which gets a copy of the aggregate."""
    copy = copier_of(store)
    if copy is None:
        return aggregator
    return lambda key, value, old: aggregator(key, value, copy(old))


def fresh_initializer(node: NodeContext, initializer: Callable[[], Any], store: Any) -> Callable[[], Any]:
    """Return the initializer for this task, which never returns a mutable object twice.

    Otherwise all keys would share one object with ``lambda: EMPTY``, including the changes made for the first key.
    """
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


# -- checks of the test driver ----------------------------------------------------------------------------------------

_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes)


class _Copy:
    """A copy of a value, to detect changes.

    :meth:`of` returns None if the value cannot change, or if a change cannot be detected.
    """

    def __init__(self, value: Any, copied: Any) -> None:
        self._value, self._copied = value, copied

    @classmethod
    def of(cls, value: Any) -> _Copy | None:
        if isinstance(value, _IMMUTABLE):
            return None
        try:
            copied = deepcopy(value)
            return cls(value, copied) if copied == value else None  # None for objects that only equal themselves
        except Exception:
            return None

    @property
    def is_changed(self) -> bool:
        return bool(self._copied != self._value)


def forward_unchanged(targets: Sequence[tuple[str, Process]], checks: InPlaceChecks) -> Process:
    """Return a function that calls all targets in order and detects changed values.

    It raises ChangedInPlaceError after a target that changed a value that other targets get, too.
    """

    def forward(key: Any, value: Any, timestamp_ms: int) -> None:
        copies = [copy for part in _parts(value) if (copy := _Copy.of(part)) is not None]
        for number, (name, target) in enumerate(targets):
            target(key, value, timestamp_ms)
            if number + 1 < len(targets) and any(copy.is_changed for copy in copies):
                others = ", ".join(_named(other, checks) for other, _ in targets[number + 1 :])
                raise ChangedInPlaceError(
                    f"{_named(name, checks)}, or an operator below it, changed the value of key {key!r} in place, and "
                    f"{others} would get the changed value: create a new value instead"
                )

    return forward


def aggregating(node: NodeContext, function: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Return an aggregator of (key, value, aggregate) that is checked if the task checks.

    It raises ChangedInPlaceError if the function changed its aggregate and returned None.
    """
    checks = node.in_place_checks
    if checks is None:
        return function

    def checked(key: Any, value: Any, aggregate: Any) -> Any:
        before = _Copy.of(aggregate)
        result = function(key, value, aggregate)
        if result is None and before is not None and before.is_changed:
            _returned_nothing(node, key, checks)
        return result

    return checked


def _returned_nothing(node: NodeContext, key: Any, checks: InPlaceChecks) -> NoReturn:
    raise ChangedInPlaceError(
        f"a function of {_named(node.name, checks)} changed the aggregate of key {key!r} in place and returned None, "
        "which deletes it: return the aggregate"
    )


def _parts(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Change) else (value,)


def _named(node: str, checks: InPlaceChecks) -> str:
    place = checks.where(node)
    return f"operator {node}" if place is None else f"operator {node} ({place})"
