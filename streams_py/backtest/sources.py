"""Reads recorded situations from the tables of a group, or from a file with a JSON text on each line.

Situations come in their recorded order, which makes them a history (:mod:`~streams_py.backtest.loop`). For tables, this
is the order of epoch and generation in ``rebalance``; without that table, the order of the rebalances' ids.

A line is a situation, or a record of an events topic: its value, or ``{"value": "..."}`` as tools write it. Both kinds
may be mixed. The records of a rebalance become a situation when they are complete. Lines that cannot be read are
skipped and counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from streams_protocol import DecodeError
from streams_py.errors import ConfigError
from streams_py.events.codec import decode_event
from streams_py.events.model import ClientPart, Event, RebalanceHeader, TasksPart
from streams_py.events.parts import join_rebalance
from streams_py.system.foreign_json import loads as loads_foreign
from streams_py.telemetry.delta import delta_files, is_delta
from streams_py.telemetry.replay import canonical_input

__all__ = [
    "INPUT_TABLE",
    "ORDER_COLUMNS",
    "ORDER_TABLE",
    "Recorded",
    "Skipped",
    "inputs_in_file",
    "inputs_in_tables",
    "no_inputs",
    "situations_in",
]

INPUT_TABLE: Final = "rebalance_input"
ORDER_TABLE: Final = "rebalance"
ORDER_COLUMNS: Final = ("epoch", "generation", "rebalance_id")
"""The columns that determine the order within a group and a day."""
_WAITING_MAX: Final = 1_000
_ROWS: Final = 64
_Parts = dict[int, RebalanceHeader | TasksPart | ClientPart]


class Recorded(str):
    """The canonical text of a situation, with its group."""

    __slots__ = ("group",)

    def __new__(cls, text: str, group: str) -> Recorded:
        made = super().__new__(cls, text)
        made.group = group
        return made

    group: str


@dataclass(slots=True)
class Skipped:
    """The number of lines that cannot be read, and the reason for the first of them."""

    lines: int = 0
    """Number of lines that were not used."""
    reason: str = ""
    """The reason for the first of them, or ""."""

    def note(self, where: str, why: str) -> None:
        """Count a line that cannot be read, and keep the reason for the first one."""
        self.lines += 1
        self.reason = self.reason or f"{where}: {why}"


def situations_in(path: str | Path, skipped: Skipped) -> Iterator[Recorded]:
    """Yield canonical texts from a file or a folder of tables. Raises ConfigError when neither exists."""
    place = Path(path)
    if place.is_dir():
        return inputs_in_tables(place)
    if place.is_file():
        return inputs_in_file(place, skipped)
    raise no_inputs(place)


def no_inputs(where: object) -> ConfigError:
    """Return the error for a path without recorded situations."""
    return ConfigError(
        f"{where} has no recorded inputs; pass a folder that `telemetry run --tables` has filled, or a JSONL file"
    )


def inputs_in_tables(folder: Path) -> Iterator[Recorded]:
    """Yield the rows of ``rebalance_input`` in order. Reads a few at a time."""
    table = folder / INPUT_TABLE
    if not table.is_dir():
        raise no_inputs(folder)
    try:
        import pyarrow.dataset as ds
    except ModuleNotFoundError as error:
        raise ConfigError("pyarrow is not installed; install kafka-streams-py[spark] to read tables") from error
    files: Any = delta_files(table) if is_delta(table) else str(table)
    dataset: Any = ds.dataset(files, format="parquet", partitioning="hive")
    return _in_order(dataset, _order(folder))


def _order(folder: Path) -> dict[str, tuple[int, int]]:
    """Return epoch and generation of each rebalance."""
    table = folder / ORDER_TABLE
    if not table.is_dir():
        return {}
    import pyarrow.dataset as ds

    files: Any = delta_files(table) if is_delta(table) else str(table)
    epoch, generation, name = ORDER_COLUMNS
    found = ds.dataset(files, format="parquet").to_table(columns=[*ORDER_COLUMNS])
    rows = zip(*(found.column(column).to_pylist() for column in (name, epoch, generation)), strict=True)
    return {rebalance: (epoch, generation) for rebalance, epoch, generation in rows}


def _in_order(dataset: Any, order: Mapping[str, tuple[int, int]]) -> Iterator[Recorded]:
    """Yield situations group by group and day by day. Only a few texts are in memory at a time."""
    import pyarrow.dataset as ds

    folders = [name for name in ("group", "day") if name in dataset.schema.names]
    days = {tuple(row.values()) for row in dataset.to_table(columns=folders).to_pylist()} if folders else {()}
    for day in sorted(days, key=lambda day: tuple(map(str, day))):
        of_day = None
        for name, value in zip(folders, day, strict=True):
            is_it = ds.field(name) == value
            of_day = is_it if of_day is None else of_day & is_it
        names = _names(dataset, of_day)
        places = sorted(range(len(names)), key=lambda place: (*order.get(names[place], (-1, -1)), names[place]))
        group = str(day[0]) if "group" in folders else ""
        if places == sorted(places):  # as telemetry writes them
            batches = dataset.to_batches(columns=["input"], filter=of_day, batch_size=_ROWS)
            yield from (Recorded(text, group) for batch in batches for text in batch.column(0).to_pylist())
            continue
        for first in range(0, len(places), _ROWS):
            some = places[first : first + _ROWS]
            found = dataset.scanner(columns=["input"], filter=of_day).take(some)
            yield from (Recorded(text, group) for text in found.column(0).to_pylist())


def _names(dataset: Any, of_day: Any) -> list[str]:
    """Return the ids of the rebalances. Without this column, the order of the rows counts."""
    if "rebalance_id" not in dataset.schema.names:
        return [f"{number:020d}" for number in range(dataset.count_rows(filter=of_day))]
    found: list[str] = dataset.to_table(columns=["rebalance_id"], filter=of_day).column(0).to_pylist()
    return found


def inputs_in_file(path: Path, skipped: Skipped) -> Iterator[Recorded]:
    """Yield the situations of a JSONL file, in order."""
    waiting: dict[str, _Parts] = {}
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                where = f"{path}, line {number}"
                try:
                    text = _situation(line, waiting)
                except DecodeError as error:
                    skipped.note(where, str(error))
                    continue
                if text is not None:
                    yield text


def _situation(line: str, waiting: dict[str, _Parts]) -> Recorded | None:
    try:
        value = loads_foreign(line)
    except ValueError as error:
        raise DecodeError(f"not JSON ({error})", offset=0, remedy=_REMEDY) from None
    if isinstance(value, Mapping) and "subs" in value and "clients" in value:
        return Recorded(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False), "")
    record: Any = line
    if isinstance(value, Mapping) and isinstance(value.get("value"), str):
        record = value["value"]
    event = decode_event(record.strip().encode())
    if not isinstance(event, Event) or not isinstance(event.body, RebalanceHeader | TasksPart | ClientPart):
        return None
    text = _part(event.body, waiting)
    return None if text is None else Recorded(text, event.envelope.group)


_REMEDY: Final = "write one situation or one event on each line"


def _part(body: RebalanceHeader | TasksPart | ClientPart, waiting: dict[str, _Parts]) -> str | None:
    parts = waiting.setdefault(body.rebalance_id, {})
    parts.setdefault(body.part, body)
    if len(waiting) > _WAITING_MAX:  # the oldest rebalance is not expected to become complete
        del waiting[next(iter(waiting))]
    whole = join_rebalance(parts)
    if whole is None:
        return None
    waiting.pop(body.rebalance_id, None)
    return canonical_input(whole) if whole.header.outcome == "ok" and whole.clients else None
