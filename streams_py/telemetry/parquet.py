"""Rows of tables as Parquet files, as Spark writes and reads them: for the few rows of a look, which need no job."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from streams_py.telemetry.schemas import columns_of

__all__ = ["parquet_of", "table_parquet"]

_KINDS: Final[dict[str, Any]] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("ms"),
    "array<string>": pa.list_(pa.string()),
    "map<string, bigint>": pa.map_(pa.string(), pa.int64()),
}


def table_parquet(table: str, rows: Sequence[dict[str, Any]]) -> bytes:
    """A file with rows of one table, without ``group`` and ``day``, which its folder says."""
    return parquet_of(columns_of(table), rows)


def parquet_of(columns: Sequence[tuple[str, str]], rows: Sequence[dict[str, Any]]) -> bytes:
    """A file with these columns, given as name and type of Spark's DDL. Instants are ms since the epoch."""
    arrays = [pa.array([_value(row[name], kind) for row in rows], _KINDS[kind]) for name, kind in columns]
    made = pa.Table.from_arrays(arrays, [name for name, _ in columns])
    out = io.BytesIO()
    # Instants as Spark writes them by default, so that the files of a folder have one schema.
    pq.write_table(made, out, compression="zstd", use_deprecated_int96_timestamps=True)
    return out.getvalue()


def _value(value: Any, kind: str) -> Any:
    return list(value.items()) if kind.startswith("map") and value is not None else value
