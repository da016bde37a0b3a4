"""Python's search for cycles of objects, done seldom while millions of records pass through a worker.

Every record is a few new objects without cycles. Looking for cycles among them, every 700 objects, takes longer than
reading them, and a quarter of the time in which a history is processed.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["rare_collections"]

_OBJECTS_BETWEEN_COLLECTIONS: Final = 200_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Within, and while a generator within waits. For workers, which do nothing else."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
