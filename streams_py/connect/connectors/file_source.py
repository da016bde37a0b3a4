"""Reads the lines of a growing file, CSV or JSON, as records of a topic.

The source partition is the file's name, and the source offset is the byte after the line. After a kill the task
continues there. A last line without a newline is not read yet, because its writer may not have finished it.

It is an error if the file is shorter than the offset (truncated), or starts with other bytes than before (replaced,
rotated). With ``on.replaced=restart`` the task reads such a file from its beginning, after the rest of the old file if
that is still open.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, BinaryIO, Final, Literal

from pydantic import Field

from streams_py.connect.api import SourceConnector, SourceRecord, SourceTask
from streams_py.connect.connectors.settings import ConnectorSettings, WithSettings
from streams_py.errors import ConnectorError
from streams_py.system.private_files import UntrustedPathError, open_input

_log = logging.getLogger("streams_py.connect")
_HEAD_BYTES_MAX: Final = 1024


class FileSourceSettings(ConnectorSettings):
    file: Annotated[
        str, Field(min_length=1, description="path of the file to read, on the host of the worker that runs the task")
    ]
    topic: Annotated[str, Field(min_length=1, description="topic to write the records to")]
    format: Annotated[Literal["json", "csv"], Field(description="json: an object per line; csv: a header, then rows")]
    key_field: Annotated[str | None, Field(description="field whose value is the record's key")] = None
    batch_rows: Annotated[int, Field(ge=1, description="records per poll, at most")] = 1000
    poll_interval_ms: Annotated[int, Field(ge=1, description="interval between checks for more lines")] = 500
    line_bytes_max: Annotated[int, Field(ge=1, description="a longer line is an error")] = 1 << 20
    on_replaced: Annotated[Literal["fail", "restart"], Field(description="reaction to a replaced file")] = "fail"
    errors_tolerance: Literal["none", "all"] = "none"


class FileSourceConnector(WithSettings, SourceConnector):
    """One file, so one task."""

    settings_class = FileSourceSettings
    path_keys = ("file",)
    tasks_max = 1

    def task_class(self) -> type[SourceTask]:
        return FileSourceTask


class FileSourceTask(SourceTask):
    """Keeps the file open. Its position is always after the last returned line."""

    path_keys = ("file",)

    _whole_head: int | None = None

    def start(self, props: Mapping[str, str]) -> None:
        self._settings = FileSourceSettings.of(props)
        self._partition = {"file": self._settings.file}
        self._stopping = threading.Event()
        self._file: BinaryIO | None = None
        offset = self.context.offset_reader.offset(self._partition) or {}
        self._resume: tuple[int, int | None] = int(offset.get("position", 0)), offset.get("head")

    def stop(self) -> None:
        self._stopping.set()

    def poll(self) -> list[SourceRecord] | None:
        records = [] if self._stopping.is_set() else self._read()
        if not records:
            self._stopping.wait(self._settings.poll_interval_ms / 1000)
        return records

    def _read(self) -> list[SourceRecord]:
        self._file = self._file or self._open(*self._resume)
        if self._file is None:
            return []
        replaced = self._what_happened(self._file)  # checked first, so the next reads reach the old file's end
        if replaced is not None and self._settings.on_replaced == "fail":
            raise self._replaced(replaced, self._file.tell())
        settings, at, records = self._settings, self._file.tell(), list[SourceRecord]()
        while len(records) < settings.batch_rows:
            try:
                if (row := self._line(self._file, at)) is None:
                    break
                value = self._value(row, at)
            except ConnectorError:
                if not records:
                    raise
                break  # return the records before the bad line first, or they would never be sent
            at += len(row)
            if value is not None:
                offset, key = {"position": at, "head": self._head(self._file, at)}, value.get(settings.key_field)
                records.append(SourceRecord(self._partition, offset, settings.topic, value, key))
        self._file.seek(at)  # part of the next line may have been read
        if replaced is not None and not records:
            _log.warning("%s: %s; reading it from its beginning", self._settings.file, replaced)
            self._file.close()
            self._file, self._resume = None, (0, None)
        return records

    def _open(self, position: int, head: int | None) -> BinaryIO | None:
        """Open the file, or return None if it does not exist (yet)."""
        try:
            file = os.fdopen(open_input(self._settings.file), "rb")  # stays open
        except FileNotFoundError:
            return None
        except UntrustedPathError as error:
            raise ConnectorError(f"file: {error}") from None
        size = os.fstat(file.fileno()).st_size
        if size < position or (head is not None and self._head(file, position) != head):
            what = "was truncated" if size < position else "was replaced (it starts with other bytes than before)"
            if self._settings.on_replaced == "fail":
                file.close()
                raise self._replaced(what, position)
            _log.warning("%s %s while no task read it; reading it from its beginning", self._settings.file, what)
            position = 0
        if self._settings.format == "csv":
            header = self._line(file, 0)
            if header is None:
                file.close()
                return None
            self._fields = next(csv.reader([self._text(header, 0)]))
        file.seek(max(position, file.tell()))
        return file

    def _what_happened(self, file: BinaryIO) -> str | None:
        """Return what happened if the path leads to another file, or the file was truncated."""
        was = os.fstat(file.fileno())
        if was.st_size < file.tell():
            return "was truncated"
        with suppress(FileNotFoundError):  # in the middle of a rotation
            if not os.path.samestat(was, os.stat(self._settings.file)):
                return "was rotated (the path leads to another file)"
        return None

    def _replaced(self, what: str, position: int) -> ConnectorError:
        return ConnectorError(
            f"{self._settings.file} {what}; it was read up to byte {position}. Put the old file back, or set "
            "on.replaced=restart to read the new one from its beginning"
        )

    def _line(self, file: BinaryIO, at: int) -> bytes | None:
        """Return the next complete row, or None. CSV rows may contain line breaks in quoted fields."""
        limit = self._settings.line_bytes_max
        row = more = file.readline(limit + 1)
        while more and len(row) <= limit and self._settings.format == "csv" and row.count(b'"') % 2:
            more = file.readline(limit + 1)
            row += more
        if len(row) > limit:
            raise ConnectorError(
                f"{self._settings.file}: the line at byte {at} is longer than line.bytes.max ({limit})"
            )
        return row if more.endswith(b"\n") else None

    def _head(self, file: BinaryIO, position: int) -> int:
        """Return a checksum of the start of the file, up to ``position``.

        Keeps the checksum of a complete start.
        """
        head = self._whole_head
        if head is None or position < _HEAD_BYTES_MAX:
            head = zlib.crc32(os.pread(file.fileno(), min(position, _HEAD_BYTES_MAX), 0))
            self._whole_head = head if position >= _HEAD_BYTES_MAX else None
        return head

    def _text(self, line: bytes, at: int) -> str:
        return line.decode("utf-8-sig" if at == 0 else "utf-8").rstrip("\r\n")

    def _value(self, line: bytes, at: int) -> dict[Any, Any] | None:
        """Return the record's value, or None for an empty line and for a tolerated bad line."""
        try:
            text = self._text(line, at)
            if not text.strip():
                return None
            value = json.loads(text) if self._settings.format == "json" else self._csv_row(text)
            if isinstance(value, dict):
                return value
            raise ValueError("not a JSON object")
        except (ValueError, RecursionError, csv.Error) as error:
            sentence = f"{self._settings.file}: the line at byte {at} is not valid {self._settings.format}: {error}"
            if self._settings.errors_tolerance == "none":
                raise ConnectorError(f"{sentence}. Fix the line, or set errors.tolerance=all to skip it") from None
            _log.warning("%s; skipped", sentence)
            return None

    def _csv_row(self, text: str) -> dict[str, str]:
        row = next(csv.reader(io.StringIO(text, newline=""), strict=True))
        if len(row) != len(self._fields):
            raise ValueError(f"{len(row)} fields, the header has {len(self._fields)}")
        return dict(zip(self._fields, row))
