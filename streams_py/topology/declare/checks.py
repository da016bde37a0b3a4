"""Argument checks of the DSL and of ``Topology``, made by the call that passes the arguments.

The annotations say how functions are called and which arguments are serdes or numbers: ``Callable[[K, V], object]`` is
called with two arguments. So a new operation is checked as soon as its class is decorated with :func:`checked`. The
messages of :class:`TopologyError` end with the line of the user's program.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from streams_py.errors import TopologyError
from streams_py.topology.declare.caller import locate, user_line
from streams_py.topology.declare.given_types import admits_none, check_legal_name, check_serde, kind_of, type_check
from streams_py.topology.declare.in_context import WithContext
from streams_py.topology.declare.names import check_topic

__all__ = ["check_function", "check_given", "check_serde", "checked", "checked_function"]

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
_Check = Callable[[Any, str], None]

_NAMES: Final[Mapping[str, str]] = {
    "K": "key", "K2": "key", "V": "value", "V2": "value", "VO": "other value", "A": "aggregate",
    "RecordContext": "record context", "V | None": "value", "VO | None": "other value", "A | None": "aggregate",
}  # fmt: skip
"""Names in messages for the arguments of functions, by annotation."""

_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "TimestampExtractor": ("key", "value", "record timestamp", "partition time"),
    "Partitioner": ("topic", "key", "value", "number of partitions"),
    "TopicChooser": ("key", "value", "record context"),
    "StateStoreSupplier": (),
}

_TAKES_CONTEXT: Final = ("initializer", "adder", "subtractor", "merger", "on", "timestamp_extractor")
"""Parameters that accept ``with_context(f)``.

The keyword ``with_context=`` either stands for another function of the same call or does not exist there.
"""


def checked(cls: type[T]) -> type[T]:
    """Class decorator: ``__init__`` and all public methods check their arguments.

    Errors end with the line of the call.
    """
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, _checked(method, "" if name == "__init__" else f".{name}"))
    return cls


def checked_function(function: Callable[P, R]) -> Callable[P, R]:
    """Function decorator with the same checks; ``name`` must be usable in a topic name."""
    return _checked(function, None)


def check_given(given: Mapping[str, Any], annotations: Mapping[str, str], what: str) -> None:
    """Raise TopologyError unless each value, by name, matches its annotation."""
    for name, value in given.items():
        if value is not None or not admits_none(annotations[name]):
            for check in _checks_of(name, annotations[name]):
                check(value, f"{what}: {name}")


def _checked(function: Callable[P, R], suffix: str | None) -> Callable[P, R]:
    """Wrap a function with its checks. ``suffix`` follows the class name in messages; None: a function."""
    signature = inspect.signature(function)
    checks = [
        (name, check, admits_none(str(parameter.annotation)) or parameter.default is None)
        for name, parameter in signature.parameters.items()
        if parameter.annotation is not parameter.empty
        for check in _checks_of(name, str(parameter.annotation), names_a_store=suffix is None)
    ]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if checks:
                try:
                    given = signature.bind(*args, **kwargs).arguments
                except TypeError:
                    given = {}  # the call below raises the same error
                title = f"{type(args[0]).__name__}{suffix}" if suffix is not None else _call_title(function, given)
                for name, check, may_be_none in checks:
                    if name in given and not (may_be_none and given[name] is None):
                        check(given[name], f"{title}: {name}")
            return function(*args, **kwargs)
        except TopologyError as error:
            locate(error, user_line())
            raise

    return call


def _call_title(function: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """Return the title for messages, such as ``key_value_store 'counts'``."""
    return f"{function.__name__} {given['name']!r}" if isinstance(given.get("name"), str) else function.__name__


def _checks_of(name: str, annotation: str, *, names_a_store: bool = False) -> Iterable[_Check]:
    """Yield the checks of one parameter. Each takes the argument and its name for messages."""
    if re.search(r"\bSerde\[", annotation):
        yield check_serde
    arguments = _arguments_of(annotation)
    if name == "processor" or (name == "supplier" and "Supplier[" in annotation):
        yield _check_not_async
    elif arguments is not None:
        yield _function_check(annotation, arguments, takes_context=name in _TAKES_CONTEXT)
    if name in ("topic", "topics"):
        yield _topic_check(annotation, chosen=arguments is not None)
    if name == "stores":
        yield _check_store_names
    if annotation.startswith("Materialized["):
        yield _check_materialized
    check = type_check(annotation)
    if name in ("store", "name") and (names_a_store or annotation == "str | None"):
        yield check_legal_name
    elif check is not None:
        yield check


def _function_check(annotation: str, arguments: tuple[str, ...], *, takes_context: bool) -> _Check:
    may_be_text = annotation.startswith("str |")
    check = (
        _check_any_function
        if "Awaitable[" in annotation
        else _check_async_function
        if "Coroutine[" in annotation
        else check_function
    )

    def check_given(given: object, what: str) -> None:
        if takes_context and isinstance(given, WithContext):
            check(given.function, f"{what}, with_context", (*arguments, "record context"))
        elif not (may_be_text and isinstance(given, str)):
            check(given, what, arguments)

    return check_given


def _arguments_of(annotation: str) -> tuple[str, ...] | None:
    """Return the argument names of ``Callable[[...], ...]`` or a known alias, otherwise None."""
    for alias, names in _ALIASES.items():
        if alias in annotation:
            return names
    _, found, rest = annotation.partition("Callable[[")
    if not found:
        return None
    depth, parts = 0, [""]
    for character in rest:
        depth += (character == "[") - (character == "]")
        if depth < 0:
            break
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    kinds = [part.strip() for part in parts if part.strip()]
    return tuple(_NAMES.get(kind, "value") for kind in kinds)


def check_function(given: object, what: str, arguments: tuple[str, ...]) -> None:
    """Raise TopologyError unless ``given`` is a plain function with these arguments."""
    _check_callable(given, what, arguments)
    _check_not_async(given, what)
    _check_any_function(given, what, arguments)


def _check_async_function(given: object, what: str, arguments: tuple[str, ...]) -> None:
    """Raise TopologyError unless ``given`` is an ``async def`` with these arguments."""
    _check_callable(given, what, arguments)
    if not any(map(inspect.iscoroutinefunction, (given, getattr(given, "__call__", None)))):  # noqa: B004
        code = getattr(given, "__code__", None)
        place = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
        raise TopologyError(
            f"{what}: {_title(given)}{place} is not an `async def`: on the event loop it would block all other "
            f"calls; write `async def` and `await` inside, or use map_values for a function that does not wait"
        )
    _check_any_function(given, what, arguments)


def _check_callable(given: object, what: str, arguments: tuple[str, ...]) -> None:
    if isinstance(given, WithContext):
        name = what.rpartition(" ")[2]
        raise TopologyError(
            f"{what} cannot be with_context(f): for a single function, write with_context=f instead of {name}="
        )
    if not callable(given):
        function = f"function of ({', '.join(arguments)})" if arguments else "function without arguments"
        raise TopologyError(f"{what} is {kind_of(given)}, not a {function}")


def _check_any_function(given: object, what: str, arguments: tuple[str, ...]) -> None:
    """Raise TopologyError unless ``given`` can be called with these arguments."""
    _check_callable(given, what, arguments)
    assert callable(given)
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):  # some functions in C have no signature
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        takes = ", ".join(
            str(each).partition(":")[0].partition("=")[0].strip() for each in signature.parameters.values()
        )
        raise TopologyError(
            f"{what} is called with {len(arguments)} argument{'' if len(arguments) == 1 else 's'}, "
            f"({', '.join(arguments)}), but {_title(given)} takes ({takes})"
        ) from None


def _check_not_async(given: object, what: str) -> None:
    for function in (given, getattr(given, "process", None), getattr(given, "__call__", None)):  # noqa: B004
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TopologyError(
                f"{what}: {_title(given)} is an `async def`; records are processed by plain functions, one after the "
                "other, which keeps their order and their offsets: write `def` and wait inside, or use map_values_async"
            )


def _topic_check(annotation: str, *, chosen: bool) -> _Check:
    """Return a check for topics. ``chosen``: a function is allowed, too."""
    takes_patterns = "Pattern" in annotation

    def check_topics(given: object, what: str) -> None:
        if not chosen and callable(given):
            raise TopologyError(f"{what} is {kind_of(given)}, not the name of a topic")
        for topic in _items(given):
            if isinstance(topic, str):
                check_topic(topic)
            elif not (takes_patterns and isinstance(topic, re.Pattern)) and not (chosen and callable(topic)):
                raise TopologyError(f"{what} is {kind_of(topic)}, not the name of a topic")

    return check_topics


def _check_store_names(given: object, what: str) -> None:
    for store in _items(given):
        if type(store).__name__ == "StoreBuilder":  # importing its module would be circular
            name = getattr(store, "name", None)
            raise TopologyError(
                f"{what} has the declaration of store {name!r}; it takes names: call add_state_store with the "
                f"declaration, and give stores=[{name!r}]"
            )
        if not isinstance(store, str):
            raise TopologyError(f"{what} has {kind_of(store)}; it takes names of stores that add_state_store has added")


def _check_materialized(given: object, what: str) -> None:
    if isinstance(given, str):
        raise TopologyError(f"{what} is text; write store={given!r}")


def _items(given: object) -> Iterable[object]:
    """Return one or several values as an iterable; iterators are not consumed."""
    return given if isinstance(given, list | tuple | set | frozenset) else (given,) if not _is_lazy(given) else ()


def _is_lazy(given: object) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str)


def _title(given: object) -> str:
    name = str(getattr(given, "__name__", type(given).__name__))
    return "the lambda" if name == "<lambda>" else name
