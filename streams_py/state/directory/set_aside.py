"""Folders for local state that an application cannot use. The state is kept there, and the task is restored.

They are in the directory of the instance, and contain the task's directory (or ``global``)::

    of-another-library/0_3     files that another library or a later version wrote (state_directory.py)
    of-another-layout/0_3      a copy of the task's database, made before stores in it were emptied because their
                               declaration has changed (state/disk/kept_copy.py)

An existing copy is never replaced: the next one is ``0_3.2``. Copies are deleted only by ``clean_up()`` or ``streams-py
reset --state-dir``. The cleaner ignores both folders, because their names are not task ids.
"""

from __future__ import annotations

import itertools
import os
from typing import Final

ANOTHER_LIBRARY: Final = "of-another-library"
ANOTHER_LAYOUT: Final = "of-another-layout"


def free_place(folder: str, name: str) -> str:
    """Return an unused path in ``folder``: ``name``, or ``name`` with a number. OSError if the folder is unreadable."""
    taken = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(2)))
    return os.path.join(folder, next(one for one in names if one not in taken))
