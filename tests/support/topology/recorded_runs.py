"""Feeds a topology with the input of a recorded run, and converts its output to the form of the recordings."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.serdes import STRING
from streams_py.testing.in_process import InProcessTasks
from streams_py.testing.memory_clients import ManualClock, MemoryRecord
from streams_py.topology.declare.stores import StoreKind
from streams_py.topology.topology import Topology
from tests.conformance.programs.user_code import show
from tests.support.topology.whole_topology import WholeTopology

Rows = Iterable[list[Any]]


def feed(
    topology: Topology,
    run: dict[str, Any],
    *,
    reference_behaviour: bool = True,
    before_step: Callable[[int, InProcessTasks], object] = lambda step, tasks: None,
) -> tuple[Rows, dict[str, list[str]]]:
    """Return every written record, and the final content of the stores.

    ``before_step`` is called with the number of the step and the tasks, also once after the last step. ``commit_every``
    (default 1: after every record, as TopologyTestDriver does): commit after this number of steps, and at the end until
    the output ends. ``emit``: the interval in ms of sending closed windows.
    """
    rows: list[list[Any]] = []
    step = 0

    def sent(record: MemoryRecord) -> None:
        timestamp = None if record.producers_clock else record.timestamp()[1]
        headers = [[name, as_hex(value)] for name, value in record.headers() or ()]
        rows.append([step, record.topic(), as_hex(record.key()), as_hex(record.value()), timestamp, headers])

    tasks = InProcessTasks(
        WholeTopology.units_of(topology),
        TaskSettings(
            application_id="app",
            default_key_serde=STRING,
            default_value_serde=STRING,
            emit_interval_ms=run.get("emit", 0),
            reference_behaviour=reference_behaviour,
        ),
        clock=ManualClock(1_000_000),
        cache_max_bytes=run["cache"],
        on_sent=sent,
    )
    every = run.get("commit_every", 1)
    each = every == 1
    for step, given in enumerate(run["inputs"]):
        before_step(step, tasks)
        if "advance" in given:
            tasks.advance(given["advance"])
            if each:
                tasks.commit()
        else:
            headers = [(name, as_bytes(value)) for name, value in given["headers"]]
            key, value = as_bytes(given["key"]), as_bytes(given["value"])
            tasks.write(given["topic"], key, value, given["timestamp"], headers or None, 0)
        tasks.drain(commit=each)
        if not each and (step + 1) % every == 0:
            tasks.commit()
            tasks.drain(commit=False)
    step = len(run["inputs"])
    before_step(step, tasks)
    while not each:
        tasks.commit()
        if not tasks.drain(commit=False):
            break
    return rows, {name: contents(tasks.store(name, 0), builder.kind) for name, builder in topology.stores.items()}


def contents(store: Any, kind: StoreKind) -> list[str]:
    match kind:
        case StoreKind.TIMESTAMPED_KEY_VALUE:
            return [f"{show(key)}|{show(pair.value)}|{pair.timestamp}" for key, pair in store.all()]
        case StoreKind.TIMESTAMPED_WINDOW:
            return [f"{show(key.key)}|{key.start}|{show(pair.value)}|{pair.timestamp}" for key, pair in store.all()]
        case StoreKind.WINDOW:
            return [f"{show(key.key)}|{key.start}|{show(value)}" for key, value in store.all()]
        case StoreKind.KEY_VALUE:
            return [f"{show(key)}|{show(value)}" for key, value in store.all()]
        case _:
            return []


def by_topic(rows: Rows) -> dict[str, list[list[Any]]]:
    """Group the records by topic. A buffer writes the changes of one commit in any order; only its records have no
    timestamp.
    """
    topics: defaultdict[str, list[list[Any]]] = defaultdict(list)
    for row in rows:
        topics[row[1]].append(row)
    return {
        topic: sorted(rows, key=lambda row: (row[0], row[2])) if all(row[4] is None for row in rows) else rows
        for topic, rows in topics.items()
    }


def in_one_order(description: str) -> list[str]:
    def sort(found: re.Match[str]) -> str:
        return f"{found[1]}{', '.join(sorted(found[2].split(', ')))}{found[3]}"

    text = re.sub(r"extractor class: .*\)", "extractor class)", description)
    lines = (re.sub(r"(--> |<-- )(.*)()$", sort, line.rstrip()) for line in text.splitlines())
    return [re.sub(r"(\(stores: \[)(.*)(\]\))", sort, line) for line in lines]


def as_hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def as_bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
