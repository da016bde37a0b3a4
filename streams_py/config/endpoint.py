"""Parse the value of ``application.server`` to a host and port.

The value is sent unchanged in the subscription, and the leader parses it again. A member parses its own value to find
itself in the host maps. The syntax is the same as in Kafka Streams' ``HostInfo.buildFromEndpoint``.
"""

from __future__ import annotations

import re
from typing import Final

from streams_protocol.types import HostInfo
from streams_py.errors import ConfigError

_ENDPOINT: Final = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>[0-9]+)")
_PORT_MAX: Final = 2**31 - 1  # Java reads the port as an int
_HOST_CHARS_MAX: Final = 65_535  # the limit of the host maps in an assignment


def parse_endpoint(text: str | None) -> HostInfo | None:
    """Parse ``[scheme://]host:port``. None for missing or blank text.

    The scheme, and the brackets of an IPv6 address, are dropped. The host may be empty.

    Raises:
        ConfigError: The text does not have this form.
    """
    if text is None or not text.strip():
        return None
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"application.server = {text!r:.200} is not valid; expected host:port, for example 'localhost:8080'",
            key="application.server",
        )
    if len(match["port"]) > 10 or int(match["port"]) > _PORT_MAX:
        raise ConfigError(
            f"application.server = {text!r:.200} has a port that is too large; use 0 to {_PORT_MAX}",
            key="application.server",
        )
    if len(match["host"]) > _HOST_CHARS_MAX:
        raise ConfigError(
            f"application.server has a host name of {len(match['host'])} characters; the maximum is {_HOST_CHARS_MAX}",
            key="application.server",
        )
    return HostInfo(match["host"], int(match["port"]))
