"""Arguments of the DSL and of ``Topology``, checked by the call that gives them.

What a function is called with, and what has to be a serde, is read from the annotations: ``Callable[[K, V], object]``
is called with two arguments. So a new operation is checked as soon as its class is decorated with :func:`checked`. The
messages of :class:`TopologyError` end with the line of the user's program.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from streams_py.errors import TopologyError
from streams_py.topology.caller import locate, user_line
from streams_py.topology.given_serdes import check_serde, kind_of
from streams_py.topology.names import check_topic
from streams_py.topology.operators.in_context import WithContext
from streams_py.topology.stores import StoreBuilder

__all__ = ["check_function", "check_serde", "checked"]

T = TypeVar("T")

_NAMES: Final[Mapping[str, str]] = {
    "K": "key", "K2": "key", "V": "value", "V2": "value", "VO": "other value", "A": "aggregate",
    "RecordContext": "record context", "V | None": "value", "VO | None": "other value", "A | None": "aggregate",
}  # fmt: skip
"""What the arguments of a function are called in a message, by their annotation."""

_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "TimestampExtractor": ("key", "value", "record timestamp", "partition time")
}

_MAY_ASK: Final = ("initializer", "adder", "subtractor", "merger", "on")
"""Functions that may be given as ``with_context(f)``, because ``with_context=`` stands for another one or for none."""


def checked(cls: type[T]) -> type[T]:
    """Class decorator: every public method, and ``__init__``, checks its arguments and says where it was called."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, _checked(method))
    return cls


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)
    suffix = "" if method.__name__ == "__init__" else f".{method.__name__}"
    checks = [
        (name, check)
        for name, parameter in signature.parameters.items()
        for check in _checks_of(name, str(parameter.annotation))
    ]

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if checks:
                try:
                    given = signature.bind(*args, **kwargs).arguments
                except TypeError:
                    given = {}  # the call below says it
                for name, check in checks:
                    if given.get(name) is not None:
                        check(given[name], f"{type(args[0]).__name__}{suffix}: {name}")
            return method(*args, **kwargs)
        except TopologyError as error:
            locate(error, user_line())
            raise

    return call


def _checks_of(name: str, annotation: str) -> Iterable[Callable[[Any, str], None]]:
    """Checks of one parameter, by its name and annotation. Each takes the argument and what to call it."""
    if re.search(r"\bSerde\[", annotation):
        yield check_serde
    arguments = _arguments_of(annotation)
    if name in ("processor", "supplier"):
        yield _check_not_async
    elif arguments is not None:
        may_be_text = annotation.startswith("str |")
        check = (
            _check_any_function
            if "Awaitable[" in annotation
            else _check_async_function
            if "Coroutine[" in annotation
            else check_function
        )
        takes_context = name in _MAY_ASK

        def check_given(given: object, what: str) -> None:
            if takes_context and isinstance(given, WithContext):
                check(given.function, f"{what}, with_context", (*arguments, "record context"))
            elif not (may_be_text and isinstance(given, str)):
                check(given, what, arguments)

        yield check_given
    if name in ("topic", "topics"):
        yield _check_topics
    if name == "stores":
        yield _check_store_names
    if annotation.startswith("StoreBuilder"):
        yield _check_store_builder
    if name in ("store", "name") and annotation.startswith("str"):
        yield _check_name
    if annotation.startswith("Materialized["):
        yield _check_materialized


def _arguments_of(annotation: str) -> tuple[str, ...] | None:
    """Names of the arguments in ``Callable[[...], ...]``, or of a known alias; None for anything else."""
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
    """TopologyError unless ``given`` is a plain function that can be called with so many arguments."""
    _check_callable(given, what, arguments)
    _check_not_async(given, what)
    _check_any_function(given, what, arguments)


def _check_async_function(given: object, what: str, arguments: tuple[str, ...]) -> None:
    """TopologyError unless ``given`` is an ``async def`` that can be called with so many arguments."""
    _check_callable(given, what, arguments)
    if not any(map(inspect.iscoroutinefunction, (given, getattr(given, "__call__", None)))):  # noqa: B004
        code = getattr(given, "__code__", None)
        place = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
        raise TopologyError(
            f"{what}: {_title(given)}{place} is no `async def`: called on the event loop it would hold up all other "
            f"calls; write `async def` and `await` inside, or use map_values for a function that does not wait"
        )
    _check_any_function(given, what, arguments)


def _check_callable(given: object, what: str, arguments: tuple[str, ...]) -> None:
    if isinstance(given, WithContext):
        name = what.rpartition(" ")[2]
        raise TopologyError(
            f"{what} cannot be with_context(f): where there is one function, give with_context=f instead of {name}="
        )
    if not callable(given):
        raise TopologyError(f"{what} is {kind_of(given)}, and no function of ({', '.join(arguments)})")


def _check_any_function(given: object, what: str, arguments: tuple[str, ...]) -> None:
    """TopologyError unless ``given`` can be called with so many arguments."""
    _check_callable(given, what, arguments)
    assert callable(given)
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):  # some functions in C do not say
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
                "other, so that their order and their offsets hold: write `def` and wait inside, or map_values_async"
            )


def _check_topics(given: object, what: str) -> None:
    for topic in _items(given):
        if isinstance(topic, str):
            check_topic(topic)
        elif not isinstance(topic, re.Pattern) and not callable(topic):
            raise TopologyError(f"{what} is {kind_of(topic)}, not the name of a topic")


def _check_store_names(given: object, what: str) -> None:
    for store in _items(given):
        if isinstance(store, StoreBuilder):
            raise TopologyError(
                f"{what} has the declaration of store {store.name!r}; it takes names: call add_state_store with the "
                f"declaration, and give stores=[{store.name!r}]"
            )
        if not isinstance(store, str):
            raise TopologyError(f"{what} has {kind_of(store)}; it takes names of stores that add_state_store has added")


def _check_store_builder(given: object, what: str) -> None:
    if not isinstance(given, StoreBuilder):
        raise TopologyError(f"{what} is {kind_of(given)}, not a declaration such as key_value_store('name')")


def _check_name(given: object, what: str) -> None:
    if not isinstance(given, str):
        raise TopologyError(f"{what} is {kind_of(given)}; it takes a name, as text")


def _check_materialized(given: object, what: str) -> None:
    if isinstance(given, str):
        raise TopologyError(f"{what} is text; write store={given!r}")


def _items(given: object) -> Iterable[object]:
    """One or several; iterators are not used up."""
    return given if isinstance(given, list | tuple | set | frozenset) else (given,) if not _is_lazy(given) else ()


def _is_lazy(given: object) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str)


def _title(given: object) -> str:
    name = str(getattr(given, "__name__", type(given).__name__))
    return "the lambda" if name == "<lambda>" else name
