"""Private files and folders on hosts with several users.

Another user of the host can create a folder before the application does, create a symbolic link under a name that the
application will use, or read files with permissive modes. So each folder of the application is checked when it is used:
it must be a real folder, belong to this user, and have the mode 0700. Then no other user can create, rename or read
anything in it, and paths below it are safe to use.

The parent folder, such as ``state.dir``, may be shared. It is accepted if no other user can rename or replace this
user's entries in it (:func:`check_shared_folder`).

New files in a private folder have the mode 0600, even if a library such as RocksDB creates them with 0644: a default
access control list on the folder removes the other bits, if the file system supports it. Otherwise the mode of the
folder protects the files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import secrets
import shutil
import stat
import struct
from collections.abc import Iterator
from typing import Final

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
_SHARED_FILE_MODE: Final = 0o666
"""Mode of outputs that other users may read, as far as the umask allows."""

_OTHERS: Final = 0o077
_LINKS_MAX: Final = 40
"""Number of links in a path, as in Linux."""
_TEMPORARY: Final = ".tmp"
_ACL_NAME: Final = "system.posix_acl_default"
_ACL_ENTRY: Final = struct.Struct("<HHI")
_ACL_VERSION: Final = struct.pack("<I", 2)
_ACL_OWNER, _ACL_GROUP, _ACL_OTHER = 0x01, 0x04, 0x20
_NO_ID: Final = 0xFFFFFFFF
_OWNER_ONLY: Final = _ACL_VERSION + b"".join(
    _ACL_ENTRY.pack(tag, rights, _NO_ID) for tag, rights in ((_ACL_OWNER, 7), (_ACL_GROUP, 0), (_ACL_OTHER, 0))
)
"""Linux's binary form of ``u::rwx,g::---,o::---``."""


class UntrustedPathError(PermissionError):
    """Another user of this host owns a path, or could replace it. The message names the path and the remedy."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(errno.EPERM, f"{path} {problem}", path)

    def __str__(self) -> str:
        return str(self.strerror)


# -- folders -----------------------------------------------------------------------------------------------------------


def make_folder(path: str) -> None:
    """Create a private folder, or check an existing one and restrict its mode. The parent folder must exist.

    Raises:
        UntrustedPathError: The path is a symbolic link, belongs to another user, or its mode cannot be restricted.
        OSError: The folder cannot be created, or the path is a file.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, FOLDER_MODE)
    with _opened_folder(path) as folder:
        _claim(folder, path)


def check_shared_folder(path: str) -> None:
    """Check that only this user and root can rename or replace this user's entries in a folder, and the folder itself.

    Others may have rights on the folder if it is sticky (as ``/tmp`` is) or a mount point (volumes of containers belong
    to root and are often writable for a group). A group that has this user as its only member counts as this user.

    Raises:
        UntrustedPathError: Another user has control of the folder, of a folder above it, or of a link in the path.
        OSError: The folder does not exist.
    """
    check_links(path)
    real = os.path.realpath(path)
    _check_writers(real, os.stat(real), is_shared=True)
    above = os.path.dirname(real)
    while above != os.path.dirname(above):
        _check_writers(above, os.stat(above), is_shared=False)
        above = os.path.dirname(above)


def check_links(path: str, depth: int = 0) -> None:
    """Check that no link in a path, or in the path that a link leads to, belongs to another user.

    Raises:
        UntrustedPathError: A link belongs to another user.
        OSError: The path does not exist.
    """
    if depth > _LINKS_MAX:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    above = os.path.abspath(path)
    while above != os.path.dirname(above):
        status = os.lstat(above)
        if stat.S_ISLNK(status.st_mode):
            if not _is_trusted(status.st_uid):
                raise UntrustedPathError(above, f"is a symbolic link of {_user(status.st_uid)}; use its target")
            check_links(os.path.join(os.path.dirname(above), os.readlink(above)), depth + 1)
        above = os.path.dirname(above)


def check_folder(path: str) -> None:
    """Check that only this user and root can create files in a folder. For files that an earlier process has written.

    Raises:
        UntrustedPathError: The path is a symbolic link, or another user has control of the folder.
        OSError: The folder does not exist, or is not a folder.
    """
    with _opened_folder(path) as folder:
        _check_writers(path, os.fstat(folder), is_shared=True)


def _check_writers(path: str, status: os.stat_result, *, is_shared: bool) -> None:
    """Check who can write to a folder.

    ``is_shared``: whether the folder directly contains this user's entries. Parent folders of it that are writable for
    an administrators' group are common, and accepted.
    """
    if not is_shared and os.path.ismount(path):
        return
    if not _is_trusted(status.st_uid):
        raise UntrustedPathError(
            path, f"belongs to {_user(status.st_uid)}, who could replace files of {_user(_uid())} in it; {_REMEDY}"
        )
    if status.st_mode & stat.S_ISVTX or os.path.ismount(path):
        return
    if status.st_mode & stat.S_IWOTH:
        raise UntrustedPathError(path, f"is writable for all users; remove the permission (chmod o-w), or {_REMEDY}")
    if is_shared and status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid):
        raise UntrustedPathError(
            path, f"is writable for group {status.st_gid}; remove the permission (chmod g-w), or {_REMEDY}"
        )


_REMEDY: Final = "use a folder that belongs to this user"


def _is_private_group(group: int) -> bool:
    """Whether this user is the only member of a group. On Debian and others, each user has such a group."""
    import grp

    try:
        name = pwd.getpwuid(_uid()).pw_name
        members = set(grp.getgrgid(group).gr_mem)
        primary = {entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == group}
    except (KeyError, OSError):
        return False
    return members | primary <= {name}


def close_to_others(folder: str) -> None:
    """Remove other users' permissions from the files in a private folder, which an older version may have created."""
    with contextlib.suppress(FileNotFoundError), _opened_folder(folder) as descriptor:
        for name in os.listdir(descriptor):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_mode & _OTHERS:
                    os.chmod(name, stat.S_IMODE(status.st_mode) & ~_OTHERS, dir_fd=descriptor)


@contextlib.contextmanager
def _opened_folder(path: str) -> Iterator[int]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if os.path.islink(path):
            raise _is_link(path) from error
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _claim(folder: int, path: str) -> None:
    status = os.fstat(folder)
    _check_owner(path, status)
    if status.st_mode & _OTHERS:  # created by an older version, or Kubernetes has assigned the volume to a group
        with contextlib.suppress(OSError):
            os.fchmod(folder, stat.S_IMODE(status.st_mode) & ~_OTHERS)
        if os.fstat(folder).st_mode & _OTHERS:
            raise UntrustedPathError(
                path, f"is open to other users and its mode cannot be changed to 0700; {_REMEDY} on another file system"
            )
    if hasattr(os, "setxattr"):
        with contextlib.suppress(OSError):  # the file system does not support it; the mode of the folder is enough
            os.setxattr(folder, _ACL_NAME, _OWNER_ONLY)


# -- files -------------------------------------------------------------------------------------------------------------


def open_file(path: str, flags: int, mode: int = FILE_MODE) -> int:
    """Open a file of this user. To be used as an opener for :func:`open`. A new file has the mode 0600.

    Raises:
        UntrustedPathError: The path is a symbolic link or a hard link, is not a regular file, or belongs to another
            user.
        OSError: The file cannot be opened.
    """
    truncates = flags & os.O_TRUNC  # truncate only after the checks
    try:
        file = os.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    except OSError as error:
        if error.errno == errno.ELOOP or os.path.islink(path):
            raise _is_link(path) from error
        raise
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise UntrustedPathError(path, "is not a regular file; remove it")
        if flags & (os.O_WRONLY | os.O_RDWR):
            _check_owner(path, status)
            if status.st_nlink > 1:
                raise UntrustedPathError(path, "is a hard link to another file; remove it")
        elif not _is_trusted(status.st_uid):
            _check_owner(path, status)
        if truncates:
            os.ftruncate(file, 0)
    except BaseException:
        os.close(file)
        raise
    return file


def open_input(path: str) -> int:
    """Open a file of any user for reading.

    Another user who may write to a folder of the path could otherwise lead this process to a file that only this user
    may read, or to a named pipe, which blocks.

    Raises:
        UntrustedPathError: A link in the path belongs to another user, or the path is not a regular file.
        OSError: The file cannot be opened.
    """
    check_links(path)
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise UntrustedPathError(path, "is not a regular file")
        check_links(path)
        if not os.path.samestat(status, os.stat(path)):
            raise UntrustedPathError(path, "was replaced while it was opened")
    except BaseException:
        os.close(file)
        raise
    return file


def replace_file(path: str, content: bytes, *, shared: bool = False) -> None:
    """Replace a file atomically: readers find the old or the new content, even after a power failure.

    Args:
        path: The file. A symbolic link under this name is replaced, not followed.
        content: All of the new content.
        shared: Let other users read the file as far as the umask allows. Otherwise its mode is 0600.

    Raises:
        OSError: The file cannot be written. The old content is unchanged.
    """
    temporary = f"{path}.{secrets.token_hex(8)}{_TEMPORARY}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(temporary, flags, _SHARED_FILE_MODE if shared else FILE_MODE)
    try:
        with open(file, "wb") as writer:
            writer.write(content)
            writer.flush()
            os.fsync(writer.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def is_temporary(name: str, of: str) -> bool:
    """Whether ``name`` is a temporary file for the file ``of`` that a killed :func:`replace_file` has left."""
    return name.startswith(f"{of}.") and name.endswith(_TEMPORARY)


# -- deletion ----------------------------------------------------------------------------------------------------------


def delete(path: str) -> None:
    """Delete a file, or a folder with its content. Links are never followed, because deletion uses descriptors.

    Raises:
        UntrustedPathError: The parent folder, the path, or anything below it is a symbolic link or belongs to another
            user. Nothing was deleted then.
        FileNotFoundError: There is nothing at the path.
        OSError: Something cannot be deleted.
    """
    folder, name = os.path.split(path)
    with _opened_folder(folder) as descriptor:
        _check_owner(folder, os.fstat(descriptor))
        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        _check_entry(path, status)
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=descriptor)
            return
        for above, folders, files, below in os.fwalk(name, dir_fd=descriptor, follow_symlinks=False):
            for entry in (*folders, *files):
                with contextlib.suppress(FileNotFoundError):  # deleted just now
                    found = os.stat(entry, dir_fd=below, follow_symlinks=False)
                    _check_entry(os.path.join(folder, above, entry), found)
        shutil.rmtree(name, dir_fd=descriptor)


def _check_entry(path: str, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _is_link(path)
    _check_owner(path, status)


# -- users -------------------------------------------------------------------------------------------------------------


def _check_owner(path: str, status: os.stat_result) -> None:
    if status.st_uid != _uid():
        raise UntrustedPathError(
            path,
            f"belongs to {_user(status.st_uid)}, not to {_user(_uid())}, who runs this process; run it as that user, "
            f"or {_REMEDY}",
        )


def _is_link(path: str) -> UntrustedPathError:
    return UntrustedPathError(path, "is a symbolic link, which is not followed; remove it, or use its target")


def _is_trusted(uid: int) -> bool:
    return uid in (0, _uid())


def _uid() -> int:
    return os.geteuid()


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
