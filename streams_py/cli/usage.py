"""Exit statuses and messages of a command that failed or found something bad."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from streams_py.errors import ConfigError
from streams_py.system.printable import printable

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
