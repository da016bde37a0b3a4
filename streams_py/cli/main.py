"""The entry point of ``streams-py``.

Each command is a module that is loaded when the command is used. Only the commands ``simulate``, ``torture`` and
``new`` use the test kit (:mod:`streams_py.testing`), which is loaded with them.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line."""
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
    # SIGTERM acts like Ctrl-C, so that a command also cleans up its processes, mounts and output when it is stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()
