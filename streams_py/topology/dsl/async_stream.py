"""Stream operations with functions that may wait: for a service, a database, a model."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.topology.declare.checks import checked
from streams_py.topology.declare.durations import Duration, duration_ms
from streams_py.topology.declare.names import Prefix
from streams_py.topology.declare.nodes import AsyncCalls, BatchCalls, RecordContext
from streams_py.topology.dsl.stream_joins import StreamJoins
from streams_py.topology.operators.asynchronous import CallAsync, CallInBatches, answered_pair

if TYPE_CHECKING:
    from streams_py.topology.dsl.kstream import KStream

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")

_TIMEOUT_MS = 30_000
_BATCH_TIMEOUT_MS = 300_000


@checked
class AsyncStream(StreamJoins[K, V]):
    """The asynchronous operations of a :class:`~streams_py.topology.dsl.kstream.KStream`.

    The functions run outside of the stream thread, which continues with other records and tasks. Results return to the
    stream thread, so all later operations, including stores, run there as usual. A record keeps its timestamp and
    headers. Its offset is committed only after its result was sent on. If the process dies earlier, the call is
    repeated.

    Records with the same key keep their order. With ``ordered=True`` records with different keys keep their order, too.
    Records without a key have no order to keep. Windows in later operations may need ``ordered=True`` or a grace
    period, because a slow result can be late.
    """

    @overload
    def map_values_async(
        self,
        function: Callable[[V], Coroutine[Any, Any, V2]],
        /,
        *,
        concurrency: int = 64,
        timeout: Duration = _TIMEOUT_MS,
        ordered: bool = False,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def map_values_async(
        self,
        /,
        *,
        with_key: Callable[[K, V], Coroutine[Any, Any, V2]],
        concurrency: int = 64,
        timeout: Duration = _TIMEOUT_MS,
        ordered: bool = False,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def map_values_async(
        self,
        /,
        *,
        with_context: Callable[[K, V, RecordContext], Coroutine[Any, Any, V2]],
        concurrency: int = 64,
        timeout: Duration = _TIMEOUT_MS,
        ordered: bool = False,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def map_values_async(
        self,
        function: Callable[[V], Coroutine[Any, Any, V2]] | None = None,
        /,
        *,
        with_key: Callable[[K, V], Coroutine[Any, Any, V2]] | None = None,
        with_context: Callable[[K, V, RecordContext], Coroutine[Any, Any, V2]] | None = None,
        concurrency: int = 64,
        timeout: Duration = _TIMEOUT_MS,
        ordered: bool = False,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Replace the value by ``await function(value)``; the key stays the same.

            async def locate(value: str) -> Place:
                return await client.get(value)

            clicks.map_values_async(locate, concurrency=64, timeout=5_000)

        Each task (partition) runs up to ``concurrency`` calls at a time, for records with different keys. It takes no
        more records from its partitions while twice as many records wait. A call that takes longer than ``timeout``
        (ms, or a timedelta) is cancelled with a :class:`~streams_py.errors.CallTimeoutError`. Errors are passed to the
        processing handler, like errors of ``map_values``. All coroutines of a client run on one event loop. Example:
        ``examples/operators/async_enrichment.py``.
        """
        call = _call(function, with_key, with_context, "map_values_async")
        calls = _calls(call, _keep_key, function or with_key or with_context, concurrency, timeout, ordered=ordered)
        place = self._place.process(name, Prefix.MAP_VALUES_ASYNC, CallAsync(calls), changes_value=True)
        return _stream(place.with_serdes(place.key_serde, value))

    def map_async(
        self,
        function: Callable[[K, V], Coroutine[Any, Any, tuple[K2, V2]]] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], Coroutine[Any, Any, tuple[K2, V2]]] | None = None,
        concurrency: int = 64,
        timeout: Duration = _TIMEOUT_MS,
        ordered: bool = False,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Replace key and value by ``await function(key, value)``.

        It works like :meth:`map_values_async`; ``timeout`` is a ``timedelta`` or milliseconds. Records keep their order
        by their old keys. Later operations by key repartition first.
        """
        call = _call(None, function, with_context, "map_async")
        given = function or with_context
        calls = _calls(call, answered_pair(given), given, concurrency, timeout, ordered=ordered)
        place = self._place.process(name, Prefix.MAP_ASYNC, CallAsync(calls), changes_key=True, changes_value=True)
        return _stream(place.with_serdes(key, value))

    @overload
    def map_batch(
        self,
        function: Callable[[list[V]], Iterable[V2] | Awaitable[Iterable[V2]]],
        /,
        *,
        max_records: int,
        max_ms: Duration,
        timeout: Duration = _BATCH_TIMEOUT_MS,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def map_batch(
        self,
        /,
        *,
        with_key: Callable[[list[tuple[K, V]]], Iterable[V2] | Awaitable[Iterable[V2]]],
        max_records: int,
        max_ms: Duration,
        timeout: Duration = _BATCH_TIMEOUT_MS,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def map_batch(
        self,
        /,
        *,
        with_context: Callable[[list[tuple[K, V, RecordContext]]], Iterable[V2] | Awaitable[Iterable[V2]]],
        max_records: int,
        max_ms: Duration,
        timeout: Duration = _BATCH_TIMEOUT_MS,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def map_batch(
        self,
        function: Callable[[list[V]], Iterable[V2] | Awaitable[Iterable[V2]]] | None = None,
        /,
        *,
        with_key: Callable[[list[tuple[K, V]]], Iterable[V2] | Awaitable[Iterable[V2]]] | None = None,
        with_context: Callable[[list[tuple[K, V, RecordContext]]], Iterable[V2] | Awaitable[Iterable[V2]]]
        | None = None,
        max_records: int,
        max_ms: Duration,
        timeout: Duration = _BATCH_TIMEOUT_MS,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Replace the values of a batch by ``function(values)``; the keys stay the same.

        ``function`` returns one new value for each value, in the same order. This is useful for models and services
        that are faster with batches.

        A batch has up to ``max_records`` records of one task (partition). It starts when it is full, or when ``max_ms``
        have elapsed since its first record arrived. One batch of a task runs at a time. ``function`` may be an ``async
        def``; a plain function runs on a separate thread. Write ``with_key=f`` for a function of (key, value) pairs,
        and ``with_context=f`` for a function of (key, value, record context) triples. The processing handler is called
        for each record of the batch if the function raises an exception, returns a different number of values, or takes
        longer than ``timeout`` (a ``timedelta`` or milliseconds).

        Example: ``examples/operators/batch_scoring.py``.
        """
        functions: list[Any] = [given for given in (function, with_key, with_context) if given is not None]
        if len(functions) != 1:
            raise TopologyError(
                "map_batch needs one function: f(values), with_key=f for f(pairs of key and value), or with_context=f "
                "for f(triples of key, value and record)"
            )
        given = functions[0]
        if max_records < 1:
            raise TopologyError(f"max_records={max_records}: it must be at least 1")
        calls = BatchCalls(
            function=given,
            is_async=_is_async(given),
            with_key=with_key is not None,
            with_context=with_context is not None,
            what=_title(given),
            max_records=max_records,
            max_ms=duration_ms(max_ms, "max_ms"),
            timeout_ms=duration_ms(timeout, "timeout", least_ms=1),
        )
        place = self._place.process(name, Prefix.MAP_BATCH, CallInBatches(calls), changes_value=True)
        return _stream(place.with_serdes(place.key_serde, value))


def _stream(place: Any) -> KStream[Any, Any]:
    from streams_py.topology.dsl.kstream import KStream  # KStream is a subclass of AsyncStream

    return KStream(place)


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
