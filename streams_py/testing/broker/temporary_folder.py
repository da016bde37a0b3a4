"""A temporary folder for nodes that must stop with this process, however it terminates.

``atexit`` covers a normal exit only. After SIGTERM or SIGKILL it does not run, and the nodes would keep their memory
and ports. So a shell process waits for the end of a pipe that only this process holds open. The operating system
closes the pipe when the process terminates, and the shell then kills the nodes.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

_SETTLE_S: Final = 10.0
_GUARD: Final = """
read -r _
ps -axww -o pid=,command= | while read -r pid command; do
    case "$command" in *"$1"/node-*.properties) kill -9 "$pid" ;; esac
done
rm -rf "$1" 2>/dev/null || { sleep 1; rm -rf "$1"; }
"""


class TemporaryFolder:
    """A temporary folder, and the function ``end`` that stops its nodes. :meth:`close` runs at exit at the latest."""

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
        self.end: Callable[[], None] = lambda: None
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "sh", str(self.path)], stdin=subprocess.PIPE, start_new_session=True
        )
        atexit.register(self.close)

    def close(self) -> None:
        """Stop the nodes and remove the folder."""
        atexit.unregister(self.close)
        self.end()
        shutil.rmtree(self.path, ignore_errors=True)
        self._guard.communicate(timeout=_SETTLE_S)
