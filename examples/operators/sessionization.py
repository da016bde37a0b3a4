"""Sessions of clicks: one record per session, sent when a user has made no click for half an hour.

Topics: ``clicks`` (user -> page), out: ``sessions`` (user -> JSON with start, end and pages).
"""

from __future__ import annotations

from typing import Any

from streams_py import EmitStrategy, SessionWindows, StreamsBuilder, Topology, Windowed, serdes

SILENCE_MS = 30 * 60_000


def add(user: str, page: str, pages: list[str]) -> list[str]:
    return [*pages, page]


def merge(user: str, earlier: list[str], later: list[str]) -> list[str]:
    return earlier + later


def as_record(session: Windowed[str], pages: list[str]) -> dict[str, Any]:
    return {"start": session.start, "end": session.end, "pages": pages}


def build_topology() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    sessions = (
        builder.stream("clicks")
        .group_by_key()
        .windowed_by(SessionWindows.of(SILENCE_MS), emit=EmitStrategy.ON_WINDOW_CLOSE)
        .aggregate(list[str], add, merge, store="sessions", value=serdes.JSON)
    )
    (
        sessions.to_stream()
        .map_values(with_key=as_record)
        .select_key(lambda session, record: session.key)
        .to("sessions", key=serdes.STRING, value=serdes.JSON)
    )
    return builder.build()
