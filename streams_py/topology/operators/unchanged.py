"""Checks of a test: that functions do not change what others are given too, and give back the aggregate they changed.

Values travel between operators as the objects they are. Where a value goes to several operators, one that changes it
changes it for those after it; and an aggregator that changes its aggregate but returns None (``total.append(x)``
does) deletes it. Neither raises anything by itself. The test driver looks for both; a stream thread does not, because
it costs a copy of each value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NoReturn

from streams_py.errors import ChangedInPlaceError
from streams_py.topology.nodes import Change, InPlaceChecks, NodeContext, Process

__all__ = ["aggregating", "forward_unchanged"]

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
