from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

from streams_py.connect.api import RetriableError
from streams_py.connect.connectors.file_sink import FileSinkConnector, FileSinkTask
from streams_py.errors import ConnectorError
from tests.support.connect.contexts import P0, record


def task(directory: Path, format: str = "json", **more: str) -> FileSinkTask:
    sink = FileSinkTask()
    sink.start({"directory": str(directory), "format": format} | {k.replace("_", "."): v for k, v in more.items()})
    return sink


def lines(file: Path) -> list[object]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_records_become_lines_of_a_file_per_partition(tmp_path: Path) -> None:
    sink = task(tmp_path / "new" / "directory")
    sink.put([record(4, {"a": 1}, "k"), record(0, None, partition=1), record(5, "text")])
    assert sink.pre_commit({P0: 6}) == {P0: 6}
    assert lines(tmp_path / "new/directory/t-0.json") == [
        {"offset": 4, "key": "k", "value": {"a": 1}},
        {"offset": 5, "key": None, "value": "text"},
    ]
    assert lines(tmp_path / "new/directory/t-1.json") == [{"offset": 0, "key": None, "value": None}]


@pytest.mark.parametrize("format", ["json", "csv"])
@pytest.mark.parametrize("cut", [1, 7, 100_000, 1_000_000])
def test_after_a_kill_in_the_middle_of_a_line_every_record_is_there_once(tmp_path: Path, format: str, cut: int) -> None:
    records = [record(n, {"a": f"{n}-" + "x" * 150_000}, n) for n in range(4)]
    more = {"csv_fields": "a"} if format == "csv" else {}
    sink = task(tmp_path, format, **more)
    sink.put(records[:3])
    sink.stop()
    file = tmp_path / f"t-0.{format}"
    os.truncate(file, max(0, file.stat().st_size - cut))
    again = task(tmp_path, format, **more)
    again.put(records[1:]) if cut < 100_000 else again.put(records)  # nothing was committed
    again.put(records[2:])
    again.stop()
    if format == "json":
        assert lines(file) == [{"offset": r.offset, "key": r.key, "value": r.value} for r in records]
    else:
        csv.field_size_limit(1 << 20)
        with file.open(newline="") as rows:
            assert [(row["offset"], row["a"]) for row in csv.DictReader(rows)] == [
                (str(r.offset), r.value["a"]) for r in records
            ]


def test_a_file_that_another_task_still_writes_is_waited_for(tmp_path: Path) -> None:
    first, second = task(tmp_path), task(tmp_path)
    first.put([record(0, 1)])
    with pytest.raises(RetriableError, match=r"t-0\.json is still written by another task"):
        second.put([record(0, 1), record(1, 2)])
    first.close([P0])
    second.put([record(0, 1), record(1, 2)])
    assert lines(tmp_path / "t-0.json") == [{"offset": n, "key": None, "value": n + 1} for n in range(2)]


def test_csv_names_fields_that_have_no_column(tmp_path: Path) -> None:
    sink = task(tmp_path, "csv", csv_fields="b, a")
    sink.put([record(0, {"a": 1, "b": "x,y"}, "k")])
    assert (tmp_path / "t-0.csv").read_text() == 'offset,key,b,a\n0,k,"x,y",1\n'
    for value, message in (
        ({"c": 1}, r"t-0 at offset 1 has fields \['c'\] without a column; add them to csv.fields"),
        ("text", "CSV requires objects"),
        ({"a": "two\nlines"}, "line breaks.*format=json"),
    ):
        with pytest.raises(ConnectorError, match=message):
            sink.put([record(1, value)])
    sink.stop()
    with pytest.raises(ConnectorError, match=r"has other columns than csv\.fields"):
        task(tmp_path, "csv", csv_fields="a").put([record(1, {})])


def test_a_value_that_json_does_not_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="t-0 at offset 3 cannot be written as JSON"):
        task(tmp_path).put([record(3, b"bytes")])


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "t-0.json").write_text('{"mine": 1}\n')
    with pytest.raises(ConnectorError, match="last line has no offset; move the file away"):
        task(tmp_path).put([record(0, 1)])
    assert (tmp_path / "t-0.json").read_text() == '{"mine": 1}\n'


def test_csv_needs_its_columns_in_the_configuration() -> None:
    problems = FileSinkConnector().validate({"directory": "d", "format": "csv", "topics": "t"})
    assert [sentence for sentences in problems.values() for sentence in sentences] == [
        "format=csv requires csv.fields, the fields of the value to write as columns"
    ]


def test_every_task_of_the_connector_is_alike(tmp_path: Path) -> None:
    connector = FileSinkConnector()
    connector.start({"directory": str(tmp_path), "format": "json"})
    assert connector.task_configs(2) == [{"directory": str(tmp_path), "format": "json"}] * 2
