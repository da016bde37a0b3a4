"""The addresses of the REST interface: ``listeners`` of a worker.

A worker listens on at most one network address, which other workers of the group use, and on at most one Unix socket
for users of the host. The mode of the socket decides who may use it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

_LOOPBACK: Final = "127.0.0.1"
_EXPECTED: Final = "expected http://host:port, https://host:port or unix:/path, at most one address and one Unix socket"


@dataclass(frozen=True, slots=True)
class Listeners:
    """The parsed listeners.

    Attributes:
        scheme: ``http`` or ``https``.
        address: (host, port), or None without a network listener.
        unix: Path of a Unix socket, or None.
    """

    scheme: str
    address: tuple[str, int] | None
    unix: str | None

    @classmethod
    def parse(cls, text: str) -> Listeners:
        """Parse ``listeners``. Raises ValueError."""
        scheme, address, unix = "http", None, None
        for one in filter(None, map(str.strip, text.split(","))):
            split = urlsplit(one)
            kind = split.scheme.lower()
            if kind == "unix" and unix is None and not split.netloc and split.path.startswith("/"):
                unix = split.path
            elif kind in ("http", "https") and address is None and split.port is not None and "@" not in split.netloc:
                scheme, address = kind, (split.hostname or _LOOPBACK, split.port)
            else:
                raise ValueError(_EXPECTED)
        if address is None and unix is None:
            raise ValueError(_EXPECTED)
        return cls(scheme, address, unix)


def socket_mode(text: str) -> int:
    """Parse ``rest.unix.socket.mode``, an octal number as for chmod. Raises ValueError."""
    if not re.fullmatch(r"0?[0-7]{3}", text):
        raise ValueError("expected an octal mode such as 0600 or 0660")
    return int(text, 8)
