"""Programs for edge cases: grace, late and negative windows, tombstones, versions, buffer limits; recorded from Kafka
Streams.
"""

# ruff: noqa: N802  # one operator after the other, as in the program that was recorded

from __future__ import annotations

from streams_py import (
    EmitStrategy,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from streams_py.serdes import INT64 as L
from streams_py.serdes import STRING as S


def build(id) -> Topology:
    builder = StreamsBuilder()
    PROGRAMS[id](builder)
    return builder.build()


def show(o):
    return "-" if o is None else str(o)


def cat(a, b):
    return show(a) + "+" + show(b)


def tail(s, n):
    return s[-n:] if len(s) > n else s


def push(a, v):
    return tail(a + show(v), 8)


def first(v):
    return v[:1] if v else None


def has(v, p):
    return v is not None and p in v


def w(k, v=None):
    return f"{k.key}@{k.start}:{k.end}"


X = {"key": S, "value": S}


def s(b, t):
    return b.stream(t, **X)


def t(b, n):
    return b.table(n, **X)


def o(t):
    return t.to_stream(w)


PROGRAMS = {}


def p(f):
    PROGRAMS[f.__name__] = f
    return f


def kept(**k):
    return Materialized(key=S, value=S, **k)


@p
def A01(b):
    s(b, "a").left_join(
        s(b, "b"), cat, JoinWindows.of(5, grace=3, before=-2, after=7), key=S, value=S, other_value=S
    ).to("out", **X)


@p
def A02(b):
    x, y = t(b, "x"), t(b, "y")
    x.left_join(y, cat, on=lambda k, v: first(v)).to_stream().to("out", **X)
    x.join(y, lambda v, u: cat(u, v), on=lambda k, v: None if has(v, "x") else v[:1]).filter(
        lambda k, v: not has(v, "c")
    ).to_stream().to("out2", **X)


@p
def A03(b):
    v = b.table("t", key=S, value=S, materialized=Materialized("vt", history=40))
    s(b, "s").left_join(v, cat, key=S, value=S, name="jj", grace=10).to("out", **X)
    v.left_join(t(b, "u"), cat).to_stream().to("out2", **X)
    v.group_by(lambda k, v: (first(v), v), **X).reduce(
        lambda x, y: tail(x + y, 6), lambda x, y: tail(x + "-" + y, 6)
    ).to_stream().to("out3", **X)


@p
def A04(b):
    i = s(b, "in").group_by_key()
    o(i.windowed_by(TimeWindows.of(10, advance=3)).count().suppress(Suppressed.until_time_limit(0, max_records=1))).to(
        "out", key=S, value=L
    )
    o(
        s(b, "in")
        .group_by_key()
        .windowed_by(TimeWindows.of(7, grace=5))
        .reduce(lambda x, y: tail(x + ("null" if y is None else y), 8))
        .filter(lambda k, v: not has(v, "c"))
        .suppress(Suppressed.until_window_closes())
    ).to("out2", **X)


@p
def A05(b):
    sessions = SessionWindows.of(5, grace=4)
    o(
        s(b, "in")
        .group_by_key()
        .windowed_by(sessions, emit=EmitStrategy.ON_WINDOW_CLOSE)
        .aggregate(
            lambda: "",
            lambda k, v, a: push(a, v),
            lambda k, x, y: tail(x + "&" + y, 8),
            materialized=kept(store="ses", retention=100000),
        )
    ).to("out", **X)
    o(s(b, "in").group_by_key().windowed_by(sessions).count().map_values(lambda v: v * 2)).to("out2", key=S, value=L)


@p
def A06(b):
    o(
        s(b, "in")
        .group_by_key()
        .windowed_by(TimeWindows.of(10, grace=1, advance=5), emit=EmitStrategy.ON_WINDOW_CLOSE)
        .aggregate(
            lambda: "",
            lambda k, v, a: None if has(v, "x") else push(a, v),
            materialized=kept(store="win", retention=100000),
        )
    ).to("out", **X)


@p
def A07(b):
    j = t(b, "x").outer_join(t(b, "y"), cat)
    j.group_by(lambda k, v: (tail(v, 1), v), **X).aggregate(
        lambda: 0, lambda k, v, a: a + len(v), lambda k, v, a: a - len(v), materialized=Materialized(key=S, value=L)
    ).to_stream().to("out", key=S, value=L)
    j.filter_not(lambda k, v: has(v, "-")).to_stream().to("out2", **X)


@p
def A08(b):
    f = t(b, "x").filter(lambda k, v: not has(v, "a")).suppress(Suppressed.until_time_limit(8, max_bytes=200))
    f.join(t(b, "y"), cat).to_stream().to("out", **X)
    s(b, "s").join(f.map_values(lambda v: v.upper()), cat).to("out2", **X)


@p
def A09(b):
    o(
        s(b, "in")
        .group_by_key()
        .windowed_by(SlidingWindows.of(12, grace=6))
        .aggregate(lambda: "", lambda k, v, a: push(a, v), materialized=kept())
    ).to("out", **X)


@p
def A10(b):
    g = b.global_table("g", **X)
    s(b, "s").left_join(
        g, on=lambda k, v: None if has(v, "x") else first(v), with_key=lambda k, v, u: show(k) + cat(v, u)
    ).filter(lambda k, v: not has(v, "cc")).to("out", **X)
    s(b, "s").select_key(lambda k, v: first(v)).join(g, cat, on=lambda k, v: k).to("out2", **X)


@p
def A11(b):
    x = b.table("x", **X)
    x.join(x, cat, on=lambda k, v: first(v)).left_join(
        b.table("y", **X), cat, on=lambda k, v: tail(v, 1)
    ).to_stream().to("out", **X)


@p
def A12(b):
    s(b, "a").outer_join(
        s(b, "b").map_values(lambda v: None if has(v, "x") else v),
        windows=JoinWindows.of(4, grace=9),
        with_key=lambda k, x, y: show(k) + cat(x, y),
        key=S,
        value=S,
        other_value=S,
    ).group_by_key(**X).reduce(lambda x, y: tail(x + y, 10)).to_stream().to("out", **X)


@p
def A13(b):
    a = s(b, "a").group_by_key()
    c = s(b, "b").group_by(lambda k, v: first(v), **X)
    o(
        a.cogroup(lambda k, v, x: push(x, v))
        .cogroup(c, lambda k, v, x: push(x, "/" + show(v)))
        .windowed_by(SessionWindows.of(4, grace=6))
        .aggregate(lambda: "", lambda k, x, y: tail(x + "&" + y, 8), materialized=kept())
    ).to("out", **X)


@p
def A14(b):
    s(b, "in").to_table(store="tt").group_by(
        lambda k, v: (None if has(v, "x") else first(v), None if has(v, "b") else v), **X
    ).count().filter(lambda k, v: v > 1).map_values(lambda v: f"n{v}").to_stream().to("out", **X)


@p
def A15(b):
    o(s(b, "in").group_by_key().windowed_by(TimeWindows.of(10, grace=20)).count(store="wc")).group_by_key(
        key=S, value=L
    ).reduce(lambda x, y: x + y).to_stream().to("out", key=S, value=L)


@p
def A16(b):
    v1 = b.table("x", **X, materialized=Materialized("v1", history=30))
    v2 = b.table("y", **X, materialized=Materialized("v2", history=30))
    v1.filter(lambda k, v: not has(v, "a")).outer_join(v2.map_values(lambda v: v + "!"), cat).to_stream().to("out", **X)
    v1.left_join(v2, cat, on=lambda k, v: first(v)).to_stream().to("out2", **X)
