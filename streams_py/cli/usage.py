"""How a command ends that was used wrongly, that could not do what it was asked for, or that found something bad."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from streams_py.errors import ConfigError
from streams_py.system.printable import printable

__all__ = ["FAILED", "NOT_DONE", "pairs_of", "refuse", "say"]

FAILED: Final = 1
"""The exit status when the command did its work, and what it found is bad: a verification that fails, an upgrade that
is not safe, a record that is not what was said, an application that ended with an error."""
NOT_DONE: Final = 2
"""The exit status when the command could not do its work: wrong usage, a cluster that is away or refuses, no such
group, a port in use."""


def say(why: object) -> None:
    """Print it in one line, where errors go. It may quote names that somebody else chose."""
    print(printable(" ".join(str(why).split())), file=sys.stderr)


def refuse(why: object) -> int:
    """Say in one sentence why a command could not do its work; the exit status."""
    say(why)
    return NOT_DONE


def pairs_of(
    given: Iterable[str] | None, option: str, form: str = "KEY=VALUE", *, each_once: bool = False
) -> dict[str, str]:
    """What an option of the form KEY=VALUE was given, which may be repeated; the last one counts, unless a key may be
    there ``each_once`` only. ConfigError for another form."""
    pairs = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{option} {text!r}: write {form}", key=option)
        if each_once and key.strip() in pairs:
            raise ConfigError(f"{option} {key.strip()}: it is given twice; give it once", key=option)
        pairs[key.strip()] = value.strip()
    return pairs
