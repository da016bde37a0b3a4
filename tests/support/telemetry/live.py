"""The live tables of telemetry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streams_py.events.codec import decode_event
from streams_py.events.model import ClientPart, Event, RebalanceHeader, TasksPart
from streams_py.telemetry.fold import Output
from streams_py.telemetry.live import Live, look
from streams_py.telemetry.order import Record
from tests.support.telemetry.history import Stored


def records_of(stored: Iterable[Stored], partition: int = 0) -> list[Record]:
    found, place_ms = [], 0
    for append_ms, offset, value in stored:
        place_ms = max(place_ms, append_ms)
        event = decode_event(value)
        assert isinstance(event, Event)
        record = Record(place_ms, partition, offset, append_ms, value)
        if isinstance(event.body, RebalanceHeader | TasksPart | ClientPart):
            body = event.body
            record = record._replace(rebalance_id=body.rebalance_id, part=body.part, parts=body.parts)
        found.append(record)
    return found


class Tables:
    """Closed rows, and the open ones of the last look."""

    def __init__(self) -> None:
        self.live = Live()
        self.closed: list[Output] = []
        self.open_rows: list[Output] = []

    def look(self, new: Sequence[Record]) -> bool:
        made = look(self.live, new)
        if made is None:
            return False
        self.closed += made.closed
        self.open_rows = made.open_rows
        live = Live(self.live.batch_id + 1, {}, made.fold, made.last, made.tail, [], 0)
        self.live = Live.from_text(live.to_text())  # as after a restart
        return True

    def rows(self) -> list[str]:
        return sorted(map(repr, [*self.closed, *self.open_rows]))
