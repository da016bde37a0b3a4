"""RocksDB's library in a forked process.

RocksDB keeps its threads, their locks and the flushes that wait for them in variables of the library. In a forked child
the threads are gone, but the library still counts them: a flush waits forever, or would write into a database of the
parent. So the child loads the library a second time, from a copy of its file, which starts without threads.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import tempfile
from types import ModuleType
from typing import Final

import rocksdict

from streams_py.errors import StateError

_MODULE: Final = "rocksdict.rocksdict"
_file: Final = sys.modules[_MODULE].__file__ or ""
_loaded = {"pid": os.getpid()}
"""Id of the process that loaded the library in use."""


def use_own_library() -> None:
    """Load a second copy of the RocksDB library if this process was forked after the library was loaded.

    Databases that were opened before the fork keep using the old copy.

    Raises:
        StateError: The library cannot be loaded.
    """
    if _loaded["pid"] == os.getpid():
        return
    try:
        loaded = _load_copy()
    except (OSError, ImportError) as error:
        raise StateError(
            f"RocksDB cannot be loaded a second time in this forked process ({error}): start a new process instead, "
            "for example with multiprocessing's start method spawn"
        ) from error
    for name, thing in vars(loaded).items():
        if not name.startswith("__") and hasattr(rocksdict, name):
            setattr(rocksdict, name, thing)
    _loaded["pid"] = os.getpid()


def _load_copy() -> ModuleType:
    with open(_file, "rb") as original:
        content = original.read()
    if hasattr(os, "memfd_create"):  # in memory: a temporary folder may be mounted with noexec
        file = os.memfd_create("rocksdict")
        with open(file, "wb", buffering=0) as copy:
            copy.write(content)
            return _load(f"/proc/self/fd/{file}")
    with tempfile.NamedTemporaryFile(suffix=".so") as copied:
        copied.write(content)
        copied.flush()
        return _load(copied.name)


def _load(path: str) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(_MODULE, path)
    spec = importlib.util.spec_from_file_location(_MODULE, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[_MODULE] = module
    return module
