"""Tasks with asynchronous calls, and a service whose answers the test releases."""

from __future__ import annotations

import asyncio
from typing import Any

from streams_protocol.types import TopicPartition
from streams_py import StreamsBuilder, serdes
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.tasks.settings.handlers import Answer, ErrorContext, FailedRecord, Response
from tests.support.runtime.task_kit import Kit, record
from tests.support.waiting import until

IN = TopicPartition("in", 0)
TEXT: dict[str, Any] = {"key": serdes.STRING, "value": serdes.STRING}


class Service:
    """Answers each value when the test releases it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.cancelled: list[str] = []
        self._open: set[str] = set()

    def answer(self, *values: str) -> None:
        self._open.update(values)

    async def ask(self, value: str) -> str:
        self.asked.append(value)
        try:
            while value not in self._open:
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.cancelled.append(value)
            raise
        return value.upper()


def asking(service: Service, **options: Any) -> Kit:
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).map_values_async(service.ask, **options).to("out", **TEXT)
    return Kit(builder.build())


def add(kit: Kit, *pairs: tuple[str | None, str], first: int = 0) -> None:
    records = [
        record(value, key=key, at=10 * offset, offset=offset, headers=[("h", value.encode())])
        for offset, (key, value) in enumerate(pairs, first)
    ]
    kit.add(*records)


def values(kit: Kit, topic: str = "out") -> list[str]:
    return [(value or b"").decode() for _, value, _ in kit.sent(topic)]


def until_sent(kit: Kit, *expected: str) -> None:
    def arrived() -> bool:
        kit.task.process(100)
        return len(values(kit)) >= len(expected)

    until(arrived, f"{expected} to be sent")
    assert values(kit) == list(expected)


def position(kit: Kit) -> OffsetAndMetadata | None:
    return kit.task.committable_offsets().get(IN)


def offset(kit: Kit) -> int | None:
    at = position(kit)
    return None if at is None else at.offset


def failing(answer: Answer, caught: list[tuple[ErrorContext, FailedRecord | None, Exception]]) -> dict[str, Any]:
    def handler(context: ErrorContext, failed: FailedRecord | None, error: Exception) -> Response:
        caught.append((context, failed, error))
        return Response(answer)

    return {"processing_handler": handler}
