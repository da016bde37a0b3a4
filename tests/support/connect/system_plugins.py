"""Connectors of the system tests, in worker processes: sources that write growing sequences, a sink that notes them.

Each instance of a job writes when it starts and stops to ``jobs.log`` of the folder in its configuration, a line per
event: ``start|stop <process id> <job>``. Lines are appended whole, so their order is that of time.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from streams_py.connect.api import SinkConnector, SinkRecord, SinkTask, SourceConnector, SourceRecord, SourceTask

_PERIOD_S = 0.05


def _note(props: Mapping[str, str], event: str, job: str) -> None:
    _append(Path(props["folder"]) / "jobs.log", f"{event} {os.getpid()} {job}\n")


def _append(path: Path, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


class _Noting:
    """Writes an event for ``start`` and ``stop`` of a connector."""

    def start(self, props: Mapping[str, str]) -> None:
        self._props = dict(props)
        _note(props, "start", props["name"])

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{**self._props, "number": str(number)} for number in range(max_tasks)]

    def stop(self) -> None:
        _note(self._props, "stop", self._props["name"])


class SequenceSource(_Noting, SourceConnector):
    def task_class(self) -> type[SourceTask]:
        return SequenceTask


class SequenceTask(SourceTask):
    """Writes [connector, task, n] for n = 0, 1, ... to ``topic``."""

    def start(self, props: Mapping[str, str]) -> None:
        self._props, self._number = props, int(props["number"])
        _note(props, "start", f"{props['name']}-{props['number']}")
        self._partition = {"number": props["number"]}
        committed = self.context.offset_reader.offset(self._partition)
        self._next = 0 if committed is None else committed["next"]
        self._stopped = threading.Event()

    def poll(self) -> list[SourceRecord] | None:
        if self._stopped.wait(_PERIOD_S):
            return None
        n, self._next = self._next, self._next + 1
        value = [self._props["name"], self._number, n]
        return [SourceRecord(self._partition, {"next": self._next}, self._props["topic"], value, key=str(self._number))]

    def stop(self) -> None:
        self._stopped.set()
        _note(self._props, "stop", f"{self._props['name']}-{self._props['number']}")


class NotingSink(_Noting, SinkConnector):
    def task_class(self) -> type[SinkTask]:
        return NotingTask


class NotingTask(SinkTask):
    """Appends values to ``sink.jsonl``, of all tasks together."""

    def start(self, props: Mapping[str, str]) -> None:
        self._props = props
        _note(props, "start", f"{props['name']}-{props['number']}")

    def put(self, records: Sequence[SinkRecord]) -> None:
        lines = "".join(json.dumps(record.value) + "\n" for record in records)
        if lines:
            _append(Path(self._props["folder"]) / "sink.jsonl", lines)

    def stop(self) -> None:
        _note(self._props, "stop", f"{self._props['name']}-{self._props['number']}")
