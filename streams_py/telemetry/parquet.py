"""Writes rows of tables as Parquet files in Spark's format, for the few rows of a look, without a Spark job."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from streams_py.telemetry.schemas import columns_of

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
    """Return a file with rows of one table. It has no ``group`` and ``day``, which are in the names of its folders."""
    return parquet_of(columns_of(table), rows)


def parquet_of(columns: Sequence[tuple[str, str]], rows: Sequence[dict[str, Any]]) -> bytes:
    """Return a file with these columns, given as name and Spark's type. Times in rows are ms since the epoch."""
    arrays = [pa.array([_value(row[name], kind) for row in rows], _KINDS[kind]) for name, kind in columns]
    made = pa.Table.from_arrays(arrays, [name for name, _ in columns])
    out = io.BytesIO()
    # Spark's default format of timestamps, so that all files of a folder have one schema.
    pq.write_table(made, out, compression="zstd", use_deprecated_int96_timestamps=True)
    return out.getvalue()


def _value(value: Any, kind: str) -> Any:
    return list(value.items()) if kind.startswith("map") and value is not None else value
