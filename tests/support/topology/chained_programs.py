"""Programs with chains of operators that the other recorded programs use separately, with and without names; recorded
from Kafka Streams.
"""

# one operator after the other, as in the program that was recorded

from __future__ import annotations

from streams_py import (
    EmitStrategy,
    JoinWindows,
    Materialized,
    Processor,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    key_value_store,
    lru_map,
)
from streams_py.serdes import INT64 as L
from streams_py.serdes import STRING as S
from tests.conformance.programs.user_code import cat, first, has, push, show, tail
from tests.support.topology.mixed_programs import TEXTS, kept, shown, stream, table

PROGRAMS = {}
OPTIMIZATION = {}
COUNTS = {"key": S, "value": L}


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


def first_of_value(k, v):
    return first(v)


def no_xx(k, v):
    return not has(v, "xx")


def joined(n):
    return lambda x, y: tail(x + y, n)


@program("C01")
def _(b):
    stream(b, "a").group_by_key(**TEXTS).cogroup(lambda k, v, a: push(a, v)).cogroup(
        stream(b, "b").group_by(first_of_value, name="gb", **TEXTS), lambda k, v, a: push(a, "." + show(v))
    ).windowed_by(SessionWindows.of(6, grace=4)).aggregate(
        lambda: "", lambda k, x, y: tail(x + "&" + y, 12), name="cg", materialized=kept("cgs")
    ).suppress(Suppressed.until_window_closes(), name="fin").to_stream(shown).to("out", **TEXTS)


@program("C02")
def _(b):
    keyed = table(b, "x").left_join(table(b, "y"), cat, on=first_of_value, name="fk", materialized=kept("fks"))
    keyed.outer_join(table(b, "z"), cat, name="oj").filter(no_xx).to_stream().to("out", **TEXTS)


@program("C03")
def _(b):
    merged = (
        stream(b, "a")
        .select_key(first_of_value, name="sel")
        .repartition(name="rp", **TEXTS)
        .merge(stream(b, "b"), name="mg")
    )
    parts = (
        merged.split(name="sp-")
        .branch(lambda k, v: has(v, "a"), name="one")
        .branch(lambda k, v: has(v, "b"), chain=lambda s: s.map_values(with_key=lambda k, v: show(k) + v))
        .default_branch()
    )
    parts["sp-one"].group_by_key(**TEXTS).count(name="cn").to_stream().to("out", **COUNTS)
    parts["sp-2"].group_by(first_of_value, **TEXTS).reduce(joined(6)).to_stream().to("out2", **TEXTS)
    parts["sp-0"].to("out3", **TEXTS)


@program("C04", "all")
def _(b):
    left = stream(b, "a").filter(no_xx).select_key(first_of_value)
    right = stream(b, "b").map(lambda k, v: (first(v), v))
    merged = left.merge(right)
    merged.group_by_key(**TEXTS).count().to_stream().to("out", **COUNTS)
    merged.group_by_key(**TEXTS).windowed_by(TimeWindows.of(10, grace=5)).reduce(joined(6)).to_stream(shown).to(
        "out2", **TEXTS
    )


@program("C05")
def _(b):
    versions = b.table("x", key=S, value=S, materialized=kept("vs", history=50))
    versions.join(table(b, "y"), cat, on=first_of_value).to_stream().to("out", **TEXTS)
    stream(b, "s").left_join(versions, cat).to("out2", **TEXTS)


@program("C06")
def _(b):
    stream(b, "in").group_by(first_of_value, name="g", **TEXTS).windowed_by(
        SlidingWindows.of(7, grace=3), emit=EmitStrategy.ON_WINDOW_CLOSE
    ).aggregate(lambda: "", lambda k, v, a: push(a, v), materialized=kept(retention=100000)).map_values(
        with_key=lambda k, v: show(k.key) + v, name="mv"
    ).to_stream().map(lambda k, v: (k.key, v)).group_by_key(**TEXTS).count(store="n").to_stream().to("out", **COUNTS)


class Recent(Processor):
    def init(self, context):
        self.context = context
        self.store = context.get_state_store("lru")

    def process(self, record):
        if record.key is None:
            return
        store, key, value = self.store, record.key, record.value
        before = store.get(key)
        if has(value, "x"):
            store.delete(key)
        elif value is not None:
            store.put(key, value)
        else:
            store.put_if_absent(key, "n")
        keys = "".join(key for key, _ in store.all())
        self.context.forward(record.with_value(f"{show(before)}/{keys}/{store.approximate_num_entries()}"))


@program("C07")
def _(b):
    b.add_state_store(key_value_store("lru", key=S, value=S, supplier=lru_map(2)))
    stream(b, "in").process(Recent, name="lp", stores="lru").to("out", **TEXTS)


@program("C08")
def _(b):
    stream(b, "in").group_by_key(**TEXTS).reduce(joined(6), materialized=kept("lt", supplier=lru_map(2))).filter(
        no_xx
    ).to_stream().to("out", **TEXTS)


@program("C09")
def _(b):
    t = table(b, "t")
    pairs = stream(b, "a").flat_map(lambda k, v: [(first(v), v), (k, show(v))])
    j = pairs.left_join(
        stream(b, "b").peek(lambda k, v: None),
        windows=JoinWindows.of(4, grace=3, before=2),
        with_key=lambda k, x, y: cat(k, cat(x, y)),
        key=S,
        value=S,
        other_value=S,
        name="sj",
    )
    j.join(t, cat, key=S, value=S, name="tj").to_table(name="tt", materialized=kept("tts")).group_by(
        lambda k, v: (tail(v, 1), v), name="gt", **TEXTS
    ).aggregate(lambda: "", lambda k, v, a: push(a, v), lambda k, v, a: push(a, "~"), name="agg").to_stream().to(
        "out", **TEXTS
    )


@program("C10", "all")
def _(b):
    t = b.table("t", key=S, value=S, materialized=kept("ts"))
    u = table(b, "u").filter(no_xx)
    s = stream(b, "s").select_key(first_of_value)
    s.join(t, cat, key=S, value=S).to("out", **TEXTS)
    s.group_by_key(name="gk", **TEXTS).windowed_by(SessionWindows.of(5)).count().to_stream(shown).to("out2", **COUNTS)
    t.left_join(u, cat, name="tu", materialized=kept("tus")).to_stream().to("out3", **TEXTS)


@program("C11")
def _(b):
    grouped = stream(b, "in").group_by(first_of_value, **TEXTS)
    counts = grouped.count(name="cc")
    texts = grouped.reduce(joined(5), store="rr")
    counts.outer_join(texts, lambda x, y: f"{show(x)}/{show(y)}", name="cr", materialized=kept("crs")).suppress(
        Suppressed.until_time_limit(7, max_records=2)
    ).group_by(lambda k, v: (tail(v, 1), v), **TEXTS).reduce(
        joined(8), lambda x, y: tail(x + "-", 8), materialized=kept("gr")
    ).to_stream().to("out", **TEXTS)


@program("C12")
def _(b):
    g = b.global_table("b", materialized=kept("gs"))
    stream(b, "a").map_values(with_key=lambda k, v: None if v is None else show(k) + v, name="mv").left_join(
        g, cat, on=first_of_value, name="gj"
    ).group_by_key(**TEXTS).windowed_by(
        TimeWindows.of(12, grace=6, advance=6), emit=EmitStrategy.ON_WINDOW_CLOSE
    ).count(name="wc", materialized=Materialized("wcs", retention=100000)).to_stream(shown).to("out", **COUNTS)
