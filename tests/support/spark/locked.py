"""A value that cannot be pickled."""

from __future__ import annotations

import threading
from collections.abc import Callable

from streams_py import serdes


class Locked(serdes.Serde[str]):
    """A serde with a lock, like one with a client or a cache."""

    name = "locked"

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[str], bytes]:
        return str.encode

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], str]:
        return bytes.decode
