"""Programs of which a preview shows records."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from streams_py import SessionWindows, TimeWindows
from tests.support.history.runs import Given, numbered


def joined(old: str, new: str) -> str:
    return (old + new)[-30:]


TUMBLING = TimeWindows.of(timedelta(milliseconds=50), grace=timedelta(milliseconds=30))

HOPPING = TimeWindows.of(timedelta(milliseconds=60), advance=timedelta(milliseconds=20), grace=timedelta(0))

SESSIONS = SessionWindows.of(timedelta(milliseconds=15), grace=timedelta(milliseconds=20))


def shown(stream: Any) -> Any:
    return stream.to_stream(lambda windowed, _: f"{windowed.key}@{windowed.start}-{windowed.end}")


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "stateless": lambda stream: stream.filter(lambda _, value: value[-1] != "3").map_values(str.upper),
    "reduce": lambda stream: (
        stream.group_by_key().reduce(joined, store="r").filter(lambda k, v: len(v) > 9).to_stream()
    ),
    "tumbling": lambda stream: shown(stream.group_by_key().windowed_by(TUMBLING).reduce(joined, store="w")),
    "hopping": lambda stream: shown(stream.group_by_key().windowed_by(HOPPING).reduce(joined, store="w")),
    "sessions": lambda stream: shown(stream.group_by_key().windowed_by(SESSIONS).reduce(joined, store="s")),
    "two times": lambda stream: shown(
        stream.filter(lambda _, value: value[-1] != "7").group_by_key().windowed_by(TUMBLING).reduce(joined, store="w")
    ),
}


def some_records(partitions: int) -> list[Given]:
    chance, now = random.Random(11), 1_000
    made = []
    for at in range(400):
        now += chance.randrange(12)
        late = chance.choice([0, 0, 0, 40, 90])
        made.append(("in", now - late, b"k%d" % chance.randrange(5), b"v%d" % at))
    return numbered(made, partitions)
