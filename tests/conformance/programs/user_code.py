"""User functions and processors of the recorded topology programs (:mod:`.topology_programs`)."""

from __future__ import annotations

from typing import Any, TypeVar

from streams_py.serdes import Windowed
from streams_py.topology.declare.nodes import Punctuation
from streams_py.topology.declare.processor import (
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    Processor,
    ProcessorContext,
    Record,
)

T = TypeVar("T")


def show(value: object) -> str:
    """Format text unchanged, numbers in decimal, None as "-", and windowed keys with their window."""
    if isinstance(value, Windowed):
        return f"{show(value.key)}@{value.start}:{value.end}"
    return "-" if value is None else str(value)


def upper(value: str | None) -> str | None:
    """Upper case; None stays None."""
    return None if value is None else value.upper()


def length(value: str | None) -> int:
    """Number of characters, 0 for None."""
    return 0 if value is None else len(value)


def first(value: str | None) -> Any:
    """Return the first character; None if the text is empty."""
    return value[0] if value else None


def has(value: str | None, part: str) -> bool:
    """Whether ``part`` occurs in the value."""
    return value is not None and part in value


def tail(text: str, count: int) -> str:
    """The last ``count`` characters."""
    return text[-count:]


def push(aggregate: object, value: object) -> str:
    """Both with a comma between, cut to 12 characters."""
    return tail(f"{show(aggregate)},{show(value)}", 12)


def cat(left: object, right: object) -> str:
    """Both with a plus sign between, cut to 24 characters."""
    return tail(f"{show(left)}+{show(right)}", 24)


def num(value: int | None) -> int:
    """The number, 0 for None."""
    return 0 if value is None else value


def noop(*anything: object) -> None:
    """Nothing."""


class Counter(Processor[str | None, str | None, str | None, str]):
    """Counts per key in a plain store. A punctuator forwards all counts and removes those at a limit."""

    def __init__(self, store: str, period_ms: int, clock: Punctuation, limit: int) -> None:
        self._store_name = store
        self._period_ms = period_ms
        self._clock = clock
        self._limit = limit

    def init(self, context: ProcessorContext[str | None, str]) -> None:
        super().init(context)
        self._store: Any = context.get_state_store(self._store_name)
        context.schedule(self._period_ms, self._clock, self._punctuate)

    def process(self, record: Record[str | None, str | None]) -> None:
        if record.key is None:
            self.context.forward(record.with_value("no key"))
            return
        count = (self._store.get(record.key) or 0) + 1
        self._store.put(record.key, count)
        self.context.forward(record.with_value(f"{show(record.value)}#{count}"))

    def _punctuate(self, time_ms: int) -> None:
        for key, count in list(self._store.all()):
            self.context.forward(Record(key, f"p{count}", time_ms))
            if count >= self._limit:
                self._store.delete(key)


class Previous(FixedKeyProcessor[str | None, str | None, str]):
    """Remembers the last value of each key in a timestamped store and sends old and new on."""

    def __init__(self, store: str) -> None:
        self._store_name = store

    def init(self, context: FixedKeyProcessorContext[str | None, str]) -> None:
        super().init(context)
        self._store: Any = context.get_state_store(self._store_name)

    def process(self, record: FixedKeyRecord[str | None, str | None]) -> None:
        if record.key is None:
            return
        old = self._store.get(record.key)
        if record.value is None:
            self._store.delete(record.key)
        else:
            self._store.put(record.key, (record.value, record.timestamp))
        before = "-" if old is None else f"{old[0]}/{old[1]}"
        self.context.forward(record.with_value(f"{before}>{show(record.value)}"))


class Router(Processor[str | None, str | None, str | None, str | None]):
    """Adds a header and chooses one of two children."""

    def process(self, record: Record[str | None, str | None]) -> None:
        child = "left" if has(record.value, "a") else "right"
        self.context.forward(record.add_header("seen", b"\x01"), child=child)


class Lookup(Processor[str | None, str | None, str | None, str]):
    """Adds what a store has for the key."""

    def __init__(self, store: str) -> None:
        self._store_name = store

    def process(self, record: Record[str | None, str | None]) -> None:
        store = self.context.get_state_store(self._store_name)
        found = None if record.key is None else store.get(record.key)
        self.context.forward(record.with_value(cat(record.value, found)))


class Writer(Processor[str | None, str | None, None, None]):
    """Stores the last value of each key."""

    def __init__(self, store: str) -> None:
        self._store_name = store

    def process(self, record: Record[str | None, str | None]) -> None:
        if record.key is not None:
            self.context.get_state_store(self._store_name).put(record.key, record.value)


class UpperGlobal(Processor[str | None, str | None, None, None]):
    """Stores the last value of each key in capitals."""

    def __init__(self, store: str) -> None:
        self._store_name = store

    def process(self, record: Record[str | None, str | None]) -> None:
        if record.key is not None:
            self.context.get_state_store(self._store_name).put(record.key, upper(record.value))
