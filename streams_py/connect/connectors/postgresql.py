"""Shared parts of the PostgreSQL connectors: connections and table definitions."""

from __future__ import annotations

import os
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
    "PATH_KEYS",
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
_SOCKET: Final = "/"
_ALLOWED: Final = frozenset(
    {
        "application_name",
        "channel_binding",
        "client_encoding",
        "connect_timeout",
        "dbname",
        "fallback_application_name",
        "host",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "load_balance_hosts",
        "options",
        "password",
        "port",
        "require_auth",
        "ssl_max_protocol_version",
        "ssl_min_protocol_version",
        "sslmode",
        "sslnegotiation",
        "sslpassword",
        "sslsni",
        "target_session_attrs",
        "tcp_user_timeout",
        "user",
    }
)
"""Parameters of libpq that name no file of the worker, and no address besides ``host``."""
_FILES: Final = ("sslrootcert", "sslcert", "sslkey")
"""Parameters of libpq with a separate key, whose path the worker checks."""
PATH_KEYS: Final = tuple(f"connection.{name}" for name in _FILES)
_SYSTEM_ROOTS: Final = "system"
_NO_FILE: Final = os.path.join(os.devnull, "none")
"""A path that cannot exist."""
_NOT_FROM_ENVIRONMENT: Final = {
    "hostaddr": "",
    "password": "",
    "passfile": _NO_FILE,
    "sslcert": _NO_FILE,
    "sslkey": _NO_FILE,
}
"""Values that keep libpq from using PGHOSTADDR, PGPASSWORD, and the worker's own password file and certificate."""


class PostgresqlSettings(ConnectorSettings):
    connection_url: Annotated[
        SecretStr, Field(description="postgresql://user@host:port/database, or host=... dbname=... user=...")
    ]
    connection_password: Annotated[
        SecretStr | None, Field(description="password, instead of one in connection.url")
    ] = None
    connection_sslrootcert: Annotated[
        str | None, Field(description="file with the certificates of the authorities that may sign the server's")
    ] = None
    connection_sslcert: Annotated[str | None, Field(description="file with the client's certificate")] = None
    # With a colon, libpq would load an OpenSSL engine.
    connection_sslkey: Annotated[
        str | None, Field(pattern=r"^[^:]+$", description="file with the key of the client's certificate")
    ] = None
    table: Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)?$", description="table: name or schema.name")]

    @field_validator("connection_url")
    @classmethod
    def _allowed(cls, url: SecretStr) -> SecretStr:
        try:
            parts = conninfo_to_dict(url.get_secret_value())
        except psycopg.Error:
            raise ValueError("is not a PostgreSQL connection string") from None  # libpq's error would show it
        for name in sorted(parts.keys() - _ALLOWED):
            if name in _FILES and parts[name] != _SYSTEM_ROOTS:
                raise ValueError(
                    f"may not contain {name}: set connection.{name} to the file, below a folder of the worker's "
                    "file.connectors.allowed.paths"
                )
            if name != "sslrootcert":
                raise ValueError(
                    f"may not contain {name}, which can make the worker use its own files or another address; remove "
                    f"it. Allowed are {', '.join(sorted(_ALLOWED))}, and sslrootcert=system"
                )
        hosts = str(parts.get("host", ""))
        # A password with one of these characters ends too early, and errors would show the rest as an unknown host.
        if "@" in hosts or not _PORTS.fullmatch(str(parts.get("port", ""))):
            raise ValueError(
                "has no valid host and port: write @ / : # ? in a password as %40 %2F %3A %23 %3F, or use "
                "connection.password"
            )
        if not all(host and not host.startswith(_SOCKET) for host in hosts.split(",")):  # libpq takes "" as a socket
            raise ValueError(
                "must name a host: Unix sockets of the worker's host are not allowed; write host=localhost"
            )
        return url

    def conninfo(self) -> str:
        """Return the parameters of libpq, none of which is a secret or a file of the worker itself."""
        if "PGSERVICE" in os.environ:  # libpq has no value that means no service
            raise ConnectorError(
                "connection.url: the worker's environment sets PGSERVICE, which connectors may not use; start the "
                "worker without it"
            )
        given = {"connect_timeout": 10, "application_name": "streams-py-connect"}
        parts = {**_NOT_FROM_ENVIRONMENT, **given, **conninfo_to_dict(self.connection_url.get_secret_value())}
        if self.connection_password:
            parts["password"] = self.connection_password.get_secret_value()
        files = (self.connection_sslrootcert, self.connection_sslcert, self.connection_sslkey)
        parts |= {name: path for name, path in zip(_FILES, files, strict=True) if path is not None}
        return make_conninfo(**parts)  # type: ignore[arg-type]

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
    return psycopg.connect(settings.conninfo(), autocommit=True)


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
