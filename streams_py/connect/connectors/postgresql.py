"""Shared parts of the PostgreSQL connectors: connections and table definitions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field, SecretStr, field_validator

from streams_py.connect.connectors.settings import ConnectorSettings
from streams_py.errors import ConnectorError

try:
    import psycopg
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.rows import dict_row
    from psycopg.types.json import Json
except ImportError as missing:
    raise ImportError('PostgreSQL connectors need psycopg: pip install "kafka-streams-py[postgresql]"') from missing

__all__ = [
    "Column",
    "Json",
    "PostgresqlSettings",
    "Table",
    "connect",
    "dict_row",
    "message_of",
    "psycopg",
    "sql",
    "table_of",
]

_PORTS: Final = re.compile(r"[\d,]*")


class PostgresqlSettings(ConnectorSettings):
    connection_url: Annotated[
        SecretStr, Field(description="postgresql://user@host:port/database, or host=... dbname=... user=...")
    ]
    connection_password: Annotated[
        SecretStr | None, Field(description="password, instead of one in connection.url")
    ] = None
    table: Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)?$", description="table: name or schema.name")]

    @field_validator("connection_url")
    @classmethod
    def _readable(cls, url: SecretStr) -> SecretStr:
        try:
            parts = conninfo_to_dict(url.get_secret_value())
        except psycopg.Error:
            raise ValueError("is not a PostgreSQL connection string") from None  # libpq's error would show it
        # A password with one of these characters ends too early, and errors would show the rest as an unknown host.
        if "@" in str(parts.get("host", "")) or not _PORTS.fullmatch(str(parts.get("port", ""))):
            raise ValueError(
                "has no valid host and port: write @ / : # ? in a password as %40 %2F %3A %23 %3F, or use "
                "connection.password"
            )
        return url

    def conninfo(self) -> str:
        password = self.connection_password
        extra = {"password": password.get_secret_value()} if password else {}
        return make_conninfo(self.connection_url.get_secret_value(), **{"connect_timeout": 10, **extra})  # type: ignore[arg-type]

    def identifier(self) -> sql.Identifier:
        return sql.Identifier(*self.table.split("."))


@dataclass(frozen=True, slots=True)
class Column:
    """A column. ``required`` means NOT NULL without a default."""

    type: str
    required: bool


@dataclass(frozen=True, slots=True)
class Table:
    """Columns by name, and the sets of columns that identify a row."""

    columns: dict[str, Column]
    keys: tuple[frozenset[str], ...]

    def required(self) -> list[str]:
        """Return the columns that each row must have."""
        return [name for name, column in self.columns.items() if column.required]


def connect(settings: PostgresqlSettings) -> psycopg.Connection[Any]:
    """Open a connection in autocommit mode.

    Raises psycopg.OperationalError without the password in its text.
    """
    return psycopg.connect(settings.conninfo(), autocommit=True, application_name="streams-py-connect")


def table_of(connection: psycopg.Connection[Any], settings: PostgresqlSettings, *, generated: bool = False) -> Table:
    """Return the present definition of the table, with generated columns if requested.

    ConfigError if it is missing.
    """
    name = settings.identifier().as_string(connection)
    found = connection.execute("SELECT to_regclass(%s)::oid", [name]).fetchone()
    if found is None or found[0] is None:
        raise ConnectorError(f"table {settings.table} does not exist (or the user may not see it); create it first")
    columns = connection.execute(
        "SELECT attname, format_type(atttypid, NULL), attnotnull AND NOT atthasdef AND attidentity = '' "
        "FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND (%s OR attgenerated = '') "
        "ORDER BY attnum",
        [found[0], generated],
    )
    keys = connection.execute(
        "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
        "AND a.attnum = ANY(i.indkey) WHERE i.indrelid = %s AND i.indisunique AND i.indpred IS NULL "
        "AND i.indexprs IS NULL GROUP BY i.indexrelid",
        [found[0]],
    )
    return Table({n: Column(type, required) for n, type, required in columns}, tuple(frozenset(k[0]) for k in keys))


def message_of(error: psycopg.Error) -> str:
    """Return PostgreSQL's message without details, which would show rows."""
    return error.diag.message_primary or str(error).splitlines()[0]
