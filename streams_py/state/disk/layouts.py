"""How the files of a store are laid out, and what happens when a new version of a program wants them otherwise.

The keys of window and session stores begin with the number of a segment, whose length follows from size and retention;
a time to live puts a timestamp before each value, and counts time in steps that follow from it: what was put under
steps of another length would never be removed. Files of another layout cannot be read. The database says beside the
positions how each store is kept, so that a store whose declaration has changed starts empty and is restored from its
changelog topic, which has Kafka Streams' format whatever the declaration. What it was is kept (:mod:`.kept_copy`): an
earlier version of the program may want it back, and a store without a changelog is nowhere else.
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

__all__ = ["layout_of", "set_changed_aside"]

_logger = logging.getLogger(__name__)


def layout_of(builder: StoreBuilder) -> str:
    """How the files of a store are laid out, in words."""
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
    """Empty the stores on disk whose files are laid out otherwise than declared, and forget their positions, those of
    ``changelogs_of(store)``, when a copy of the database is kept beside. The stores are not open yet. StateError when
    it cannot be kept: then nothing was emptied."""
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
    copy.finish()  # also what a process that was killed before this line had begun


def _empty(
    database: TaskDatabase, name: str, before: str, now: str, changelogs: Collection[TopicPartition], place: str
) -> None:
    _logger.warning(
        "store %s in %s was kept as %s and is now declared as %s: it starts empty%s. All as it was before is kept in "
        "%s; delete that when nobody wants it back",
        name,
        os.path.dirname(database.path),
        before,
        now,
        " and is restored from its changelog topic" if changelogs else ", and has no changelog to be restored from",
        place,
    )
    database.forget(changelogs)
    database.store(name).clear()
