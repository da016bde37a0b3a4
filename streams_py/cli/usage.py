"""Exit statuses and messages of a command that failed or found something bad."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final, ParamSpec

from streams_py.errors import ConfigError, StreamsError
from streams_py.system.printable import printable

P = ParamSpec("P")

FAILED: Final = 1
"""Exit status of a command that did its work and found something bad.

Examples: a failed verification, an upgrade that is not safe, a record that does not match its serde, an application
that stopped with an error.
"""
NOT_DONE: Final = 2
"""Exit status of a command that could not do its work.

Examples: wrong usage, a cluster that does not answer or rejects the request, an unknown group, a port in use.
"""


def say(why: object) -> None:
    """Print a message in one line on standard error.

    Escapes control characters, because the message may quote names that others chose.
    """
    print(printable(" ".join(str(why).split())), file=sys.stderr)


def refuse(why: object) -> int:
    """Print in one sentence why a command could not do its work. Returns the exit status."""
    say(why)
    return NOT_DONE


class RefusedError(StreamsError):
    """A request that a command cannot carry out."""


def refusing(command: Callable[P, int]) -> Callable[P, int]:
    """Decorate a command, which returns its exit status, so that errors of this library become one sentence.

    The exit status is then :data:`NOT_DONE`. Other errors propagate.
    """

    @functools.wraps(command)
    def refuse_or_run(*args: P.args, **options: P.kwargs) -> int:
        try:
            return command(*args, **options)
        except StreamsError as error:
            return refuse(error)

    return refuse_or_run


@contextlib.contextmanager
def cut_off_output() -> Iterator[None]:
    """Accept that the reader of standard output stops early, as ``head`` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def pairs_of(
    given: Iterable[str] | None, option: str, form: str = "KEY=VALUE", *, each_once: bool = False
) -> dict[str, str]:
    """Parse the values of a repeatable option of the form KEY=VALUE.

    If a key occurs twice, the last value counts, or ``each_once`` makes it an error.

    Raises:
        ConfigError: A value has another form, or a key occurs twice although ``each_once`` is set.
    """
    pairs = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{option} {text!r}: expected {form}", key=option)
        if each_once and key.strip() in pairs:
            raise ConfigError(f"{option} {key.strip()}: given twice; give it once", key=option)
        pairs[key.strip()] = value.strip()
    return pairs
