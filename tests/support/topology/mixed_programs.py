"""Programs that mix operators in other ways than the recorded programs of ``tests/conformance``; recorded from Kafka
Streams 4.3.1.
"""

# ruff: noqa: E741  # one operator after the other, as in the program that was recorded

from __future__ import annotations

from streams_py import (
    EmitStrategy,
    FixedKeyProcessor,
    JoinWindows,
    Materialized,
    Processor,
    Punctuation,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    UnlimitedWindows,
    ValueTransformer,
    Windowed,
    session_store,
    window_store,
)
from streams_py.serdes import INT64 as L
from streams_py.serdes import STRING as S
from tests.conformance.programs.user_code import cat, first, has, push, show, tail, upper


def plus(*parts):
    """Return what Java's ``+`` returns for strings."""
    return "".join("null" if part is None else str(part) for part in parts)


PROGRAMS = {}
OPTIMIZATION = {}


def build(id) -> Topology:
    builder = StreamsBuilder()
    PROGRAMS[id](builder)
    return builder.build({"topology.optimization": OPTIMIZATION[id], "__reference.behaviour__": True})


def program(id, opt="none"):
    def add(f):
        PROGRAMS[id] = f
        OPTIMIZATION[id] = opt
        return f

    return add


def stream(b, t):
    return b.stream(t, key=S, value=S)


def table(b, t, **k):
    return b.table(t, key=S, value=S, **k)


def kept(store=None, **k):
    return Materialized(store, key=S, value=S, **k)


TEXTS = {"key": S, "value": S}


def shown(wk, v):
    return show(wk)


def first_of_value(k, v):
    return first(v)


@program("M01", "all")
def _(b):
    s = stream(b, "in").select_key(first_of_value)
    s.group_by_key(**TEXTS).windowed_by(TimeWindows.of(10)).count().to_stream(shown).to("out", key=S, value=L)
    s.group_by_key(**TEXTS).windowed_by(SessionWindows.of(5, grace=5)).count(store="sc").to_stream(shown).to(
        "out2", key=S, value=L
    )


@program("M02")
def _(b):
    table(b, "t").filter(lambda k, v: not has(v, "x")).group_by(lambda k, v: (first(v), v), **TEXTS).aggregate(
        lambda: "", lambda k, v, a: push(a, v), lambda k, v, a: push(a, "~" + v), materialized=kept("agg")
    ).suppress(Suppressed.until_time_limit(12), name="lim").to_stream().to("out")


@program("M03")
def _(b):
    stream(b, "a").select_key(first_of_value).join(
        stream(b, "b").select_key(first_of_value),
        cat,
        JoinWindows.of(8, grace=4),
        key=S,
        value=S,
        other_value=S,
        name="jj",
    ).group_by_key().windowed_by(TimeWindows.of(20, grace=10, advance=10)).reduce(
        lambda x, y: tail(plus(x, y), 12)
    ).to_stream(shown).to("out")


@program("M04")
def _(b):
    t = (
        stream(b, "t")
        .flat_map(lambda k, v: [(show(k), v), (show(first(v)), v)])
        .repartition(key=S, value=S, name="rp", partitions=2)
        .to_table()
    )
    stream(b, "s").select_key(first_of_value).repartition(key=S, value=S, partitions=2).left_join(t, cat).to("out")


@program("M05")
def _(b):
    stream(b, "a").to_table(name="tt").outer_join(
        stream(b, "b").select_key(first_of_value).to_table(materialized=kept()), cat
    ).to_stream().to("out")


@program("M06")
def _(b):
    stream(b, "in").group_by_key().windowed_by(SessionWindows.of(6, grace=4), emit=EmitStrategy.ON_WINDOW_CLOSE).reduce(
        lambda x, y: tail(plus(x, y), 9), name="red", materialized=kept("rs", retention=100000)
    ).to_stream(shown).to("out")
    stream(b, "in2").filter(lambda k, v: v is not None).group_by_key().windowed_by(
        SessionWindows.of(6, grace=4)
    ).reduce(lambda x, y: tail(plus(x, y), 9), materialized=kept("rs2")).suppress(
        Suppressed.until_window_closes(), name="sup"
    ).to_stream(shown).to("out2")


@program("M07")
def _(b):
    def bs(s):
        s.to("bs")

    m = (
        stream(b, "in")
        .split(name="x-")
        .branch(lambda k, v: has(v, "a"), name="up", chain=lambda s: s.map_values(upper))
        .branch(lambda k, v: has(v, "b"), chain=bs)
        .default_branch(chain=lambda s: s.filter_not(lambda k, v: v is None))
    )
    m["x-up"].merge(m["x-0"]).to("out")


@program("M08")
def _(b):
    stream(b, "a").group_by(first_of_value, name="g1", **TEXTS).cogroup(lambda k, v, a: push(a, v)).cogroup(
        stream(b, "b").group_by_key(**TEXTS), lambda k, v, a: push(a, upper(v))
    ).windowed_by(TimeWindows.of(10, grace=5)).aggregate(lambda: "", name="cg", materialized=kept("cgs")).suppress(
        Suppressed.until_window_closes()
    ).to_stream(shown).to("out")


@program("M09")
def _(b):
    x, y, z = table(b, "x"), table(b, "y"), table(b, "z")
    j = x.left_join(y, cat).filter(lambda k, v: not has(v, "x"), name="flt").map_values(upper, materialized=kept("mv"))
    z.outer_join(j, cat, name="oj").to_stream().to("out")


@program("M10")
def _(b):
    x = table(b, "x").map_values(with_key=lambda k, v: plus(show(k), v))
    y = table(b, "y").filter(lambda k, v: has(v, "a"))
    x.join(y, cat, materialized=kept("jx")).filter_not(lambda k, v: has(v, "b")).to_stream().to("out")
    stream(b, "s").join(y, cat).to("out2")


@program("M11")
def _(b):
    g = b.global_table("g", materialized=kept("gs"))
    t = table(b, "t")
    stream(b, "s").left_join(g, on=first_of_value, with_key=lambda k, v, w: cat(k, cat(v, w))).join(
        t, with_key=lambda k, v, w: cat(plus(show(k), v), w)
    ).group_by(lambda k, v: tail(v, 1), **TEXTS).count(name="cnt").to_stream().to("out", key=S, value=L)


@program("M12")
def _(b):
    stream(b, "in").group_by_key().windowed_by(TimeWindows.of(12, grace=0, advance=5)).reduce(
        lambda x, y: tail(plus(x, y), 6), materialized=kept("hr", retention=300, logging=False, caching=False)
    ).to_stream(shown).to("out")


@program("M13")
def _(b):
    stream(b, "in").group_by(first_of_value, name="sg", **TEXTS).windowed_by(SlidingWindows.of(8, grace=6)).reduce(
        lambda x, y: tail(plus(x, y), 6), name="sr", materialized=kept("srs")
    ).filter(lambda wk, v: len(v) > 1).to_stream(shown).to("out")


@program("M14")
def _(b):
    c = (
        stream(b, "in")
        .group_by_key()
        .windowed_by(SessionWindows.of(7))
        .count(name="sc", materialized=Materialized("scs", caching=False))
    )
    c.to_stream(lambda wk, v: wk.key).group_by_key(key=S, value=L).aggregate(
        lambda: 0, lambda k, v, a: a + v, materialized=Materialized(key=S, value=L)
    ).to_stream().to("out", key=S, value=L)


@program("M15")
def _(b):
    table(b, "x").join(table(b, "y"), cat, on=first_of_value, name="fk", materialized=kept("fks")).to_stream().to("out")


@program("M16")
def _(b):
    table(b, "x").left_join(table(b, "y"), cat, on=first_of_value).filter(lambda k, v: not has(v, "x")).to_stream().to(
        "out"
    )


@program("M17")
def _(b):
    c = stream(b, "in").group_by(first_of_value).count()
    c.filter(lambda k, v: v % 2 == 0).to_stream(name="even").to("out", key=S, value=L)
    c.map_values(with_key=lambda k, v: show(k) + str(v), materialized=kept()).group_by(
        lambda k, v: (tail(v, 1), v), **TEXTS
    ).count(store="c2").to_stream().to("out2", key=S, value=L)


@program("M18")
def _(b):
    stream(b, "in").group_by_key(**TEXTS).windowed_by(TimeWindows.of(10, grace=5)).count(store="wc").suppress(
        Suppressed.until_time_limit(20, max_records=3)
    ).to_stream(shown).to("out", key=S, value=L)


@program("M19", "all")
def _(b):
    s = stream(b, "s").filter(lambda k, v: v is not None)
    s.outer_join(s, cat, JoinWindows.of(6, grace=2), key=S, value=S, other_value=S).to("out")
    r = s.select_key(first_of_value)
    r.join(
        r,
        windows=JoinWindows.of(5),
        with_key=lambda k, x, y: show(k) + cat(x, y),
        key=S,
        value=S,
        other_value=S,
        name="sj",
        store="sjs",
    ).to("out2")


@program("M20", "all")
def _(b):
    t = b.table("t", key=S, value=S, materialized=kept("ts"))
    u = table(b, "u")
    t.filter(lambda k, v: has(v, "a")).left_join(u, cat).to_stream().select_key(first_of_value).to_table(
        materialized=kept("rt")
    ).group_by(lambda k, v: (first(v), v), **TEXTS).count().to_stream().to("out", key=S, value=L)


class Seen(Processor):
    def init(self, c):
        self.context = c
        self.w = c.get_state_store("win")
        self.s = c.get_state_store("ses")

    def process(self, r):
        if r.key is None:
            return
        n = len(list(self.w.fetch_between(r.key, max(0, r.timestamp - 20), r.timestamp)))
        self.w.put(r.key, r.value, r.timestamp)
        m = sum(v for _, v in self.s.find_sessions(r.key, max(0, r.timestamp - 10), r.timestamp + 10))
        self.s.put(Windowed(r.key, max(0, r.timestamp - 1), r.timestamp), m % 5 + 1)
        self.context.forward(r.with_value(f"{show(r.value)}#{n}#{m}"))


@program("M21")
def _(b):
    b.add_state_store(window_store("win", retention=50, size=20, key=S, value=S, persistent=False))
    b.add_state_store(session_store("ses", retention=50, key=S, value=L, persistent=False, caching=True))
    stream(b, "in").process(Seen, name="seen", stores=["win", "ses"]).to("out")


class UpperT(ValueTransformer):
    def transform(self, k, v):
        return None if v is None else plus(k, v)


@program("M22")
def _(b):
    table(b, "x").transform_values(UpperT, name="tv").filter(lambda k, v: has(v, "a")).to_stream().to("out")
    table(b, "y").transform_values(UpperT, materialized=kept("tvs")).group_by(
        lambda k, v: (first(v), v), **TEXTS
    ).reduce(lambda a, c: tail(plus(a, c), 8), lambda a, c: tail(a + "-" + c, 8)).to_stream().to("out2")


@program("M23")
def _(b):
    def choose(k, v, c):
        return (
            ("out-" + ("none" if k is None else "a" if has(k, "a") else "z"))
            if not any(n == "h" for n, _ in c.headers)
            else "out-h"
        )

    stream(b, "in").flat_map_values(with_key=lambda k, v: [] if v is None else [plus(show(k), v), v]).select_key(
        first_of_value, name="sel"
    ).peek(lambda k, v: None).to(choose, key=S, value=S)


@program("M24", "all")
def _(b):
    t = table(b, "t")
    s = stream(b, "s").map(lambda k, v: (first(v), v))
    s.join(t, cat, key=S, value=S, name="j1").group_by_key(**TEXTS).count().to_stream().to("out", key=S, value=L)
    s.left_join(t, cat, key=S, value=S).to("out2")
    s.group_by_key(**TEXTS).reduce(lambda x, y: tail(plus(x, y), 8)).to_stream().to("out3")


@program("M25")
def _(b):
    s = (
        stream(b, "in")
        .group_by_key()
        .reduce(lambda x, y: tail(plus(x, y), 6), materialized=kept("r1"))
        .to_stream(first_of_value)
    )
    s.group_by_key(**TEXTS).aggregate(
        lambda: "", lambda k, v, a: push(a, v), name="ag", materialized=kept()
    ).to_stream().to("out")


@program("M26")
def _(b):
    t = b.table("t", key=S, value=S, materialized=Materialized("vs", history=100))
    stream(b, "s").join(t, cat).to("out")
    t.filter(lambda k, v: not has(v, "x")).group_by(lambda k, v: (first(v), v), **TEXTS).count().to_stream().to(
        "out2", key=S, value=L
    )
    t.left_join(table(b, "u"), cat).to_stream().to("out3")


@program("M27")
def _(b):
    stream(b, "in").group_by_key().windowed_by(SlidingWindows.of(6, grace=3), emit=EmitStrategy.ON_WINDOW_CLOSE).count(
        name="ec", materialized=Materialized("ecs", retention=100000)
    ).map_values(lambda v: v * 2).to_stream(shown).to("out", key=S, value=L)


@program("M28")
def _(b):
    table(b, "x").join(table(b, "y"), cat).suppress(Suppressed.until_time_limit(9, max_records=2)).to_stream().to("out")


@program("M29")
def _(b):
    l = stream(b, "a").group_by_key(**TEXTS).windowed_by(TimeWindows.of(10, grace=10)).count()
    r = stream(b, "b").group_by_key(**TEXTS).windowed_by(TimeWindows.of(10, grace=10)).count(store="rw")
    l.outer_join(r, cat).to_stream(shown).to("out")


@program("M31")
def _(b):
    stream(b, "in").group_by_key(**TEXTS).windowed_by(UnlimitedWindows.of(start=20)).count().to_stream(
        lambda wk, v: f"{show(wk.key)}@{wk.start}"
    ).to("out", key=S, value=L)


@program("M32")
def _(b):
    a, t = stream(b, "a"), table(b, "t")
    j = a.left_join(
        stream(b, "b"),
        windows=JoinWindows.of(5, grace=5),
        with_key=lambda k, x, y: show(k) + cat(x, y),
        key=S,
        value=S,
        other_value=S,
        store="st",
    )
    j.left_join(t, cat).group_by(first_of_value, **TEXTS).windowed_by(SessionWindows.of(5, grace=10)).aggregate(
        lambda: "", lambda k, v, x: push(x, v), lambda k, x, y: tail(x + "&" + y, 12), materialized=kept()
    ).to_stream(shown).to("out")


@program("M33")
def _(b):
    a = stream(b, "a").merge(stream(b, "b")).select_key(first_of_value)
    g = a.group_by_key(name="gg", **TEXTS)
    g.count(store="c1").to_stream().to("out", key=S, value=L)
    g.windowed_by(TimeWindows.of(10)).count(store="c2").to_stream(shown).to("out2", key=S, value=L)
    g.windowed_by(SessionWindows.of(3)).reduce(lambda x, y: tail(plus(x, y), 5)).to_stream(shown).to("out3")


@program("M34")
def _(b):
    c = stream(b, "a").group_by_key(**TEXTS).count(store="ca")
    d = stream(b, "b").group_by_key(**TEXTS).count()
    c.join(d, lambda x, y: x * 10 + y, materialized=Materialized(key=S, value=L)).to_stream().to("out", key=S, value=L)
    stream(b, "s").left_join(c, cat).to("out2")


@program("M35")
def _(b):
    table(b, "x").to_stream().group_by(first_of_value, **TEXTS).cogroup(lambda k, v, a: push(a, v)).aggregate(
        lambda: "", materialized=kept("one")
    ).group_by(lambda k, v: (tail(v, 1), v), name="z", **TEXTS).aggregate(
        lambda: 0,
        lambda k, v, a: a + len(v),
        lambda k, v, a: a - len(v),
        name="sum",
        materialized=Materialized("sums", value=L),
    ).to_stream().to("out", key=S, value=L)


class Fix(FixedKeyProcessor):
    def init(self, c):
        self.context = c
        c.schedule(15, Punctuation.STREAM_TIME, lambda t: None)

    def process(self, r):
        self.context.forward(r.with_value(show(r.value) + str(len(r.headers))).with_timestamp(r.timestamp + 1))
        self.context.forward(r.with_headers([("n", b"\1")]))


@program("M36")
def _(b):
    stream(b, "in").process_values(Fix).to_table(materialized=kept("last")).map_values(len).filter(
        lambda k, v: v > 1
    ).map_values(str).to_stream().to("out")
