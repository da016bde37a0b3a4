"""Tables in Delta Lake's format: the files of a table, the settings of a session, and how days are replaced."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from streams_py.cli.spark.telemetry import app
from streams_py.spark.telemetry import DELTA, TableFolder
from streams_py.telemetry.delta import delta_files, delta_settings, is_delta
from tests.support.telemetry.delta import commit


def checkpoint(table: Path, version: int, *parts: tuple[str, ...]) -> None:
    """A checkpoint of one or more files; the log before it may be gone."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    kind = pa.struct([("path", pa.string())])
    for number, paths in enumerate(parts, 1):
        rows = pa.table({"add": pa.array([None, *({"path": path} for path in paths)], kind)})
        name = f".{number:010d}.{len(parts):010d}" if len(parts) > 1 else ""
        pq.write_table(rows, log / f"{version:020d}.checkpoint{name}.parquet")
    info = {"version": version} | ({"parts": len(parts)} if len(parts) > 1 else {})
    (log / "_last_checkpoint").write_text(json.dumps(info))


def names(table: Path) -> list[str]:
    return [str(Path(file).relative_to(table)) for file in delta_files(table)]


def test_files_are_those_of_the_latest_version(tmp_path: Path) -> None:
    commit(tmp_path, 0, add=("group=a%20b/day=1/x.parquet", "day=2/y.parquet"))
    commit(tmp_path, 1, add=("day=2/z.parquet",), remove=("day=2/y.parquet",))
    assert is_delta(tmp_path)
    assert names(tmp_path) == ["day=2/z.parquet", "group=a b/day=1/x.parquet"]


@pytest.mark.parametrize("parts", [(("a", "b"),), (("a",), ("b",))])
def test_log_goes_on_from_a_checkpoint(parts: tuple[tuple[str, ...], ...], tmp_path: Path) -> None:
    commit(tmp_path, 9, add=("long-gone",))
    checkpoint(tmp_path, 10, *parts)
    commit(tmp_path, 10, add=("b",))
    commit(tmp_path, 11, add=("c",), remove=("a",))
    assert names(tmp_path) == ["b", "c"]


# -- a session ---------------------------------------------------------------------------------------------------------


def test_delta_that_is_not_installed_is_refused_before_spark_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata.version

    def without_delta(name: str) -> str:
        if name == "delta-spark":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", without_delta)
    given = ["run", "--group", "g", "--tables", str(tmp_path / "t"), "--bootstrap", "127.0.0.1:1", "--format", "delta"]
    done = CliRunner(env={"COLUMNS": "400"}).invoke(app, given)
    assert done.exit_code == 2
    assert "Delta Lake is not installed: install the delta-spark version for this PySpark" in done.stderr


def test_jar_is_that_of_the_installed_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", {"delta-spark": "4.4.1", "pyspark": "4.2.0"}.__getitem__)
    assert delta_settings()["spark.jars.packages"] == "io.delta:delta-spark_4.2_2.13:4.4.1"


# -- writing -----------------------------------------------------------------------------------------------------------


class Writer:
    """A table to be written that keeps what is called."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple[Any, ...]] = {}

    @property
    def write(self) -> Writer:
        return self

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Writer:
            self.calls[name] = given
            return self

        return call


class Files:
    """A folder that has some tables."""

    def __init__(self, *tables: str) -> None:
        self.tables = tables

    def exists(self, name: str) -> bool:
        return name in self.tables

    def path(self, name: str) -> str:
        return f"/tables/{name}"


def calls(table: str, *existing: str) -> dict[str, tuple[Any, ...]]:
    folder = TableFolder.__new__(TableFolder)
    folder.files = Files(*existing)
    folder._table_format = DELTA  # a folder finds its format on a file system
    writer = Writer()
    folder._commit(table, writer, 19_676)  # one table of a look, without its rows
    return writer.calls


def test_days_are_replaced_in_one_commit() -> None:
    found = calls("move", "move")
    assert found["format"] == ("delta",)
    assert found["mode"] == ("overwrite",)
    assert found["partitionBy"] == ("group", "day")
    assert found["option"] == ("replaceWhere", "day >= '2023-11-15'")
    assert found["save"] == ("/tables/move",)


def test_first_commit_replaces_nothing() -> None:
    assert "option" not in calls("move")
