"""A folder for nodes that end with this process, however it ends.

``atexit`` is enough for a process that ends by itself. One that gets SIGTERM or SIGKILL runs nothing any more, and a
node it has started would stay, with its memory and its ports. So a shell waits for the end of a pipe that only this
process holds open: the operating system closes it.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["TemporaryFolder"]

_SETTLE_S: Final = 10.0
_GUARD: Final = """
read -r _
ps -axww -o pid=,command= | while read -r pid command; do
    case "$command" in *"$1"/node-*.properties) kill -9 "$pid" ;; esac
done
rm -rf "$1" 2>/dev/null || { sleep 1; rm -rf "$1"; }
"""


class TemporaryFolder:
    """``end`` stops what runs in it; it is called by :meth:`close`, and at exit unless that came first."""

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
        self.end: Callable[[], None] = lambda: None
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "sh", str(self.path)], stdin=subprocess.PIPE, start_new_session=True
        )
        atexit.register(self.close)

    def close(self) -> None:
        """End what runs, remove the folder."""
        atexit.unregister(self.close)
        self.end()
        shutil.rmtree(self.path, ignore_errors=True)
        self._guard.communicate(timeout=_SETTLE_S)
