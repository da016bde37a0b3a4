"""Orders and payments that match within ten minutes, or that lack a partner. At most one result per order and minute.

An outer join also finds orders without a payment, and payments without an order, when the join window has closed. The
table with the state of each order is suppressed, so it sends only the latest state instead of every change.

Topics: ``orders`` and ``payments`` (order number -> amount), out: ``order-states`` (order number -> text).
"""

from __future__ import annotations

from streams_py import JoinWindows, StreamsBuilder, Suppressed, Topology, serdes

TEN_MINUTES_MS = 10 * 60_000
MINUTE_MS = 60_000


def state(ordered: int | None, paid: int | None) -> str:
    if ordered is None:
        return f"paid {paid}, never ordered"
    if paid is None:
        return f"ordered {ordered}, not paid"
    return "paid" if paid == ordered else f"ordered {ordered}, paid {paid}"


def build_topology() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.INT64)
    orders, payments = builder.stream("orders"), builder.stream("payments")
    states = orders.outer_join(payments, state, JoinWindows.of(TEN_MINUTES_MS), name="matching", store="matching")
    (
        states.group_by_key(key=serdes.STRING, value=serdes.STRING)
        .reduce(lambda before, now: now, store="states")
        .suppress(Suppressed.until_time_limit(MINUTE_MS), name="once-a-minute")
        .to_stream()
        .to("order-states", key=serdes.STRING, value=serdes.STRING)
    )
    return builder.build()
