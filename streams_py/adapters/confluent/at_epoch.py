"""Records with timestamp 0: librdkafka's produce call reads 0 as "now", so another client writes them."""

from __future__ import annotations

from typing import Protocol

__all__ = ["EpochRecordSender"]

_Headers = list[tuple[str, bytes | None]] | None


class EpochRecordSender(Protocol):
    """Another client that can write a record with timestamp 0 and waits for the acknowledgement."""

    def send(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int, headers: _Headers
    ) -> tuple[int, int]:
        """Partition and offset of the written record; ``partition`` -1 leaves the choice to the default rule."""

    def close(self) -> None: ...
