"""Proof that a process of this host has ended, for files that outlive the process that wrote them.

The number of a process alone proves nothing: the system reuses numbers, and each container counts from 1. So an
identity also has the start time of the process, its pid namespace, and the boot of its kernel. An identity of another
kernel is never judged: it may be another host, on which the process still runs.

A process in another pid namespace of the same kernel is invisible. Only the lock that it holds on a file tells whether
it lives, and only on a file system whose locks are known to work (:func:`has_reliable_locks`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_FILE_MAX: Final = 1 << 20
_START_FIELD: Final = 19
"""Index of the start time in ``/proc/<pid>/stat``, counted from the state after the name in parentheses."""
_ENDED_STATES: Final = frozenset("ZXx")
_LOCKS_WORK: Final = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems whose record locks the kernel itself keeps, for all processes that can open the file."""


class Life(Enum):
    """What is known about a process."""

    ENDED = "ended"
    """The process no longer exists."""
    ALIVE = "alive"
    INVISIBLE = "invisible"
    """The process ran under this kernel, in another pid namespace."""
    UNKNOWN = "unknown"
    """The process may have run on another host, or the system does not tell."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, identified for all time and all hosts.

    Attributes:
        pid: Its number in its pid namespace.
        start_ticks: Its start, in clock ticks since the boot.
        boot_id: Random id of the boot of its kernel.
        pid_namespace: Inode number of its pid namespace.
    """

    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: int

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Return the identity of a process in this process's pid namespace. None if the system does not tell."""
        boot_id, namespace, status = _boot_id(), _pid_namespace(), _status(pid)
        if boot_id is None or namespace is None or status is None:
            return None
        return cls(pid, status[1], boot_id, namespace)

    def life(self) -> Life:
        """Return what is known about this process."""
        if (boot_id := _boot_id()) is None or boot_id != self.boot_id:
            return Life.UNKNOWN
        namespace = _pid_namespace()
        if namespace != self.pid_namespace:
            return Life.INVISIBLE
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return Life.ENDED
        except (OSError, OverflowError):  # it belongs to another user
            pass
        status = _status(self.pid)
        if status is None:
            return Life.UNKNOWN
        state, start_ticks = status
        if start_ticks != self.start_ticks:
            return Life.ENDED
        return Life.ENDED if state in _ENDED_STATES and _is_alone(self.pid) else Life.ALIVE


def has_reliable_locks(file: int) -> bool:
    """Whether the kernel keeps the record locks of an open file for all processes, according to its file system.

    False for network and user-space file systems, and when the file system is unknown.
    """
    try:
        lines = _read(_PROC / "self" / "fdinfo" / str(file)).splitlines()
        mount_id = next(line.split()[1] for line in lines if line.startswith("mnt_id:"))
        for line in _read(_PROC / "self" / "mountinfo").splitlines():
            fields = line.split()
            if fields[0] == mount_id:
                return fields[fields.index("-") + 1] in _LOCKS_WORK
    except (OSError, ValueError, IndexError, StopIteration):
        return False
    return False


def _boot_id() -> str | None:
    try:
        return _read(_PROC / "sys" / "kernel" / "random" / "boot_id").strip() or None
    except (OSError, ValueError):
        return None


def _pid_namespace() -> int | None:
    """Return the inode number of this process's pid namespace. None if ``/proc`` belongs to another namespace."""
    try:
        if os.readlink(_PROC / "self") != str(os.getpid()):
            return None
        return os.stat(_PROC / "self" / "ns" / "pid").st_ino
    except OSError:
        return None


def _status(pid: int) -> tuple[str, int] | None:
    """Return the state letter of a process and its start in ticks since the boot."""
    try:
        fields = _read(_PROC / str(pid) / "stat").rpartition(")")[2].split()
        return fields[0], int(fields[_START_FIELD])
    except (OSError, ValueError, IndexError):
        return None


def _is_alone(pid: int) -> bool:
    """Whether the main thread is the only thread left. A main thread that has ended may leave others behind."""
    try:
        return len(os.listdir(_PROC / str(pid) / "task")) <= 1
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _read(path: Path) -> str:
    with open(path, "rb") as file:
        return file.read(_FILE_MAX).decode("utf-8", "replace")
