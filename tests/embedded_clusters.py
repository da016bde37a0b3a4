"""The end of embedded clusters: a server outlives its last user by 1.5 s, and writes in its folder until then."""

from __future__ import annotations

import fcntl
from functools import partial
from pathlib import Path

from streams_py.adapters.confluent.embedded import server
from tests.waiting import until

__all__ = ["wait_for_end"]


def wait_for_end(runtime_dir: Path) -> None:
    """Wait until no embedded cluster runs in ``runtime_dir``, which their users have as ``XDG_RUNTIME_DIR``."""
    for lock in runtime_dir.glob(f"streams-py-*/embedded-*/{server.SERVER_LOCK}"):
        until(partial(_is_free, lock), f"the end of the cluster in {lock.parent}")


def _is_free(lock: Path) -> bool:
    with server.locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB) as free:
        return free
