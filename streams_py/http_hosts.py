"""Where an HTTP service listens, and by which names it may be called without authentication on loopback.

The machine's own users are trusted there, but a browser runs pages of strangers: such a page may point a name of its
own at this machine (DNS rebinding) and read along. The request's ``Host`` tells.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = ["SERVER_OPTIONS", "is_loopback", "listen", "refused_name"]

SERVER_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType(
    {"log_config": None, "access_log": False, "ws": "none", "http": "streams_py.http_connections:BoundedConnections"}
)
"""Of every service, for uvicorn: it says nothing by itself, limits connections, and takes no httptools where that is
installed, which takes addresses and headers of any length in."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any free one. OSError, whose ``strerror`` says why, when it cannot.

    What is written goes out at once: head and body of an answer are two writes, and the second would wait for the
    caller's acknowledgement, some 40 ms. asyncio sees to that only for sockets that say which protocol they are of.
    """
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if not error.errno or error.errno < 0:  # a name that is none
            raise
        raise OSError(error.errno, os.strerror(error.errno)) from None  # Python's has the address in it once more
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted ones are as the one that listens
    return listening


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def refused_name(host_header: str, names: Collection[str]) -> str | None:
    """The name in a request's ``Host`` when it is none of ``names`` (in lower case), no address and not ``localhost``;
    None when the request may be answered."""
    try:
        name = (urlsplit(f"//{host_header}").hostname or "").lower()
    except ValueError:
        name = host_header
    return None if name == "localhost" or name in names or _is_address(name) else name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
