"""Stateless operators. Each returns one closure per node and task, and the closures call each other.

Only the user's function is inside ``try``: an error of a child has already been handled by the child. Timestamp and
headers stay unchanged. The user's function gets null keys and values like any others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TextIO

from streams_py.topology.declare.in_context import at_its_time, within
from streams_py.topology.declare.nodes import NodeContext, Operator, Process, RecordContext

_HERE: Final = __name__.rpartition(".")[0]

_NULL_KEY: Final = "null key before a repartition"

Predicate = Callable[[Any, Any], object]


class Statement:
    """An operator that is only one statement around the user's function.

    So a chain of them can be compiled into one function (see ``runtime/tasks/record/fusing.py``). ``statement`` uses
    ``key`` and ``value``, and ``{f}`` for ``function``. If it raises an error, both are unchanged.
    """

    statement: str

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def explained(self, error: Exception) -> Exception:
        """Return the error that the processing handler gets."""
        return error


class Filter(Statement):
    """Keeps records for which the predicate is true, or with ``negate`` is false."""

    replayable = True

    def __init__(self, predicate: Predicate, *, negate: bool = False) -> None:
        super().__init__(predicate)
        self.statement = f"if {'' if negate else 'not '}{{f}}(key, value): return"
        self._negate = negate

    def bind(self, node: NodeContext) -> Process:
        predicate, forward, failed = self.function, node.forward, node.failed
        negate = self._negate

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            try:
                dropped = bool(predicate(key, value)) is negate
            except Exception as error:
                failed(error, key, value, timestamp_ms)
                return
            if not dropped:
                forward(key, value, timestamp_ms)

        return process


class NullKeyFilter:
    """Drops records without a key before a repartition, which would distribute them randomly.

    If a later operation uses such records, ``pass_all`` is set when the topology is built (KIP-962). The dropped
    records are counted, which Kafka Streams does not do.
    """

    replayable = True

    def __init__(self) -> None:
        self.pass_all = False

    def bind(self, node: NodeContext) -> Process:
        forward = node.forward
        if self.pass_all:
            return forward

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            if key is not None:
                forward(key, value, timestamp_ms)
            else:
                node.dropped(_NULL_KEY)

        return process


class InContext:
    """An operator whose function also gets the record's context, with the current timestamp."""

    replayable = True

    def __init__(
        self, make: Callable[[Callable[[Any, Any], Any]], Operator], function: Callable[[Any, Any, RecordContext], Any]
    ) -> None:
        self._make = make
        self._function = function

    def bind(self, node: NodeContext) -> Process:
        context, function = node.record, self._function
        process = self._make(lambda key, value: function(key, value, context)).bind(node)

        def in_context(key: Any, value: Any, timestamp_ms: int) -> None:
            context.timestamp = timestamp_ms
            process(key, value, timestamp_ms)

        return in_context


class PassThrough:
    """A node that only has a name: a merge, or a branch of a split."""

    replayable = True

    def bind(self, node: NodeContext) -> Process:
        return node.forward


def named_if_no_pair(error: Exception, function: Callable[..., Any], operation: str) -> Exception:
    """Return ``error``, or an error that names the function whose result could not be unpacked."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if (
        "unpack" not in str(error)
        or frame is None
        or not frame.tb_frame.f_globals.get("__name__", "").startswith(_HERE)
    ):
        return error
    code = getattr(function, "__code__", None)
    place = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
    wanted = "(new_key, new_value)" if operation != "flat_map" else "an iterable of (new_key, new_value)"
    named = TypeError(
        f"{getattr(function, '__name__', type(function).__name__)}{place} must return {wanted} for {operation}: {error}"
    )
    named.__cause__ = error
    return named


class Map(Statement):
    """Replaces key and value."""

    replayable = True
    statement = "key, value = {f}(key, value)"

    def explained(self, error: Exception) -> Exception:
        return named_if_no_pair(error, self.function, "map")

    def bind(self, node: NodeContext) -> Process:
        mapper, forward, failed = self.function, node.forward, node.failed

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            try:
                new_key, new_value = mapper(key, value)
            except Exception as error:
                failed(named_if_no_pair(error, mapper, "map"), key, value, timestamp_ms)
                return
            forward(new_key, new_value, timestamp_ms)

        return process


class MapValues(Statement):
    """Replaces the value, computed from the value."""

    replayable = True
    statement = "value = {f}(value)"

    def bind(self, node: NodeContext) -> Process:
        mapper, forward, failed = self.function, node.forward, node.failed

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            try:
                new_value = mapper(value)
            except Exception as error:
                failed(error, key, value, timestamp_ms)
                return
            forward(key, new_value, timestamp_ms)

        return process


class MapValuesWithKey(Statement):
    """Replaces the value, computed from key and value."""

    replayable = True
    statement = "value = {f}(key, value)"

    def bind(self, node: NodeContext) -> Process:
        mapper, forward, failed = self.function, node.forward, node.failed

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            try:
                new_value = mapper(key, value)
            except Exception as error:
                failed(error, key, value, timestamp_ms)
                return
            forward(key, new_value, timestamp_ms)

        return process


class SelectKey(Statement):
    """Replaces the key."""

    replayable = True
    statement = "key = {f}(key, value)"

    def bind(self, node: NodeContext) -> Process:
        selector, forward, failed = self.function, node.forward, node.failed

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            try:
                new_key = selector(key, value)
            except Exception as error:
                failed(error, key, value, timestamp_ms)
                return
            forward(new_key, value, timestamp_ms)

        return process


class FlatMap:
    """Replaces a record by any number of pairs.

    A lazily generated result is read completely before it is forwarded: if it fails, none of it was forwarded.
    """

    replayable = True

    def __init__(self, mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]) -> None:
        self._mapper = mapper

    def bind(self, node: NodeContext) -> Process:
        mapper, forward, failed = self._mapper, node.forward, node.failed

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            try:
                pairs = [(new_key, new_value) for new_key, new_value in mapper(key, value)]
            except Exception as error:
                failed(named_if_no_pair(error, mapper, "flat_map"), key, value, timestamp_ms)
                return
            for new_key, new_value in pairs:
                forward(new_key, new_value, timestamp_ms)

        return process


class FlatMapValues:
    """Replaces a value by any number of values; lazy results as in :class:`FlatMap`."""

    replayable = True

    def __init__(self, mapper: Callable[[Any], Iterable[Any]]) -> None:
        self._mapper = mapper

    def bind(self, node: NodeContext) -> Process:
        mapper, forward, failed = self._mapper, node.forward, node.failed

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            try:
                values = mapper(value)
                if type(values) is not list:
                    values = list(values)
            except Exception as error:
                failed(error, key, value, timestamp_ms)
                return
            for new_value in values:
                forward(key, new_value, timestamp_ms)

        return process


class FlatMapValuesWithKey:
    """Replaces a value by any number of values of key and value; lazy as in :class:`FlatMap`."""

    replayable = True

    def __init__(self, mapper: Callable[[Any, Any], Iterable[Any]]) -> None:
        self._mapper = mapper

    def bind(self, node: NodeContext) -> Process:
        mapper, forward, failed = self._mapper, node.forward, node.failed

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            try:
                values = mapper(key, value)
                if type(values) is not list:
                    values = list(values)
            except Exception as error:
                failed(error, key, value, timestamp_ms)
                return
            for new_value in values:
                forward(key, new_value, timestamp_ms)

        return process


class Peek(Statement):
    """Calls the user's function, then forwards the record."""

    replayable = False
    statement = "{f}(key, value)"

    def bind(self, node: NodeContext) -> Process:
        action, forward, failed = self.function, node.forward, node.failed

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            try:
                action(key, value)
            except Exception as error:
                failed(error, key, value, timestamp_ms)
                return
            forward(key, value, timestamp_ms)

        return process


class Foreach:
    """Calls the user's function; the record ends here."""

    replayable = False

    def __init__(self, action: Callable[[Any, Any], object]) -> None:
        self._action = action

    def bind(self, node: NodeContext) -> Process:
        action, failed = self._action, node.failed

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            try:
                action(key, value)
            except Exception as error:
                failed(error, key, value, timestamp_ms)

        return process


class Print:
    """Writes a line per record; ``file`` None is the current ``sys.stdout``."""

    replayable = False

    def __init__(self, label: str, line: Any, file: TextIO | None) -> None:
        self._label = label
        self._line = line
        self._file = file

    def bind(self, node: NodeContext) -> Process:
        failed, file, label = node.failed, self._file, self._label
        line = within(node, self._line or (lambda key, value: f"{key}, {value}"))

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            try:
                (file or sys.stdout).write(f"[{label}]: {line(key, value)}\n")
            except Exception as error:
                failed(error, key, value, timestamp_ms)

        return at_its_time(node, process, self._line)


class Branch:
    """Sends a record to the child of the first true predicate, otherwise to the default child.

    The default child is optional. ``predicates`` and the node names ``children`` can be extended until the topology is
    built.
    """

    replayable = True

    def __init__(self) -> None:
        self.predicates: list[Predicate] = []
        self.children: list[str] = []
        self.default: str | None = None

    def bind(self, node: NodeContext) -> Process:
        failed, children = node.failed, node.children
        choices: Sequence[tuple[Predicate, Process]] = [
            (within(node, predicate), children[name])
            for predicate, name in zip(self.predicates, self.children, strict=True)
        ]
        default = None if self.default is None else children[self.default]

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            target = default
            try:
                for predicate, child in choices:
                    if predicate(key, value):
                        target = child
                        break
            except Exception as error:
                failed(error, key, value, timestamp_ms)
                return
            if target is not None:
                target(key, value, timestamp_ms)

        return at_its_time(node, process, *self.predicates)
