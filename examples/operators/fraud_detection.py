"""Fraud detection: more than three payments of one card, or a sum above 1000, within any ten seconds.

Sliding windows can start at any time, so a pattern cannot be split by the border between two windows.

Topics: ``payments`` (card -> amount), out: ``alarms`` (card -> text).
"""

from __future__ import annotations

from dataclasses import dataclass

from streams_py import SlidingWindows, StreamsBuilder, Topology, serdes

TEN_SECONDS_MS = 10_000


@dataclass(frozen=True)
class Total:
    payments: int = 0
    amount: int = 0

    def is_suspicious(self) -> bool:
        return self.payments > 3 or self.amount > 1000


def add(card: str, amount: int, total: Total) -> Total:
    return Total(total.payments + 1, total.amount + amount)


def build_topology() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.INT64)
    totals = (
        builder.stream("payments")
        .group_by_key()
        .windowed_by(SlidingWindows.of(TEN_SECONDS_MS, grace=TEN_SECONDS_MS))
        .aggregate(Total, add, store="totals", value=serdes.json(Total))
    )
    (
        totals.to_stream()
        .filter(lambda window, total: total.is_suspicious())
        .map(lambda window, total: (window.key, f"{total.payments} payments, {total.amount} together"))
        .to("alarms", key=serdes.STRING, value=serdes.STRING)
    )
    return builder.build()
