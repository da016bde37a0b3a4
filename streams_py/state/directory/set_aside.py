"""State that an application finds in its place and cannot use: it is kept beside, and the task is restored.

Below the directory of the instance, by the name of the task (or ``global``)::

    of-another-library/0_3     files that are not ours, or of a later version (:mod:`.directory`)
    of-another-layout/0_3      a copy of the task's database, made before stores of it that are declared otherwise by
                               now were emptied (:mod:`.disk.kept_copy`)

What is there already is never replaced: the next one is ``0_3.2``. Nothing deletes it before somebody says so, with
``clean_up()`` or ``streams-py reset --state-dir``: neither folder has a task's name, so the cleaner passes by.
"""

from __future__ import annotations

import itertools
import os
from typing import Final

__all__ = ["ANOTHER_LAYOUT", "ANOTHER_LIBRARY", "free_place"]

ANOTHER_LIBRARY: Final = "of-another-library"
ANOTHER_LAYOUT: Final = "of-another-layout"


def free_place(folder: str, name: str) -> str:
    """A path in ``folder`` that nothing has, for what is called ``name``. OSError when the folder cannot be listed."""
    taken = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(2)))
    return os.path.join(folder, next(one for one in names if one not in taken))
