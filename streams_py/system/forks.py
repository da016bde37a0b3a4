"""Objects of this library in a forked process.

``os.fork()`` copies the memory of a process and only one of its threads. Other threads do not run in the child: stream
threads, Kafka clients, RocksDB's flushes. An object that needs such threads registers here an action for its copy in
the child. The child runs the actions before any other code.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

T = TypeVar("T")

_actions: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()
_EXIT: Final = "_exit"


def when_forked(thing: T, action: Callable[[T], None]) -> None:
    """Call ``action(thing)`` in each forked child while ``thing`` exists. ``thing`` needs an identity hash."""
    _hook()
    _actions[thing] = action


def keep_undestroyed(thing: object) -> None:
    """Never destroy an object of this process, nor what it refers to.

    Closing the copy of a database or of a Kafka client waits for threads that the child does not have.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def end_without_destructors() -> None:
    """Make this process skip the destructors of C++ libraries when it exits; its exit status stays.

    RocksDB's destructors wait for threads that a forked child does not have, and crash. Python has run its own exit
    handlers and flushed its files by then. Without glibc's ``on_exit`` this does nothing.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "on_exit"):  # its function gets (status, argument), and _exit takes the status
        library.on_exit(ctypes.cast(getattr(library, _EXIT), ctypes.c_void_p), None)


@cache
def _hook() -> None:
    os.register_at_fork(after_in_child=_forked)


def _forked() -> None:
    things = list(_actions.items())
    _actions.clear()  # not needed in children of this process
    for thing, action in things:
        action(thing)
