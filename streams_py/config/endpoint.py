"""The text of ``application.server``: what it may look like and which host and port it means.

The text itself travels in the subscription; the leader parses it again, and a member parses its own to find itself in
the host maps. The accepted syntax is that of Kafka Streams' ``HostInfo.buildFromEndpoint``.
"""

from __future__ import annotations

import re
from typing import Final

from streams_protocol.types import HostInfo
from streams_py.errors import ConfigError

__all__ = ["parse_endpoint"]

_ENDPOINT: Final = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>[0-9]+)")
_PORT_MAX: Final = 2**31 - 1  # Java reads the port as an int
_HOST_CHARS_MAX: Final = 65_535  # what fits into the host maps of an assignment


def parse_endpoint(text: str | None) -> HostInfo | None:
    """Host and port of ``[scheme://]host:port``; None for no or blank text, ConfigError for anything else.

    Scheme and the brackets of an IPv6 address are dropped. The host may be empty.
    """
    if text is None or not text.strip():
        return None
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"application.server = {text!r:.200} is no end point; expected host:port, for example 'localhost:8080'",
            key="application.server",
        )
    if len(match["port"]) > 10 or int(match["port"]) > _PORT_MAX:
        raise ConfigError(
            f"application.server = {text!r:.200} has a port that is too large; use 0 to {_PORT_MAX}",
            key="application.server",
        )
    if len(match["host"]) > _HOST_CHARS_MAX:
        raise ConfigError(
            f"application.server has a host name of {len(match['host'])} characters; at most {_HOST_CHARS_MAX} fit",
            key="application.server",
        )
    return HostInfo(match["host"], int(match["port"]))
