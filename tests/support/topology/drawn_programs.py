"""Programs as data: a step for each call of the DSL, with names for the streams and tables that it uses and creates.

They were generated at random. Kafka Streams ran the same steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

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
    UnlimitedWindows,
    key_value_store,
    timestamped_key_value_store,
)
from streams_py.serdes import INT64, STRING, Serde, serde
from streams_py.topology.declare.nodes import Punctuation
from streams_py.topology.declare.processor import FixedKeyProcessor, Processor, Record, ValueTransformer
from streams_py.topology.declare.stores import ValueAndTimestamp
from tests.conformance.programs.user_code import first, show, tail

Step = Mapping[str, Any]

# Texts in a second encoding, so that the bytes show which serde was used. It reads both encodings.
_MARKED: Final = serde(
    serialize=lambda text: f"~{text}".encode(), deserialize=lambda data: data.decode().removeprefix("~"), name="marked"
)
_SERDES: Final[Mapping[str, Serde[Any]]] = {"s": STRING, "m": _MARKED, "i": INT64}


def build(program: Mapping[str, Any], *, reference_behaviour: bool = True) -> Topology:
    """Return the topology of a program."""
    builder = StreamsBuilder()
    made: dict[str, Any] = {}
    for step in program["steps"]:
        inputs = [made[name] for name in step.get("in", ())]
        results = _CALLS[step["op"]](builder, step, *inputs)
        made.update(zip(step.get("outs") or [step.get("out")], results, strict=True))
    return builder.build(
        {"topology.optimization": program["optimization"], "__reference.behaviour__": reference_behaviour}
    )


# -- functions of the programs -------------------------------------------------------------------------------


def has(value: Any, part: str) -> bool:
    return value is not None and part in show(value)


def cat(left: Any, right: Any) -> str:
    return tail(f"{show(left)}+{show(right)}", 16)


def _merged(key: Any, one: Any, other: Any) -> str:
    return tail(f"{show(one)}&{show(other)}", 12)


def _key_of(windowed: Any) -> Any:
    return None if windowed is None else windowed.key


_PREDICATES: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "hasa": lambda k, v: has(v, "a"),
    "hasb": lambda k, v: has(v, "b"),
    "keya": lambda k, v: "a" in show(k),
    "nonnull": lambda k, v: v is not None,
    "nox": lambda k, v: not has(v, "x"),
    "bothnn": lambda k, v: k is not None and v is not None,
}
_VALUES: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "upper": lambda k, v: None if v is None else show(v).upper(),
    "sharp": lambda k, v: tail(f"{show(v)}#", 10),
    "noc": lambda k, v: None if has(v, "c") else v,
    "show": lambda k, v: show(v),
    "kv": lambda k, v: tail(f"{show(k)}:{show(v)}", 14),
}
_KEYS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "first": lambda k, v: first(v),
    "kfirst": lambda k, v: first(k),
    "same": lambda k, v: k,
    "show": lambda k, v: None if k is None else show(k),
    "value": lambda k, v: v,
    "wkey": lambda k, v: _key_of(k),
}
_PAIRS: Final[Mapping[str, Callable[[Any, Any], tuple[Any, Any]]]] = {
    "firstv": lambda k, v: (first(v), v),
    "kfirst": lambda k, v: (first(k), v),
    "swap": lambda k, v: (v, k),
    "same": lambda k, v: (k, v),
    "wkey": lambda k, v: (_key_of(k), show(k) + show(v)),
    "nullk": lambda k, v: (None if has(v, "b") else k, v),
    "nullv": lambda k, v: (first(v), None if has(v, "b") else v),
}
_AGGREGATORS: Final[Mapping[str, Callable[[Any, Any, Any], Any]]] = {
    "push": lambda k, v, a: tail(f"{show(a)},{show(v)}", 12),
    "pushu": lambda k, v, a: tail(f"{show(a)}/{show(v).upper()}", 12),
    "pushx": lambda k, v, a: None if has(v, "x") else tail(f"{show(a)},{show(v)}", 12),
    "sub": lambda k, v, a: tail(f"{show(a)}~{show(v)}", 12),
    "subx": lambda k, v, a: None if has(v, "c") else tail(f"{show(a)}~{show(v)}", 12),
}
_REDUCERS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "cat": lambda a, v: tail(show(a) + show(v), 8),
    "catx": lambda a, v: None if has(v, "x") else tail(show(a) + show(v), 8),
    "sub": lambda a, v: tail(f"{show(a)}~{show(v)}", 8),
    "subx": lambda a, v: None if has(v, "x") else tail(f"{show(a)}~{show(v)}", 8),
}
_JOINERS: Final[Mapping[str, Callable[[Any, Any, Any], Any]]] = {
    "cat": lambda k, a, b: cat(a, b),
    "catx": lambda k, a, b: None if has(a, "x") else cat(a, b),
    "kcat": lambda k, a, b: tail(f"{show(k)}={cat(a, b)}", 20),
}


class Counter(Processor[Any, Any, Any, Any]):
    """Counts by key. A punctuator forwards the counts and deletes counts of 3 and more."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def init(self, context: Any) -> None:
        self.context, self.store = context, context.get_state_store(self.step["store"])
        clock = Punctuation.WALL_CLOCK_TIME if self.step["wall"] else Punctuation.STREAM_TIME
        context.schedule(self.step["period"], clock, self.punctuate)

    def punctuate(self, now_ms: int) -> None:
        for key, count in list(self.store.all()):
            self.context.forward(Record(key, f"p{count}", now_ms))
            if count >= 3:
                self.store.delete(key)

    def process(self, record: Any) -> None:
        if record.key is None:
            self.context.forward(record.with_value("nk"))
            return
        count = (self.store.get(record.key) or 0) + 1
        self.store.put(record.key, count)
        self.context.forward(record.with_value(tail(f"{show(record.value)}#{count}", 8)))


class Twice(Processor[Any, Any, Any, Any]):
    """Forwards a record with one more header, and again one millisecond later with another key."""

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        self.context.forward(record.with_headers([*record.headers, ("t", b"\x01")]))
        self.context.forward(record.with_key(first(record.value)).with_timestamp(record.timestamp + 1))


class Previous(FixedKeyProcessor[Any, Any, Any]):
    """Forwards the previous value with its time."""

    def __init__(self, store: str) -> None:
        self.name = store

    def init(self, context: Any) -> None:
        self.context, self.store = context, context.get_state_store(self.name)

    def process(self, record: Any) -> None:
        if record.key is None:
            return
        old = self.store.get(record.key)
        if record.value is None:
            self.store.delete(record.key)
        else:
            self.store.put(record.key, ValueAndTimestamp(record.value, record.timestamp))
        before = "-" if old is None else f"{old.value}/{old.timestamp}"
        self.context.forward(record.with_value(tail(f"{before}>{show(record.value)}", 14)))


class Mapper(ValueTransformer[Any, Any, Any]):
    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def transform(self, key: Any, value: Any) -> Any:
        return self.function(key, value)


# -- steps ---------------------------------------------------------------------------------------------------


def _serdes(step: Step, **keywords: str) -> dict[str, Any]:
    named = {"key": "key", "value": "value", **keywords}
    return {keyword: _SERDES[step[field]] for keyword, field in named.items() if step.get(field)}


def _options(step: Step) -> dict[str, Any]:
    """Return ``name=`` and ``materialized=`` if the step has them."""
    options: dict[str, Any] = {"name": step["name"]} if step.get("name") else {}
    if step.get("mat") is not None:
        kept = dict(step["mat"])
        kept |= {"logging_config": kept.pop("logcfg")} if "logcfg" in kept else {}
        serdes = {part: _SERDES[kept.pop(part)] for part in ("key", "value") if kept.get(part)}
        options["materialized"] = Materialized(kept.pop("store", None), **serdes, **kept)
    return options


def _logging(step: Step) -> dict[str, Any]:
    return {"logging_config": step["logcfg"]} if "logcfg" in step else {}


def _windows(window: Step) -> Any:
    match window["kind"]:
        case "time":
            return TimeWindows.of(window["size"], grace=window["grace"], advance=window.get("advance"))
        case "sliding":
            return SlidingWindows.of(window["size"], grace=window["grace"])
        case "session":
            return SessionWindows.of(window["size"], grace=window["grace"])
        case _:
            return UnlimitedWindows.of(start=window["start"])


def _split(builder: StreamsBuilder, step: Step, stream: Any) -> list[Any]:
    split = stream.split(**_options(step))
    for branch in step["branches"]:
        split.branch(_PREDICATES[branch["fn"]], **_options(branch))
    if step["default"]:
        return list(split.default_branch(name=step["defaultName"]).values())
    return list(split.no_default_branch().values())


def _to(builder: StreamsBuilder, step: Step, stream: Any) -> list[Any]:
    topic = step["topic"]
    chooser = (lambda k, v, record: f"{topic}-{'a' if has(v, 'a') else 'b'}") if step.get("chooser") else topic
    return [stream.to(chooser, **_serdes(step), **_options(step))]


def _aggregate(builder: StreamsBuilder, step: Step, grouped: Any) -> list[Any]:
    window, name = step.get("win"), step.get("fn")
    if window:
        emit = EmitStrategy.ON_WINDOW_CLOSE if window.get("emit") else EmitStrategy.ON_WINDOW_UPDATE
        grouped = grouped.windowed_by(_windows(window), emit=emit)
    if step["op"] == "count":
        return [grouped.count(**_options(step))]
    if step["op"] == "reduce":
        return [grouped.reduce(_REDUCERS[name], **_options(step))]
    merger = {"merger": _merged} if window and window["kind"] == "session" else {}
    return [grouped.aggregate(str, _AGGREGATORS[name], **merger, **_options(step))]


def _cogroup(builder: StreamsBuilder, step: Step, *grouped: Any) -> list[Any]:
    functions = [_AGGREGATORS[name] for name in step["fns"]]
    cogrouped = grouped[0].cogroup(functions[0])
    for other, function in zip(grouped[1:], functions[1:], strict=True):
        cogrouped = cogrouped.cogroup(other, function)
    return [
        _aggregate_cogrouped(cogrouped, step if again is None else again)
        for again in (None, *([step["again"]] if "again" in step else ()))
    ]


def _aggregate_cogrouped(cogrouped: Any, step: Step) -> Any:
    window = step.get("win")
    if window:
        cogrouped = cogrouped.windowed_by(_windows(window))
    merger = {"merger": _merged} if window and window["kind"] == "session" else {}
    return cogrouped.aggregate(str, **merger, **_options(step))


def _aggregate_table(builder: StreamsBuilder, step: Step, grouped: Any) -> list[Any]:
    if step["op"] == "tcount":
        return [grouped.count(**_options(step))]
    if step["op"] == "treduce":
        return [grouped.reduce(_REDUCERS[step["fn"]], _REDUCERS[step["sub"]], **_options(step))]
    return [grouped.aggregate(str, _AGGREGATORS[step["fn"]], _AGGREGATORS[step["sub"]], **_options(step))]


def _join(builder: StreamsBuilder, step: Step, left: Any, right: Any) -> list[Any]:
    options: dict[str, Any] = {"with_key": _JOINERS[step["fn"]], **_serdes(step, other_value="other"), **_options(step)}
    options |= {field: step[field] for field in ("store", "logging", "grace") if field in step}
    options |= _logging(step)
    if "win" in step:
        window = dict(step["win"])
        options["windows"] = JoinWindows.of(window.pop("size"), **window)
    if "on" in step:
        of = _KEYS[step["on"]]
        options["on"] = of if step["op"] == "joinSG" else lambda key, value: of(None, value)
    if step["op"] in ("joinTT", "joinFK"):
        joiner = options.pop("with_key")
        options["joiner"] = lambda one, other: joiner(None, one, other)
    method = {"inner": "join", "left": "left_join", "outer": "outer_join"}[step["type"]]
    return [getattr(left, method)(right, **options)]


def _suppress(builder: StreamsBuilder, step: Step, table: Any) -> list[Any]:
    if step["kind"] == "close":
        suppressed = Suppressed.until_window_closes()
    else:
        limits = {"max_records": step.get("max"), "max_bytes": step.get("bytes")}
        suppressed = Suppressed.until_time_limit(step["ms"], **limits)
    return [table.suppress(suppressed, logging=not step["nolog"], **_logging(step), **_options(step))]


def _process(builder: StreamsBuilder, step: Step, stream: Any) -> list[Any]:
    store = step.get("store")
    if store is None:
        return [stream.process(Twice, **_options(step))]
    if step["op"] == "processValues":
        builder.add_state_store(
            timestamped_key_value_store(store, key=STRING, value=STRING, persistent=False, caching=step["cached"])
        )
        return [stream.process_values(lambda: Previous(store), stores=store, **_options(step))]
    builder.add_state_store(key_value_store(store, key=STRING, value=INT64, persistent=False, caching=step["cached"]))
    return [stream.process(lambda: Counter(step), stores=store, **_options(step))]


def _source(method: str) -> Callable[..., list[Any]]:
    def call(builder: StreamsBuilder, step: Step) -> list[Any]:
        topics = re.compile(step["pattern"]) if "pattern" in step else step.get("topics") or step["topic"]
        return [getattr(builder, method)(topics, **_serdes(step), **_options(step))]

    return call


def _method(name: str, functions: Mapping[str, Any] | None = None, *, keyword: str = "") -> Callable[..., list[Any]]:
    """Make a call with one function or none, and options."""

    def call(builder: StreamsBuilder, step: Step, target: Any, *others: Any) -> list[Any]:
        options: dict[str, Any] = {**_serdes(step), **_options(step)}
        if step.get("partitions"):
            options["partitions"] = step["partitions"]
        arguments = list(others)
        if functions is not None and step.get("fn"):
            arguments.append(functions[step["fn"]])
        if keyword:
            options[keyword] = arguments.pop()
        negated = {"filter": "filter_not"} if step.get("not") else {}
        return [getattr(target, negated.get(name, name))(*arguments, **options)]

    return call


def _fixed(name: str, function: Any) -> Callable[..., list[Any]]:
    return lambda builder, step, target: [getattr(target, name)(function, **_options(step))]


_CALLS: Final[Mapping[str, Callable[..., list[Any]]]] = {
    "stream": _source("stream"),
    "table": _source("table"),
    "gtable": _source("global_table"),
    "filter": _method("filter", _PREDICATES),
    "mapValues": _method("map_values", _VALUES, keyword="with_key"),
    "flatMapValues": _fixed("flat_map_values", lambda v: list(show(v))[:3]),
    "map": _method("map", _PAIRS),
    "flatMap": _fixed("flat_map", lambda k, v: [(c, f"{show(k)}{i}") for i, c in enumerate(show(v)[:2])]),
    "selectKey": _method("select_key", _KEYS),
    "peek": _fixed("peek", lambda k, v: None),
    "merge": _method("merge"),
    "split": _split,
    "to": _to,
    "repartition": _method("repartition"),
    "toTable": _method("to_table"),
    "toStream": _method("to_stream", _KEYS),
    "groupByKey": _method("group_by_key"),
    "groupBy": _method("group_by", _KEYS),
    "tgroupBy": _method("group_by", _PAIRS),
    **dict.fromkeys(("count", "reduce", "aggregate"), _aggregate),
    "cogroup": _cogroup,
    **dict.fromkeys(("tcount", "treduce", "taggregate"), _aggregate_table),
    **dict.fromkeys(("joinSS", "joinST", "joinSG", "joinTT", "joinFK"), _join),
    "suppress": _suppress,
    "transformValues": lambda builder, step, table: [
        table.transform_values(lambda: Mapper(_VALUES[step["fn"]]), **_options(step))
    ],
    "process": _process,
    "processValues": _process,
}
