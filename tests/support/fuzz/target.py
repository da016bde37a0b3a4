"""Fuzz targets and their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Read: TypeAlias = Callable[[bytes, Path], object]
"""Function that reads bytes. The folder is for readers of files."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that violated the rules for readers."""

    target: str
    what: str
    data: bytes


@dataclass(slots=True)
class FuzzResult:
    """The results of one target."""

    target: str
    inputs: int = 0
    values: int = 0
    """Number of inputs that were read as a value."""
    refused: Counter[str] = field(default_factory=Counter)
    """Number of rejected inputs by the name of the error."""
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Target:
    """A reader of untrusted bytes.

    Attributes:
        read: Returns a value or raises one of ``allowed``.
        allowed: Errors that ``read`` may raise.
        samples: Returns valid inputs; gets a temporary folder.
        vectors: File of recorded inputs and the kind of case in it (empty: all).
        write: Writes a value back. The result must read as the ``same`` value. None: this value cannot be written.
        same: Whether two values are equal.
    """

    read: Read
    allowed: tuple[type[Exception], ...]
    samples: Callable[[Path], Sequence[bytes]]
    vectors: tuple[str, str] | None = None
    write: Callable[[object], bytes | None] | None = None
    same: Callable[[object, object], bool] = lambda a, b: a == b
    memory_factor: int = 4
    """Memory that the reader may use, as a multiple of its input, plus one megabyte."""
    memory_bytes_max: int = 0
    """Memory that the reader may use for an input of any size.

    For formats in which few bytes stand for many objects, or which only the user writes."""
    input_bytes_max: int = 1 << 20
    """Maximum size of an enlarged input, in bytes."""


def from_bytes(decode: Callable[[bytes], object]) -> Read:
    """Return a reader that needs no folder."""
    return lambda data, folder: decode(data)


def from_text(parse: Callable[[str], object]) -> Read:
    """Return a reader of text. Invalid UTF-8 raises UnicodeDecodeError, which is a ValueError."""
    return lambda data, folder: parse(data.decode())
