"""Functions that change a value in place, instead of making a new one.

An aggregation function may: ``def add(key, value, total): total["n"] += 1; return total``. What a function was given is
its own to change. So nothing that is needed afterwards may be given to it: not the old value that goes downstream, not
an aggregate of which another window is made, not an object that the initializer returns for every key. Where that would
be so, the function gets a copy. Serdes whose values cannot change (numbers, text, bytes) need none of it, nor does an
aggregation whose old values nobody wants.

Two things it may not, and neither raises anything by itself. Values travel between operators as the objects they are:
where one goes to several operators, one that changes it changes it for those after it. And an aggregator that changes
its aggregate but returns None (``total.append(x)`` does) deletes it. The test driver looks for both
(:func:`forward_unchanged`, :func:`aggregating`); a stream thread does not, because it costs a copy of each value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NoReturn

from streams_py.errors import ChangedInPlaceError
from streams_py.topology.declare.in_context import within
from streams_py.topology.declare.nodes import Change, InPlaceChecks, NodeContext, Process

__all__ = ["aggregating", "copier_of", "forward_unchanged", "fresh_initializer", "on_copies"]

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


# -- what the test driver looks for ------------------------------------------------------------------------------------

_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes)


class _Copy:
    """A value as it was. ``None`` as :meth:`of`: it cannot change, or nobody can tell."""

    def __init__(self, value: Any, copied: Any) -> None:
        self._value, self._copied = value, copied

    @classmethod
    def of(cls, value: Any) -> _Copy | None:
        if isinstance(value, _IMMUTABLE):
            return None
        try:
            copied = deepcopy(value)
            return cls(value, copied) if copied == value else None  # objects that equal nothing but themselves
        except Exception:
            return None

    @property
    def is_changed(self) -> bool:
        return bool(self._copied != self._value)


def forward_unchanged(targets: Sequence[tuple[str, Process]], checks: InPlaceChecks) -> Process:
    """Calls all of them in order, and raises ChangedInPlaceError after one that changed a value that others get too."""

    def forward(key: Any, value: Any, timestamp_ms: int) -> None:
        copies = [copy for part in _parts(value) if (copy := _Copy.of(part)) is not None]
        for number, (name, target) in enumerate(targets):
            target(key, value, timestamp_ms)
            if number + 1 < len(targets) and any(copy.is_changed for copy in copies):
                others = ", ".join(_named(other, checks) for other, _ in targets[number + 1 :])
                raise ChangedInPlaceError(
                    f"{_named(name, checks)}, or an operator below it, changed the value of key {key!r} in place, and "
                    f"{others} would get the changed one: make a new value instead"
                )

    return forward


def aggregating(node: NodeContext, function: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """An aggregator of (key, value, aggregate), checked where the task checks: ChangedInPlaceError when it changed its
    aggregate and returned None."""
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
