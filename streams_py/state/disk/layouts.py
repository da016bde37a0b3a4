"""The layout of a store's files, and what happens when a new version of a program declares a different one.

Two declarations change the layout:

* In window and session stores, keys start with a segment number. The length of a segment follows from window size and
  retention.
* With a time to live, a timestamp precedes each value, and expiry works in time steps whose length follows from the
  time to live. Entries that were put with another step length would never be removed.

Files with another layout cannot be read. So the database stores, next to the positions, the layout of each store. A
store whose declared layout has changed starts empty and is restored from its changelog topic, which has Kafka Streams'
format for every declaration. The old files are kept (:mod:`.kept_copy`): an earlier version of the program may need
them again, and a store without a changelog exists nowhere else.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from streams_protocol.types import TopicPartition
from streams_py.state.disk.kept_copy import KeptCopy
from streams_py.state.stores.expiring import bucket_ms
from streams_py.topology.declare.stores import StoreBuilder

if TYPE_CHECKING:
    from streams_py.state.disk.database import TaskDatabase

_logger = logging.getLogger(__name__)


def layout_of(builder: StoreBuilder) -> str:
    """Return the layout of a store's files, in words."""
    words = [f"a {builder.kind.value} store"]
    if builder.windows is not None:
        words.append(f"with segments of {builder.windows.segment_ms} ms")
    if builder.ttl_ms is not None:
        words.append(f"with a time to live in steps of {bucket_ms(builder.ttl_ms)} ms")
    return " ".join(words)


def set_changed_aside(
    database: TaskDatabase,
    builders: Collection[StoreBuilder],
    changelogs_of: Callable[[str], Collection[TopicPartition]],
) -> None:
    """Empty the stores on disk whose layout is not the declared one, after copying the database.

    The positions of their changelogs are deleted too. The stores are not open yet.

    Args:
        database: The database of the stores.
        builders: The declarations of the stores on disk.
        changelogs_of: Returns the changelog partitions of a store, given its name.

    Raises:
        StateError: The database cannot be copied. No store was emptied then.
    """
    known = database.layouts()
    wanted: Mapping[str, str] = {builder.name: layout_of(builder) for builder in builders}
    changed = [
        name for name, layout in wanted.items() if name in database.found_stores and known.get(name, layout) != layout
    ]
    copy = KeptCopy(database)
    if changed:
        place = copy.make()
        for name in changed:
            _empty(database, name, known[name], wanted[name], changelogs_of(name), place)
    if any(known.get(name) != layout for name, layout in wanted.items()):
        database.note_layouts(wanted)
    copy.finish()  # even if nothing changed: an earlier process may have been killed before this line


def _empty(
    database: TaskDatabase, name: str, before: str, now: str, changelogs: Collection[TopicPartition], place: str
) -> None:
    _logger.warning(
        "store %s in %s was stored as %s and is now declared as %s: it starts empty%s. A copy of the old files is kept "
        "in %s; delete it when it is no longer needed",
        name,
        os.path.dirname(database.path),
        before,
        now,
        " and is restored from its changelog topic" if changelogs else ", and has no changelog to restore from",
        place,
    )
    database.forget(changelogs)
    database.store(name).clear()
