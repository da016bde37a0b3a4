"""Writes records of topics as rows of a PostgreSQL table: upserts by key, in batches.

A record's value is an object, whose fields are columns. Key columns that are missing in the value come from the
record's key. A record without a value deletes its row (``delete.enabled``). Rows are found by key, so a repeated record
changes nothing. Every batch is one transaction: ``COPY`` writes rows to a staging table, and an ``INSERT`` moves them
to the table. This is many times faster than one statement per row.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from streams_py.connect.api import RetriableError, SinkConnector, SinkRecord, SinkTask
from streams_py.connect.connectors.postgresql import (
    PATH_KEYS,
    Json,
    PostgresqlSettings,
    Table,
    connect,
    message_of,
    psycopg,
    sql,
    table_of,
)
from streams_py.connect.connectors.settings import Names, WithSettings
from streams_py.errors import ConnectorError

_STAGING = sql.Identifier("pg_temp", "streams_py_staging")


class PostgresqlSinkSettings(PostgresqlSettings):
    key_columns: Annotated[Names, Field(min_length=1, description="columns of the primary key or of a unique index")]
    batch_rows: Annotated[int, Field(ge=1, description="maximum number of rows per transaction")] = 3000
    delete_enabled: Annotated[bool, Field(description="whether a record without a value deletes its row")] = False


class PostgresqlSinkConnector(WithSettings, SinkConnector):
    """All tasks have the same configuration: the consumer group assigns partitions to them."""

    settings_class = PostgresqlSinkSettings
    path_keys = PATH_KEYS

    def task_class(self) -> type[SinkTask]:
        return PostgresqlSinkTask


@dataclass(slots=True)
class _Change:
    """The effect of a batch on one row: delete it, write fields, or both in this order."""

    record: SinkRecord  # the last one
    deletes: bool
    fields: dict[str, Any]


class PostgresqlSinkTask(SinkTask):
    """Retries while the database is away.

    A record that the database rejects fails the task, with its position.
    """

    path_keys = PATH_KEYS
    _connection: psycopg.Connection[Any] | None = None

    def start(self, props: Mapping[str, str]) -> None:
        self._settings = PostgresqlSinkSettings.of(props)
        try:
            self._connect()
        except psycopg.OperationalError as error:
            raise ConnectorError(f"connection.url: {message_of(error)}") from None

    def put(self, records: Sequence[SinkRecord]) -> None:
        try:
            connection = self._connection or self._connect()
            for begin in range(0, len(records), self._settings.batch_rows):
                self._write(connection, self._changes(records[begin : begin + self._settings.batch_rows]))
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.stop()
            raise RetriableError(f"table {self._settings.table}: {message_of(error)}") from None
        except psycopg.Error as error:
            self.stop()
            raise ConnectorError(f"table {self._settings.table}: {message_of(error)}") from None

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _connect(self) -> psycopg.Connection[Any]:
        connection = connect(self._settings)
        try:
            self._table = table_of(connection, self._settings)
            self._check(self._table)
            self._needed = (*self._settings.key_columns, *self._table.required())
            staging = sql.SQL("CREATE TEMP TABLE streams_py_staging ON COMMIT DELETE ROWS AS TABLE {} WITH NO DATA")
            connection.execute(staging.format(self._settings.identifier()))
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _check(self, table: Table) -> None:
        keys, name = self._settings.key_columns, self._settings.table
        missing = [key for key in keys if key not in table.columns]
        if missing:
            raise ConnectorError(f"key.columns: table {name} has no column {missing[0]}; it has {[*table.columns]}")
        if frozenset(keys) not in table.keys:
            raise ConnectorError(
                f"key.columns: table {name} has no primary key or unique index on exactly {list(keys)}; "
                f"CREATE UNIQUE INDEX ON {name} ({', '.join(keys)})"
            )

    def _changes(self, records: Sequence[SinkRecord]) -> dict[tuple[Any, ...], _Change]:
        changes: dict[tuple[Any, ...], _Change] = {}
        for record in records:
            row = self._row(record)
            key = tuple(map(row.__getitem__, self._settings.key_columns))
            try:
                change = changes.get(key)
            except TypeError:
                raise self._bad(record, "has an object or a list in a key column", "choose other key.columns") from None
            if change is None or record.value is None:
                changes[key] = _Change(record, record.value is None, {} if record.value is None else row)
            else:
                change.record, change.fields = record, {**change.fields, **row}
        return changes

    def _row(self, record: SinkRecord) -> dict[str, Any]:
        keys, columns = self._settings.key_columns, self._table.columns
        if record.value is None and not self._settings.delete_enabled:
            raise self._bad(record, "has no value", "set delete.enabled=true to delete its row")
        row = {} if record.value is None else record.value
        if not isinstance(row, dict):
            raise self._bad(record, f"is {type(row).__name__}, not an object", "use the json converter")
        if not row.keys() <= columns.keys():
            field = next(name for name in row if name not in columns)
            raise self._bad(record, f"has a field {field!r} that is not a column", "add the column to the table")
        if any(key not in row for key in keys):
            of_key = record.key if isinstance(record.key, dict) else {keys[0]: record.key} if len(keys) == 1 else {}
            row = {**{key: of_key[key] for key in keys if key in of_key}, **row}
        for name in keys if record.value is None else self._needed:
            if row.get(name) is None:
                raise self._bad(
                    record, f"has no value for column {name!r}", "neither its value nor its key contains it"
                )
        return row

    def _bad(self, record: SinkRecord, what: str, remedy: str) -> ConnectorError:
        where = f"{record.topic}-{record.partition} at offset {record.offset}"
        return ConnectorError(f"{where} cannot be written to table {self._settings.table}: it {what}; {remedy}")

    def _write(self, connection: psycopg.Connection[Any], changes: Mapping[tuple[Any, ...], _Change]) -> None:
        by_columns: dict[tuple[str, ...], list[_Change]] = {}
        in_order = functools.cache(lambda names: tuple(sorted(names)))  # most rows have the same fields
        for change in changes.values():
            if change.fields:
                by_columns.setdefault(in_order(tuple(change.fields)), []).append(change)
        same = sql.SQL(" AND ").join(
            sql.SQL("{} = %s").format(sql.Identifier(key)) for key in self._settings.key_columns
        )
        delete = sql.SQL("DELETE FROM {} WHERE {}").format(self._settings.identifier(), same)
        with connection.transaction(), connection.cursor() as cursor:
            if deleted := [key for key, change in changes.items() if change.deletes]:
                cursor.executemany(delete, deleted)
            for columns, group in by_columns.items():
                self._upsert(cursor, columns, group)

    def _upsert(self, cursor: psycopg.Cursor[Any], columns: tuple[str, ...], group: list[_Change]) -> None:
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        objects = [at for at, name in enumerate(columns) if self._table.columns[name].type in ("json", "jsonb")]
        try:
            with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(_STAGING, names)) as copy:
                for change in group:
                    values = [*map(change.fields.__getitem__, columns)]
                    for at in objects:
                        values[at] = None if values[at] is None else Json(values[at])
                    copy.write_row(values)
        except psycopg.DataError as error:
            line = re.search(r"line (\d+)", error.diag.context or "")
            record, why = (group[int(line[1]) - 1] if line else change).record, f"does not fit: {message_of(error)}"
            raise self._bad(record, why, "change the column's type, or the data") from None
        rest = [sql.Identifier(name) for name in columns if name not in self._settings.key_columns]
        updates = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in rest)
        action = sql.SQL("UPDATE SET {}").format(updates) if rest else sql.SQL("NOTHING")
        keys = sql.SQL(", ").join(map(sql.Identifier, self._settings.key_columns))
        insert = sql.SQL("INSERT INTO {0} ({1}) SELECT {1} FROM {2} ON CONFLICT ({3}) DO {4}")
        cursor.execute(insert.format(self._settings.identifier(), names, _STAGING, keys, action))
        cursor.execute(sql.SQL("TRUNCATE {}").format(_STAGING))
