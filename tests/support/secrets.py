"""Secrets that must never appear in a log."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator

CANARY = "canary-5ecret"

JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{CANARY}";'


@contextlib.contextmanager
def everything_logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield stream
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
