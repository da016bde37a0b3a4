"""Waits for the end of embedded clusters.

A server runs for 1.5 s after its last user has closed, and writes to its folder until then.
"""

from __future__ import annotations

import fcntl
from functools import partial
from pathlib import Path

from streams_py.adapters.confluent.embedded import server
from tests.support.waiting import until


def wait_for_end(runtime_dir: Path) -> None:
    """Wait until no embedded cluster runs in ``runtime_dir``, the ``XDG_RUNTIME_DIR`` of its users."""
    for lock in runtime_dir.glob(f"streams-py-*/embedded-*/{server.SERVER_LOCK}"):
        until(partial(_is_free, lock), f"the end of the cluster in {lock.parent}")


def _is_free(lock: Path) -> bool:
    with server.locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB) as free:
        return free
