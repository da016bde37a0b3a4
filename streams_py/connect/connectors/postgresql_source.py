"""Reads rows of a PostgreSQL table as records, in the order of an increasing column.

The source partition is the table, and the source offset is the column's value in the last row. Rows become visible when
their transactions commit, which can happen in another order than that of the sequence. Reading "everything above the
last value" would lose rows of slow transactions. So the task notes the highest value, and then the transactions that
write to the table at that moment: an ``INSERT`` holds its lock from before it gets its number until it commits. When
those transactions have ended, the task reads up to the noted value. Updates and deletes are not seen. A transaction
that stays open delays all later rows.
"""

from __future__ import annotations

import base64
import math
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime, time
from typing import Annotated, Any

from pydantic import Field

from streams_py.connect.api import RetriableError, SourceConnector, SourceRecord, SourceTask
from streams_py.connect.connectors.postgresql import (
    PATH_KEYS,
    PostgresqlSettings,
    connect,
    dict_row,
    message_of,
    psycopg,
    sql,
    table_of,
)
from streams_py.connect.connectors.settings import WithSettings
from streams_py.errors import ConnectorError

_WRITERS = (
    "SELECT coalesce(pid, 0), virtualtransaction FROM pg_locks WHERE relation = %s::regclass AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')"
)


class PostgresqlSourceSettings(PostgresqlSettings):
    topic: Annotated[str, Field(min_length=1, description="topic to write the records to")]
    incrementing_column: Annotated[
        str, Field(min_length=1, description="column of increasing integers, such as an identity")
    ]
    key_column: Annotated[str | None, Field(description="column of the key; default: incrementing.column")] = None
    batch_rows: Annotated[int, Field(ge=1, description="maximum number of records per poll")] = 1000
    poll_interval_ms: Annotated[int, Field(ge=1, description="interval between checks for more rows")] = 1000


class PostgresqlSourceConnector(WithSettings, SourceConnector):
    """One table, so one task."""

    settings_class = PostgresqlSourceSettings
    path_keys = PATH_KEYS
    tasks_max = 1

    def task_class(self) -> type[SourceTask]:
        return PostgresqlSourceTask


class PostgresqlSourceTask(SourceTask):
    """Reads rows between ``_read_to`` and ``_ceiling`` when all ``_writers`` have ended."""

    path_keys = PATH_KEYS

    def start(self, props: Mapping[str, str]) -> None:
        self._settings = PostgresqlSourceSettings.of(props)
        self._partition = {"table": self._settings.table}
        self._stopping = threading.Event()
        self._in_use = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        offset = self.context.offset_reader.offset(self._partition) or {}
        self._read_to: int | None = offset.get("incrementing")
        self._ceiling: int | None = None
        self._writers: set[tuple[int, str]] = set()
        try:
            self._connect()
        except psycopg.OperationalError as error:
            raise ConnectorError(f"connection.url: {message_of(error)}") from None

    def stop(self) -> None:
        self._stopping.set()
        connection = self._connection
        if connection is not None:
            with suppress(psycopg.Error):
                connection.cancel_safe()
        with self._in_use:
            self._close()

    def poll(self) -> list[SourceRecord] | None:
        with self._in_use:
            if self._stopping.is_set():
                return None
            try:
                records = self._read(self._connection or self._connect())
            except psycopg.errors.QueryCanceled:
                return None
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                self._close()
                self._stopping.wait(self._settings.poll_interval_ms / 1000)
                raise RetriableError(f"table {self._settings.table}: {message_of(error)}") from None
            except psycopg.Error as error:
                raise ConnectorError(f"table {self._settings.table}: {message_of(error)}") from None
        if not records:
            self._stopping.wait(self._settings.poll_interval_ms / 1000)
        return records

    def _connect(self) -> psycopg.Connection[Any]:
        connection = connect(self._settings)
        try:
            table, name = table_of(connection, self._settings, generated=True), self._settings.table
            for key in ("incrementing_column", "key_column"):
                column = getattr(self._settings, key)
                if column is not None and column not in table.columns:
                    raise ConnectorError(
                        f"{key.replace('_', '.')}: table {name} has no column {column}; it has {[*table.columns]}"
                    )
            incrementing = self._settings.incrementing_column
            type = table.columns[incrementing].type
            if type not in ("smallint", "integer", "bigint") or frozenset([incrementing]) not in table.keys:
                raise ConnectorError(
                    f"incrementing.column: {incrementing} of table {name} is {type}, or has no unique index; "
                    "use a column of increasing integers, such as an identity column that is the primary key"
                )
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _read(self, connection: psycopg.Connection[Any]) -> list[SourceRecord]:
        table, column = self._settings.identifier(), sql.Identifier(self._settings.incrementing_column)
        name = table.as_string(connection)
        if self._ceiling is None or self._read_to == self._ceiling:
            highest = connection.execute(sql.SQL("SELECT max({}) FROM {}").format(column, table)).fetchone()
            self._ceiling = highest[0] if highest else None
            self._writers = set(connection.execute(_WRITERS, [name]))
        elif self._writers:
            self._writers &= set(connection.execute(_WRITERS, [name]))
        if self._writers or self._ceiling is None:
            return []
        above = sql.SQL("{} > {}").format(column, self._read_to) if self._read_to is not None else sql.SQL("true")
        query = sql.SQL("SELECT * FROM {} WHERE {} AND {} <= {} ORDER BY {} LIMIT {}").format(
            table, above, column, self._ceiling, column, self._settings.batch_rows
        )
        rows = connection.cursor(row_factory=dict_row).execute(query).fetchall()
        if len(rows) < self._settings.batch_rows:
            self._read_to = self._ceiling
        else:
            self._read_to = rows[-1][self._settings.incrementing_column]
        return [self._record(row) for row in rows]

    def _record(self, row: dict[str, Any]) -> SourceRecord:
        number = row[self._settings.incrementing_column]
        key = row[self._settings.key_column or self._settings.incrementing_column]
        value = {name: _json(cell) for name, cell in row.items()}
        return SourceRecord(self._partition, {"incrementing": number}, self._settings.topic, value, _json(key))


def _json(cell: Any) -> Any:
    """Return a column's value as JSON.

    Types without a JSON form become text, and bytes become base64.
    """
    if isinstance(cell, dict):
        return {name: _json(part) for name, part in cell.items()}
    if isinstance(cell, list):
        return [_json(part) for part in cell]
    if isinstance(cell, (datetime, date, time)):
        return cell.isoformat()
    if isinstance(cell, (bytes, memoryview)):
        return base64.b64encode(cell).decode()
    if cell is None or isinstance(cell, (bool, int, str)) or (isinstance(cell, float) and math.isfinite(cell)):
        return cell
    return str(cell)
