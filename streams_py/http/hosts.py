"""The sockets of an HTTP service, and its accepted host names.

A browser runs pages of untrusted websites. Such a website can resolve its host name to the address of a service (DNS
rebinding). Its pages could then read and change everything, as if they came from the service. But the ``Host`` header
of their requests contains the name of the website. So each service has a list of accepted host names. Addresses are
always accepted, because the attack requires a name.
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

from streams_py.errors import ConfigError
from streams_py.system.private_files import UntrustedPathError, check_shared_folder

ANY_NAME: Final = "*"
"""Entry of a list of names that accepts any name. For a service behind a proxy that checks names itself."""


_FREE_PORT: Final = "choose another port, or stop the process that uses it"
_FREE_PATH: Final = "choose another path, or stop the process that uses it"


def listen(host: str, port: int, *, key: str, advice: str = _FREE_PORT) -> socket.socket:
    """Return a socket that listens at an address.

    The socket sends every write immediately. The head and the body of an answer are two writes. Without
    ``TCP_NODELAY``, the second write would wait about 40 ms for the caller's acknowledgement. asyncio sets the option
    only for sockets that were created with a protocol number.

    Args:
        host: A name or an address.
        port: 0 is any free port.
        key: The setting or argument that the caller's user can change. Errors name it.
        advice: What the user can do when the address cannot be used.

    Raises:
        ConfigError: The socket cannot listen there.
    """
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        # Python's text repeats the address. Errors of name resolution have negative numbers: only Python has a text.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise ConfigError(f"{key}: {host}:{port} cannot be served ({reason}); {advice}", key=key) from None
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
    return listening


def listen_unix(path: str, mode: int, *, key: str) -> socket.socket:
    """Return a Unix socket that listens at a path. A socket file without a listening process is replaced.

    Args:
        path: Path of the socket.
        mode: Mode of the socket. It decides who may connect.
        key: The setting or argument that the caller's user can change. Errors name it.

    Raises:
        ConfigError: The socket cannot listen there, or another user could replace it because of the rights on a folder
            of the path.
    """
    try:
        return _unix_socket(path, mode)
    except UntrustedPathError as error:
        raise ConfigError(f"{key}: {error}", key=key) from None
    except OSError as error:
        raise ConfigError(f"{key}: {path} cannot be served ({error.strerror}); {_FREE_PATH}", key=key) from None


def _unix_socket(path: str, mode: int) -> socket.socket:
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
        os.chmod(path, mode)  # no client can connect before listen()
        listening.listen()
    except BaseException:
        listening.close()
        raise
    return listening


def accepted_names(host: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Return the accepted names of a service: ``localhost``, the machine's names, ``host`` and ``more``."""
    names = {"localhost", socket.gethostname(), socket.getfqdn(), host, *more}
    return frozenset(_plain(name) for name in names if name)


def refused_name(host_header: str, names: Collection[str]) -> str | None:
    """Return the name in a request's ``Host`` header if it is not accepted.

    None means that the request may be answered: the name is an address, or one of ``names`` (:func:`accepted_names`).
    """
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
