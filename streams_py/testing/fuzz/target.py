"""What is fed, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

__all__ = ["Finding", "FuzzResult", "Read", "Target", "from_bytes", "from_text"]

T = TypeVar("T")

Read: TypeAlias = Callable[[bytes, Path], object]
"""Reads bytes; the folder is there for readers of files."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that did what none may do."""

    target: str
    what: str
    data: bytes


@dataclass(slots=True)
class FuzzResult:
    """What became of one target's inputs. Times in seconds of processor time, memory in bytes."""

    target: str
    inputs: int = 0
    input_bytes: int = 0
    values: int = 0
    """Inputs that were read as a value."""
    refused: Counter[str] = field(default_factory=Counter)
    """Inputs that were refused, by the name of the error."""
    seconds: float = 0.0
    slowest: float = 0.0
    most_memory: int = 0
    """Most that was held beyond the input, of those that were measured."""
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Target:
    """A reader of other people's bytes.

    ``read`` returns a value or raises one of ``allowed``. ``samples`` makes good inputs, in an empty folder of its own
    if it needs one; ``vectors`` names a file of recorded ones and the kind of case in it (empty: all). With ``write``,
    what was read is written and must read as the ``same``; None from it says that there is no way back.
    """

    read: Read
    allowed: tuple[type[Exception], ...]
    samples: Callable[[Path], Sequence[bytes]]
    vectors: tuple[str, str] | None = None
    write: Callable[[object], bytes | None] | None = None
    same: Callable[[object, object], bool] = lambda a, b: a == b
    memory_factor: int = 4
    """What the reader may hold, in times its input; there is a megabyte on top."""
    memory_bytes_max: int = 0
    """What the reader may hold whatever the size of the input, where few bytes name many things, or only the user
    himself writes them."""
    input_bytes_max: int = 1 << 20
    """Inputs are not larger than this."""


def from_bytes(decode: Callable[[bytes], object]) -> Read:
    """A reader that needs no folder."""
    return lambda data, folder: decode(data)


def from_text(parse: Callable[[str], object]) -> Read:
    """A reader of text; bytes that are none are a UnicodeDecodeError, which is a ValueError."""
    return lambda data, folder: parse(data.decode())
