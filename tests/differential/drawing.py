"""Programs of the DSL with records for them, drawn at random: the same seed gives the same program.

A program is a list of steps as in ``tests/support/topology/drawn_programs.py``. Keys and values are texts. Timestamps
are at the edges of windows and of grace periods, with late records, null keys, null values and headers.
"""

from __future__ import annotations

import random
from typing import Any, Final

_PREDICATES: Final = ("hasa", "hasb", "keya", "nonnull", "nox", "bothnn")
_VALUES: Final = ("upper", "sharp", "noc", "show", "kv")
_PAIRS: Final = ("firstv", "kfirst", "swap", "same", "nullk", "nullv")
_KEYS: Final = ("first", "kfirst", "same", "value")
_AGGREGATORS: Final = ("push", "pushu", "pushx")
_REDUCERS: Final = ("cat", "catx")
_JOINERS: Final = ("cat", "catx", "kcat")
_TYPES: Final = ("inner", "left", "outer")
_CACHES: Final = (0, 0, 10_485_760)
_EMIT_INTERVALS_MS: Final = (0, 1000)
"""By the wall clock, which some of the inputs advance. 1000 is Kafka Streams' value."""
_LONG_MS: Final = 1_000_000_000
"""Longer than the records of a program last."""
Step = dict[str, Any]


class _Drawing:
    """A program in the making: names of the streams and tables that there are."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.steps: list[Step] = []
        self.streams: list[str] = []
        self.tables: list[str] = []
        self.windowed: list[str] = []
        self.globals: list[str] = []
        self.topics: set[str] = set()
        self._names = 0

    def add(self, op: str, *inputs: str, **fields: Any) -> str:
        self._names += 1
        out = f"v{self._names}"
        self.steps.append(
            {"op": op, "in": list(inputs), "out": out, **fields} if inputs else {"op": op, "out": out, **fields}
        )
        return out

    def store(self, window: dict[str, Any] | None = None) -> dict[str, Any]:
        """Windows get a serde of keys, without which Kafka Streams cannot suppress them. They are kept for long if they
        are sent when they close: Kafka Streams' stores in memory forget them before that."""
        if window is None and self.draw.random() < 0.5:
            return {}
        self._names += 1
        kept: dict[str, Any] = {"store": f"st{self._names}"}
        if self.draw.random() < 0.3:
            kept["caching"] = False
        if window is not None:
            kept["key"] = "s"
            if "emit" in window or self.draw.random() < 0.3:
                kept["retention"] = _LONG_MS
        return {"mat": kept}

    def one(self, choices: Any) -> Any:
        return self.draw.choice(choices)

    # -- sources -----------------------------------------------------------------------------------------------

    def sources(self) -> None:
        self.streams.append(self.add("stream", topics=["a"]))
        self.topics.add("a")
        if self.draw.random() < 0.7:
            self.streams.append(self.add("stream", topics=["b"]))
            self.topics.add("b")
        if self.draw.random() < 0.6:
            self.tables.append(self.add("table", topic="c", **self.store()))
            self.topics.add("c")
        if self.draw.random() < 0.2:
            self.globals.append(self.add("gtable", topic="g"))
            self.topics.add("g")

    # -- steps -------------------------------------------------------------------------------------------------

    def stream_step(self) -> None:
        stream, draw = self.one(self.streams), self.draw
        match draw.randrange(11):
            case 0:
                out = self.add("filter", stream, fn=self.one(_PREDICATES), **{"not": draw.random() < 0.3})
            case 1:
                out = self.add("mapValues", stream, fn=self.one(_VALUES))
            case 2:
                out = self.add("map", stream, fn=self.one(_PAIRS))
            case 3:
                out = self.add("selectKey", stream, fn=self.one(_KEYS))
            case 4:
                out = self.add(self.one(("flatMapValues", "flatMap")), stream)
            case 5:
                out = self.add("merge", stream, self.one(self.streams))
            case 6:
                out = self.add("repartition", stream)
            case 7:
                out = self.add("process", stream)
            case 8:
                self._names += 1
                out = self.add("processValues", stream, store=f"st{self._names}", cached=draw.random() < 0.5)
            case 9:
                self._names += 1
                wall, period = draw.random() < 0.3, self.one((3, 10))
                out = self.add(
                    "process", stream, store=f"st{self._names}", period=period, wall=wall, cached=draw.random() < 0.5
                )
            case _:
                out = self.add("peek", stream)
        self.streams.append(out)

    def join_streams(self) -> None:
        left, right = self.one(self.streams), self.one(self.streams)
        window: dict[str, Any] = {"size": self.one((0, 1, 3, 5, 8)), "grace": self.one((0, 0, 2, 6))}
        if self.draw.random() < 0.3:
            window["before"] = self.one((0, 2, 4))
        if self.draw.random() < 0.3:
            window["after"] = self.one((0, 2, 4))
        self.streams.append(self.add("joinSS", left, right, type=self.one(_TYPES), fn=self.one(_JOINERS), win=window))

    def join_table(self) -> None:
        kind, fn = self.one(("inner", "left")), self.one(_JOINERS)
        if self.globals and self.draw.random() < 0.5:
            on = self.one(("same", "first"))
            self.streams.append(self.add("joinSG", self.one(self.streams), self.globals[0], type=kind, fn=fn, on=on))
        elif self.tables:
            self.streams.append(self.add("joinST", self.one(self.streams), self.one(self.tables), type=kind, fn=fn))

    def window(self, *, cogrouped: bool = False) -> dict[str, Any]:
        kind = self.one(("time", "time", "sliding", "session"))
        window: dict[str, Any] = {"kind": kind, "size": self.one((1, 3, 5, 10)), "grace": self.one((0, 0, 1, 5))}
        if kind == "time" and window["size"] > 1 and self.draw.random() < 0.4:
            window["advance"] = self.draw.randint(1, window["size"])
        if not cogrouped and self.draw.random() < 0.25:
            window["emit"] = True
        return window

    def grouped(self) -> str:
        stream, name = self.one(self.streams), {}
        if self.draw.random() < 0.3:
            self._names += 1
            name = {"name": f"g{self._names}"}
        if self.draw.random() < 0.5:
            return self.add("groupByKey", stream, **name)
        return self.add("groupBy", stream, fn=self.one(_KEYS), **name)

    def aggregate(self) -> None:
        op, is_windowed = self.one(("count", "reduce", "aggregate")), self.draw.random() < 0.6
        functions = {"count": {}, "reduce": {"fn": self.one(_REDUCERS)}, "aggregate": {"fn": self.one(_AGGREGATORS)}}
        window = {"win": self.window()} if is_windowed else {}
        store = self.store(window.get("win"))
        out = self.add(op, self.grouped(), **functions[op], **window, **store)
        self.note_table(out, is_windowed=is_windowed, is_number=op == "count")

    def cogroup(self) -> None:
        groups = [self.grouped() for _ in range(self.one((1, 2, 2, 3)))]
        functions = [self.one(_AGGREGATORS) for _ in groups]
        steps = []
        for _ in range(self.one((1, 1, 2))):
            window = {"win": self.window(cogrouped=True)} if self.draw.random() < 0.5 else {}
            steps.append({**window, **self.store(window.get("win"))})
        out = self.add("cogroup", *groups, fns=functions, **steps[0])
        self.note_table(out, is_windowed="win" in steps[0], is_number=False)
        if len(steps) == 2:
            self._names += 1
            step = self.steps[-1] if self.steps[-1]["op"] == "cogroup" else self.steps[-2]
            step["outs"], step["again"] = [step.pop("out"), f"v{self._names}"], steps[1]
            self.note_table(f"v{self._names}", is_windowed="win" in steps[1], is_number=False)

    def note_table(self, table: str, *, is_windowed: bool, is_number: bool) -> None:
        if is_windowed and self.draw.random() < 0.3:
            table = self.suppressed(table, closes=self.draw.random() < 0.6)
        if is_number:
            table = self.add("mapValues", table, fn="show")
        (self.windowed if is_windowed else self.tables).append(table)

    def suppressed(self, table: str, *, closes: bool) -> str:
        if closes:
            return self.add("suppress", table, kind="close", nolog=self.draw.random() < 0.3)
        limit = {"max": self.one((1, 2, 5))} if self.draw.random() < 0.4 else {}
        return self.add("suppress", table, kind="time", ms=self.one((0, 3, 9)), nolog=self.draw.random() < 0.3, **limit)

    def table_step(self) -> None:
        if not self.tables:
            return self.tables.append(self.add("toTable", self.one(self.streams), **self.store()))
        table, draw = self.one(self.tables), self.draw
        match draw.randrange(8):
            case 0:
                out = self.add(
                    "filter", table, fn=self.one(_PREDICATES), **{"not": draw.random() < 0.3}, **self.store()
                )
            case 1:
                out = self.add("mapValues", table, fn=self.one(_VALUES), **self.store())
            case 2:
                out = self.add("transformValues", table, fn=self.one(_VALUES), **self.store())
            case 3:
                out = self.add("joinTT", table, self.one(self.tables), type=self.one(_TYPES), fn="cat", **self.store())
            case 4:
                on = self.one(("first", "value"))
                kind = self.one(("inner", "left"))
                out = self.add("joinFK", table, self.one(self.tables), type=kind, fn="cat", on=on, **self.store())
            case 5:
                grouped = self.add("tgroupBy", table, fn=self.one(("firstv", "kfirst", "swap")))
                if draw.random() < 0.5:
                    out = self.add("treduce", grouped, fn="cat", sub=self.one(("sub", "subx")), **self.store())
                else:
                    out = self.add("taggregate", grouped, fn="push", sub=self.one(("sub", "subx")), **self.store())
            case 6:
                out = self.suppressed(table, closes=False)
            case _:
                self.streams.append(self.add("toStream", table))
                return None
        return self.tables.append(out)

    def windowed_step(self) -> None:
        if not self.windowed:
            return self.aggregate()
        table = self.one(self.windowed)
        if self.draw.random() < 0.3:
            table = self.add("mapValues", table, fn=self.one(_VALUES))
        elif self.draw.random() < 0.2:
            table = self.add("filter", table, fn=self.one(_PREDICATES))
        return self.streams.append(self.add("toStream", table, fn=self.one(("show", "wkey"))))

    def outputs(self) -> None:
        number = 0
        for stream in self.streams[-3:]:
            number += 1
            self.steps.append({"op": "to", "in": [stream], "topic": f"out{number}"})
        for table in (self.tables[-2:], self.windowed[-2:]):
            for name in table:
                number += 1
                fields = {"fn": "show"} if table is not None and name in self.windowed else {}
                stream = self.add("toStream", name, **fields)
                self.steps.append({"op": "to", "in": [stream], "topic": f"out{number}"})

    def inputs(self) -> list[dict[str, Any]]:
        draw, now, given = self.draw, 0, []
        texts = ["a", "b", "c", "ab", "bx", "abc", "x", "ca"]
        for _ in range(draw.randint(20, 50)):
            if draw.random() < 0.2:
                given.append({"advance": self.one((1, 500, 1000, 2000))})
                continue
            now += self.one((0, 0, 0, 1, 1, 2, 3, 5, 12)) if draw.random() < 0.97 else 70_000
            at = max(0, now - self.one((0, 0, 0, 1, 2, 5, 9, 20)))
            key = None if draw.random() < 0.05 else self.one(texts[:4])
            value = None if draw.random() < 0.1 else "" if draw.random() < 0.03 else self.one(texts)
            headers = [["h", self.one((None, "", "01"))]] if draw.random() < 0.15 else []
            given.append(
                {
                    "topic": self.one(sorted(self.topics)),
                    "key": None if key is None else key.encode().hex(),
                    "value": None if value is None else value.encode().hex(),
                    "timestamp": at,
                    "headers": headers,
                }
            )
        return given


def draw(seed: int) -> dict[str, Any]:
    """A program with its records."""
    drawing = _Drawing(seed)
    drawing.sources()
    steps = [
        *[drawing.stream_step] * 4,
        *[drawing.join_streams] * 3,
        drawing.join_table,
        *[drawing.aggregate] * 4,
        drawing.cogroup,
        *[drawing.table_step] * 4,
        *[drawing.windowed_step] * 2,
    ]
    for _ in range(drawing.draw.randint(2, 8)):
        drawing.one(steps)()
    drawing.outputs()
    return {
        "id": f"seed {seed}",
        "optimization": drawing.one(("none", "all")),
        "cache": drawing.one(_CACHES),
        "emit": drawing.one(_EMIT_INTERVALS_MS),
        "steps": drawing.steps,
        "inputs": drawing.inputs(),
    }
