"""Parsing of ``application.server``."""

from __future__ import annotations

import pytest

from streams_protocol.types import HostInfo
from streams_py.config.endpoint import parse_endpoint
from streams_py.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("localhost:80", HostInfo("localhost", 80)),
        ("http://h-1.example:8080", HostInfo("h-1.example", 8080)),
        ("[::1]:9", HostInfo("::1", 9)),
        ("https://[2001:db8::1]:9", HostInfo("2001:db8::1", 9)),
        ("::1:9", HostInfo("::1", 9)),
        (":0", HostInfo("", 0)),
        ("h:2147483647", HostInfo("h", 2**31 - 1)),
        ("fe80::1%eth0:7", HostInfo("fe80::1%eth0", 7)),
    ],
)
def test_end_point_has_host_and_port(text: str, host: HostInfo) -> None:
    assert parse_endpoint(text) == host


@pytest.mark.parametrize("text", [None, "", "   "])
def test_no_host_when_there_is_no_text(text: str | None) -> None:
    assert parse_endpoint(text) is None


NO_END_POINTS = [
    *("h", "h:", "h:port", "h:1/x", " h:1", "h:1\n", "h_:1/", "h:２", "é:1"),
    *("h:2147483648", "h:" + "9" * 5000, "h" * 65_536 + ":1"),
]


@pytest.mark.parametrize("text", NO_END_POINTS, ids=lambda text: f"{text!r:.20}")
def test_config_error_when_the_text_is_no_end_point(text: str) -> None:
    with pytest.raises(ConfigError, match=r"application\.server"):
        parse_endpoint(text)
