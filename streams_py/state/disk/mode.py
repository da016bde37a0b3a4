"""How the files of an open database are used at present."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import RLock
from typing import Any


@dataclass(slots=True)
class Mode:
    """The state that a database shares with its stores and with the bulk load into it."""

    closing: Any = field(default_factory=RLock)
    """Lock that is held while a checkpoint or a flush needs the database and its stores open."""
    batch: Any = None
    """The batch that a restore is filling; None at other times."""
    is_loading: bool = False
    """Whether the database is open for loading: fast writes in any key order, slow reads."""
    is_read: bool = False
    """Whether files were read since records were last restored."""
    is_shuffled: bool = False
    """Whether the keys restored last were not in key order."""
    merges_late: bool = False
    """Whether files are merged later than in a database that is read."""
    loaded_bytes: int = 0
    """Bytes loaded since the last flush or check for disk back-pressure."""
