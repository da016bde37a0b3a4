"""How a command ends that was used wrongly, or that could not do what it was asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from streams_py.errors import BrokerUnavailableError, ConfigError, StreamsError

__all__ = ["FAILED", "WRONG_USAGE", "failed", "pairs_of", "refuse", "say"]

FAILED: Final = 1
"""The exit status when the same command may work later."""
WRONG_USAGE: Final = 2
"""The exit status when the command has to change."""


def say(why: object) -> None:
    """Print it in one line, where errors go."""
    print(" ".join(str(why).split()), file=sys.stderr)


def refuse(why: str) -> int:
    """Say in one sentence what is wrong; the exit status."""
    say(why)
    return WRONG_USAGE


def failed(error: StreamsError) -> int:
    """Say what became of a command; the exit status: a broker without answer may answer later."""
    say(error)
    return FAILED if isinstance(error, BrokerUnavailableError) else WRONG_USAGE


def pairs_of(given: Iterable[str] | None, option: str) -> dict[str, str]:
    """What an option of the form KEY=VALUE was given, which may be repeated. ConfigError for another form."""
    pairs = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{option} {text!r}: write KEY=VALUE", key=option)
        pairs[key.strip()] = value.strip()
    return pairs
