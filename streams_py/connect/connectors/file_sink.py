"""Writes records of topics as lines of JSON or CSV.

Each partition has a file ``<directory>/<topic>-<partition>.json``.

Each line contains its record's offset, so the end of a file shows its position. After a kill, an incomplete last line
is removed and repeated records are skipped. A file contains every record once and in order, as long as the partition
stays on hosts that share the directory. (A recreated topic starts at offset 0 again: move its old files away.)
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from streams_py.connect.api import RetriableError, SinkConnector, SinkRecord, SinkTask, TopicPartition
from streams_py.connect.connectors.settings import ConnectorSettings, Names, WithSettings
from streams_py.errors import ConnectorError
from streams_py.system.private_files import UntrustedPathError, check_links, open_file

_OWN_FIELDS: Final = ("offset", "key")
_TAIL_BYTES: Final = 1 << 16


class FileSinkSettings(ConnectorSettings):
    directory: Annotated[str, Field(min_length=1, description="folder of the files; created if missing")]
    format: Annotated[Literal["json", "csv"], Field(description="json: an object per line; csv: a header, then rows")]
    csv_fields: Annotated[Names, Field(description="fields of the value to write as columns")] = ()

    @model_validator(mode="after")
    def _columns(self) -> FileSinkSettings:
        if self.format == "csv" and not self.csv_fields:
            raise ValueError("format=csv requires csv.fields, the fields of the value to write as columns")
        return self


class FileSinkConnector(WithSettings, SinkConnector):
    """All tasks have the same configuration: the consumer group assigns partitions to them."""

    settings_class = FileSinkSettings
    path_keys = ("directory",)

    def task_class(self) -> type[SinkTask]:
        return FileSinkTask


class FileSinkTask(SinkTask):
    """Opens and locks a file with its first record, and closes it with its partition."""

    path_keys = ("directory",)

    def start(self, props: Mapping[str, str]) -> None:
        self._settings = FileSinkSettings.of(props)
        self._directory = Path(self._settings.directory)
        self._files: dict[TopicPartition, _PartitionFile] = {}
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            check_links(str(self._directory))
        except UntrustedPathError as error:
            raise ConnectorError(f"directory: {error}") from None
        except OSError as error:
            raise ConnectorError(f"directory {self._directory} cannot be created: {error.strerror}") from None

    def put(self, records: Sequence[SinkRecord]) -> None:
        lines: dict[TopicPartition, list[bytes]] = {}
        ends: dict[TopicPartition, int] = {}
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            if partition not in self._files:
                path = self._directory / f"{record.topic}-{record.partition}.{self._settings.format}"
                self._files[partition] = _PartitionFile(path, self._header())
            if record.offset > ends.get(partition, self._files[partition].last_offset):
                lines.setdefault(partition, []).append(self._line(record))
                ends[partition] = record.offset
        for partition, new in lines.items():
            self._files[partition].append(b"".join(new), ends[partition])

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        for file in self._files.values():
            file.sync()

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            file = self._files.pop(partition, None)
            if file is not None:
                file.close()

    def stop(self) -> None:
        self.close(list(self._files))

    def _header(self) -> bytes:
        return _csv_line([*_OWN_FIELDS, *self._settings.csv_fields]) if self._settings.format == "csv" else b""

    def _line(self, record: SinkRecord) -> bytes:
        where = f"{record.topic}-{record.partition} at offset {record.offset}"
        if self._settings.format == "json":
            try:
                text = json.dumps({"offset": record.offset, "key": record.key, "value": record.value}, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise ConnectorError(
                    f"{where} cannot be written as JSON ({error}); use the json or string converter"
                ) from None
            return text.encode() + b"\n"
        value = {} if record.value is None else record.value
        if not isinstance(value, dict):
            raise ConnectorError(f"{where}: CSV requires objects, got {type(value).__name__}; use the json converter")
        extra = value.keys() - set(self._settings.csv_fields)
        if extra:
            raise ConnectorError(f"{where} has fields {sorted(extra)} without a column; add them to csv.fields")
        line = _csv_line([record.offset, record.key, *map(value.get, self._settings.csv_fields)])
        if line.count(b"\n") > 1 or b"\r" in line:  # after a kill, the last line is searched from the end
            raise ConnectorError(
                f"{where} contains text with line breaks, which the CSV format does not support; use format=json"
            )
        return line


class _PartitionFile:
    """One file.

    ``last_offset`` is the offset of its last line, or -1 for a file without records.
    """

    def __init__(self, path: Path, header: bytes) -> None:
        self._path = path
        self._file = io.FileIO(path, "a+", opener=_shared_file)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel drops it when the process dies
        except BlockingIOError:
            self._file.close()
            raise RetriableError(f"{path} is still written by another task") from None
        try:
            self.last_offset = self._repair(header)
        except BaseException:
            self._file.close()
            raise

    def _repair(self, header: bytes) -> int:
        size, end, last = self._file.seek(0, os.SEEK_END), 0, b""
        span = _TAIL_BYTES
        while size:  # search back to the newline before the last complete line
            tail = self._at(max(0, size - span), size)
            end = tail.rfind(b"\n") + 1
            begin = tail.rfind(b"\n", 0, end - 1) + 1 if end else 0
            if begin > 0 or span >= size:
                last, end = tail[begin:end], size - len(tail) + end
                break
            span *= 2
        if end < size:
            self._file.truncate(end)
        if end == 0 and header:
            self._file.write(header)
            return -1
        if header and self._at(0, len(header)) != header:
            raise ConnectorError(
                f"{self._path} has other columns than csv.fields; move the file away, or restore csv.fields"
            )
        return -1 if not last or last == header else self._offset(last, bool(header))

    def _at(self, begin: int, end: int) -> bytes:
        return os.pread(self._file.fileno(), end - begin, begin)

    def _offset(self, line: bytes, is_csv: bool) -> int:
        try:
            return int(line.split(b",", 1)[0]) if is_csv else int(json.loads(line)["offset"])
        except (ValueError, KeyError, TypeError):
            raise ConnectorError(f"{self._path}: the last line has no offset; move the file away") from None

    def append(self, lines: bytes, last_offset: int) -> None:
        """Append all lines. If the disk is full, append none."""
        size, written = self._file.seek(0, os.SEEK_END), 0
        try:
            while written < len(lines):
                written += self._file.write(lines[written:])
        except OSError as error:
            self._file.truncate(size)
            raise RetriableError(f"{self._path}: {error.strerror}") from None
        self.last_offset = last_offset

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _shared_file(path: str, flags: int) -> int:
    """Open a file that other users may read as far as the umask allows. Does not follow links."""
    return open_file(path, flags, 0o666)


def _csv_line(fields: Sequence[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(
        [json.dumps(field) if isinstance(field, (dict, list)) else field for field in fields]
    )
    return text.getvalue().encode()
