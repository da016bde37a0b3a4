"""The directory of an instance without persistent stores: it has only a lock and the record of the group members.

It has the same layout as a state directory, so the same code finds the directories of all instances on a host. The
application works without it: if the directory cannot be used, the members are not on record. Another user of the host
can create the directory first. It is then not used, and a warning says so.
"""

from __future__ import annotations

import logging
import os
import tempfile
from typing import IO, NamedTuple

from streams_py.errors import StateError
from streams_py.state.directory.instances import lock_directory, unlock_directory, usable_directories
from streams_py.system.printable import text_of
from streams_py.system.private_files import FOLDER_MODE, UntrustedPathError, check_shared_folder, make_folder

_log = logging.getLogger(__name__)


class LockedFolder(NamedTuple):
    """A directory that this instance has locked, and its open lock file.

    ``application`` is the directory of the application. It contains the directories of all instances.
    """

    path: str
    lock: IO[bytes]
    application: str


def default_run_directory() -> str:
    """Return the folder of this user for all applications, if ``state.dir`` is not set."""
    return os.path.join(tempfile.gettempdir(), f"kafka-streams-run-{os.geteuid()}")


def run_directories(state_dir: str | None, application_id: str) -> str:
    """Return the directory that contains the run directories of an application. See :func:`lock_run_directory`."""
    return os.path.join(os.path.abspath(state_dir or default_run_directory()), application_id)


def lock_run_directory(state_dir: str | None, application_id: str) -> LockedFolder | None:
    """Lock the first directory of the application that no other instance uses. None if that is not possible.

    Args:
        state_dir: ``state.dir``. None: it is not set, so the directory is in a folder of this user below the temporary
            folder. The default of ``state.dir`` is one folder for all users, and its first user would exclude the
            others.
    """
    application = run_directories(state_dir, application_id)
    base = os.path.dirname(application)
    try:
        os.makedirs(base, mode=FOLDER_MODE, exist_ok=True)
        check_shared_folder(base)
        make_folder(application)
        for path in usable_directories(application, None):
            make_folder(path)
            lock = lock_directory(path)
            if lock is not None:
                return LockedFolder(path, lock, application)
    except UntrustedPathError as error:
        _log.warning(
            "group members are not on record, because another user could change their directory: %s; "
            "set state.dir to a folder of this user",
            text_of(error),
        )
    except (OSError, StateError) as error:
        _log.info("group members are not on record, because their directory cannot be used: %s", text_of(error))
    return None


def unlock_run_directory(folder: LockedFolder) -> None:
    """Release the directory."""
    unlock_directory(folder.path, folder.lock)
