"""Where recorded situations come from: the tables of a group, or a file with a JSON text on each line.

A line is a situation, or a record of an events topic (its value as it is, or ``{"value": "..."}`` as tools write it);
kinds may be mixed. Records of a rebalance become a situation when they are complete. What cannot be read is passed over
and counted.
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
from streams_py.telemetry.delta import delta_files, is_delta
from streams_py.telemetry.replay import canonical_input

__all__ = ["INPUT_TABLE", "Skipped", "inputs_in_file", "inputs_in_tables", "no_inputs", "situations_in"]

INPUT_TABLE: Final = "rebalance_input"
_WAITING_MAX: Final = 1_000
_ROWS: Final = 64
_Parts = dict[int, RebalanceHeader | TasksPart | ClientPart]


@dataclass(slots=True)
class Skipped:
    """How many lines could not be read, and why the first of them."""

    lines: int = 0
    reason: str = ""

    def note(self, where: str, why: str) -> None:
        """Count a line that could not be read; the first one says why."""
        self.lines += 1
        self.reason = self.reason or f"{where}: {why}"


def situations_in(path: str | Path, skipped: Skipped) -> Iterator[str]:
    """Canonical texts in a file or a folder of tables. ConfigError when there is neither."""
    place = Path(path)
    if place.is_dir():
        return inputs_in_tables(place)
    if place.is_file():
        return inputs_in_file(place, skipped)
    raise no_inputs(place)


def no_inputs(where: object) -> ConfigError:
    """The error for a place without recorded inputs."""
    return ConfigError(
        f"there are no recorded inputs at {where}; give a folder that `telemetry run --tables` has filled, or a JSONL "
        "file"
    )


def inputs_in_tables(folder: Path) -> Iterator[str]:
    """The rows of ``rebalance_input``, a few at a time."""
    table = folder / INPUT_TABLE
    if not table.is_dir():
        raise no_inputs(folder)
    try:
        import pyarrow.dataset as ds
    except ModuleNotFoundError as error:
        raise ConfigError("pyarrow is not installed; install kafka-streams-py[spark] to read tables") from error
    files: Any = delta_files(table) if is_delta(table) else str(table)
    batches = ds.dataset(files, format="parquet").to_batches(columns=["input"], batch_size=_ROWS)
    return (text for batch in batches for text in batch.column(0).to_pylist())


def inputs_in_file(path: Path, skipped: Skipped) -> Iterator[str]:
    """The situations of a JSONL file, in order."""
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


def _situation(line: str, waiting: dict[str, _Parts]) -> str | None:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise DecodeError(f"not JSON ({error})", offset=0, remedy=_REMEDY) from None
    if isinstance(value, Mapping) and "subs" in value and "clients" in value:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    record: Any = line
    if isinstance(value, Mapping) and isinstance(value.get("value"), str):
        record = value["value"]
    event = decode_event(record.strip().encode())
    if not isinstance(event, Event) or not isinstance(event.body, RebalanceHeader | TasksPart | ClientPart):
        return None
    return _part(event.body, waiting)


_REMEDY: Final = "write one situation or one event on each line"


def _part(body: RebalanceHeader | TasksPart | ClientPart, waiting: dict[str, _Parts]) -> str | None:
    parts = waiting.setdefault(body.rebalance_id, {})
    parts.setdefault(body.part, body)
    if len(waiting) > _WAITING_MAX:  # the oldest is not going to be completed any more
        del waiting[next(iter(waiting))]
    whole = join_rebalance(parts)
    if whole is None:
        return None
    waiting.pop(body.rebalance_id, None)
    return canonical_input(whole) if whole.header.outcome == "ok" and whole.clients else None
