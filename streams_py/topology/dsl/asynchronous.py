"""Calls of functions that may wait: for a service, a database, a model. A stream's operations are made of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Final

from streams_py.errors import TopologyError
from streams_py.topology.declare.durations import Duration, duration_ms
from streams_py.topology.declare.nodes import AsyncCalls, BatchCalls, RecordContext
from streams_py.topology.operators.asynchronous import answered_pair

TIMEOUT_MS: Final = 30_000
"""Default timeout of one call, in ms."""
BATCH_TIMEOUT_MS: Final = 300_000
"""Default timeout of the call for one batch, in ms."""

_Function = Callable[..., Any]


def value_calls(
    of_value: _Function | None,
    of_pair: _Function | None,
    of_context: _Function | None,
    concurrency: int,
    timeout: Duration,
    *,
    ordered: bool,
) -> AsyncCalls:
    """Return the calls of ``map_values_async``. TopologyError unless there is one function and the limits are valid."""
    call = _call(of_value, of_pair, of_context, "map_values_async")
    return _calls(call, _keep_key, of_value or of_pair or of_context, concurrency, timeout, ordered=ordered)


def pair_calls(
    of_pair: _Function | None, of_context: _Function | None, concurrency: int, timeout: Duration, *, ordered: bool
) -> AsyncCalls:
    """Return the calls of ``map_async``. TopologyError unless there is one function and the limits are valid."""
    call = _call(None, of_pair, of_context, "map_async")
    given = of_pair or of_context
    return _calls(call, answered_pair(given), given, concurrency, timeout, ordered=ordered)


def batch_calls(
    of_values: _Function | None,
    of_pairs: _Function | None,
    of_contexts: _Function | None,
    max_records: int,
    max_ms: Duration,
    timeout: Duration,
) -> BatchCalls:
    """Return the calls of ``map_batch``. TopologyError unless there is one function and the limits are valid."""
    functions = [given for given in (of_values, of_pairs, of_contexts) if given is not None]
    if len(functions) != 1:
        raise TopologyError(
            "map_batch needs one function: f(values), with_key=f for f(pairs of key and value), or with_context=f "
            "for f(triples of key, value and record)"
        )
    given = functions[0]
    if max_records < 1:
        raise TopologyError(f"max_records={max_records}: it must be at least 1")
    return BatchCalls(
        function=given,
        is_async=_is_async(given),
        with_key=of_pairs is not None,
        with_context=of_contexts is not None,
        what=_title(given),
        max_records=max_records,
        max_ms=duration_ms(max_ms, "max_ms"),
        timeout_ms=duration_ms(timeout, "timeout", least_ms=1),
    )


def _call(
    of_value: Callable[..., Any] | None,
    of_pair: Callable[..., Any] | None,
    of_context: Callable[..., Any] | None,
    method: str,
) -> Callable[[Any, Any, RecordContext], Coroutine[Any, Any, Any]]:
    given = [function for function in (of_value, of_pair, of_context) if function is not None]
    if len(given) != 1:
        raise TopologyError(
            f"{method} needs one async function: f(value), with_key=f for f(key, value), or with_context=f for "
            "f(key, value, record)"
            if method == "map_values_async"
            else f"{method} needs one async function: f(key, value), or with_context=f for f(key, value, record)"
        )
    if of_value is not None:
        return lambda key, value, context: of_value(value)
    if of_pair is not None:
        return lambda key, value, context: of_pair(key, value)
    return given[0]


def _calls(
    call: Callable[[Any, Any, RecordContext], Coroutine[Any, Any, Any]],
    pair: Callable[[Any, Any], tuple[Any, Any]],
    function: Any,
    concurrency: int,
    timeout: Duration,
    *,
    ordered: bool,
) -> AsyncCalls:
    if concurrency < 1:
        raise TopologyError(f"concurrency={concurrency}: it must be at least 1")
    return AsyncCalls(
        function=call,
        pair=pair,
        what=_title(function),
        concurrency=concurrency,
        timeout_ms=duration_ms(timeout, "timeout", least_ms=1),
        ordered=ordered,
    )


def _keep_key(key: Any, answer: Any) -> tuple[Any, Any]:
    return key, answer


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _title(function: Any) -> str:
    """Return the name and the line of a function, for messages."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None)
    place = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
    return f"{getattr(function, '__name__', type(function).__name__)}{place}"
