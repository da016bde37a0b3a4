"""Which errors report damaged or missing files of a database.

RocksDB checks a block of a file when it reads the block, so any thread can meet damage: the owner of the store, the
state updater, a query. The database keeps the first such error (:attr:`TaskDatabase.damage`). The owner of the stores
looks at it regularly, closes the stores and restores them.
"""

from __future__ import annotations

from typing import Final

from streams_py.errors import StateError
from streams_py.state.disk.options import remedy_for

_DAMAGE: Final = ("Corruption", "No such file")
"""Parts of RocksDB's error messages about damaged or missing files. The error for a locked database has neither."""


def is_damage(error: StateError) -> bool:
    """Whether an operation failed because files of a database are damaged or missing."""
    return remedy_for(error) is None and any(sign in str(error.__cause__) for sign in _DAMAGE)


def is_damage_in(path: str, error: StateError) -> bool:
    """Whether an operation failed because files of the database at ``path`` are damaged or missing."""
    return is_damage(error) and path in str(error.__cause__)
