"""By which names an HTTP service may be called.

A browser runs pages of strangers. Such a page may point a name of its own at the address of a service (DNS rebinding),
and then read and change what it likes, as if it came from there. The ``Host`` of its requests tells: it is the name of
the page. So every service has a list of the names that it is called by. Addresses are always accepted, because no page
can have one as its name.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import urlsplit

from streams_py.system.private_files import check_shared_folder

__all__ = ["ANY_NAME", "accepted_names", "listen", "listen_unix", "refused_name"]

ANY_NAME: Final = "*"
"""In a list of names: any name is accepted. For a service behind a proxy that checks names itself."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any free one. OSError, whose ``strerror`` says why, when it cannot.

    What is written goes out immediately: head and body of an answer are two writes, and the second would wait for the
    caller's acknowledgement, some 40 ms. asyncio sees to that only for sockets that say which protocol they are of.
    """
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if not error.errno or error.errno < 0:  # the name is not a host's
            raise
        raise OSError(error.errno, os.strerror(error.errno)) from None  # Python's has the address in it once more
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted ones are as the one that listens
    return listening


def listen_unix(path: str, mode: int) -> socket.socket:
    """A Unix socket that listens there. Its mode says who may connect. A socket that nobody listens at is replaced.

    Raises:
        UntrustedPathError: Another user could replace the socket, because of the rights on a folder of the path.
        OSError: Nothing can listen there; ``strerror`` says why.
    """
    check_shared_folder(os.path.dirname(path) or ".")
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "there is something else than a socket")
        with socket.socket(socket.AF_UNIX) as other:
            try:
                other.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
            else:
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(path)
        os.chmod(path, mode)  # nobody can connect before listen()
        listening.listen()
    except BaseException:
        listening.close()
        raise
    return listening


def accepted_names(host: str, more: Iterable[str] = ()) -> frozenset[str]:
    """The names that a service on this machine has: ``localhost``, the machine's, the one it listens at, and more."""
    names = {"localhost", socket.gethostname(), socket.getfqdn(), host, *more}
    return frozenset(_plain(name) for name in names if name)


def refused_name(host_header: str, names: Collection[str]) -> str | None:
    """The name in a request's ``Host`` when it is neither an address nor among ``names`` (:func:`accepted_names`); None
    when the request may be answered."""
    if ANY_NAME in names:
        return None
    try:
        name = _plain(urlsplit(f"//{host_header}").hostname or "")
    except ValueError:
        name = host_header
    return None if name in names or _is_address(name) else name


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
