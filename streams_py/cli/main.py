"""``streams-py``: what the library can say about itself and about your application, from a shell.

Each command is a module of its own, loaded when it is used. The commands ``simulate`` and ``fuzz`` use the test
kit (:mod:`streams_py.testing`); they are the only place outside of it that may, and only inside a command.
"""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the command."""
    try:
        from streams_py.cli.commands import app
    except ImportError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        print(
            "streams-py needs two more packages; install them with: pip install 'kafka-streams-py[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    # As Ctrl-C: what a command has started, mounted or half shown is put away by whoever ends it, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()
