from __future__ import annotations

import threading
from pathlib import Path

import pytest

from streams_py.connect.connectors.file_source import FileSourceConnector, FileSourceTask
from streams_py.errors import ConfigError, ConnectorError
from tests.support.connect.contexts import Offsets, started


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lines"


def task(file: Path, offsets: Offsets | None = None, format: str = "json", **more: str) -> FileSourceTask:
    props = {"file": str(file), "topic": "t", "format": format, "poll.interval.ms": "1"}
    return started(FileSourceTask(), offsets or Offsets(), props | {k.replace("_", "."): v for k, v in more.items()})


def values(source: FileSourceTask) -> list[object]:
    return [record.value for record in source.poll() or []]


def test_json_lines_become_records_and_a_line_being_written_waits(file: Path) -> None:
    file.write_text('{"a": 1}\n\n{"a": 2}\n{"a"')
    source = task(file, key_field="a")
    assert [(r.topic, r.key, r.value) for r in source.poll() or []] == [("t", 1, {"a": 1}), ("t", 2, {"a": 2})]
    assert values(source) == []
    with file.open("a") as more:
        more.write(": 3}\n")
    assert values(source) == [{"a": 3}]


def test_csv_rows_have_the_fields_of_the_header_and_may_span_lines(file: Path) -> None:
    file.write_bytes('\ufeffid,text\r\n1,"two\nlines"\r\n2,"she said ""hi"""\r\n3,"open\n'.encode())
    source = task(file, format="csv")
    assert values(source) == [{"id": "1", "text": "two\nlines"}, {"id": "2", "text": 'she said "hi"'}]
    with file.open("a") as more:
        more.write('end"\n')
    assert values(source) == [{"id": "3", "text": "open\nend"}]


def test_a_file_that_is_not_there_yet_is_waited_for(file: Path) -> None:
    source = task(file, format="csv")
    assert values(source) == []
    file.write_text("id")
    assert values(source) == []
    file.write_text("id\n7\n")
    assert values(source) == [{"id": "7"}]


@pytest.mark.parametrize("format", ["json", "csv"])
def test_after_a_kill_reading_goes_on_at_the_committed_offset(file: Path, format: str) -> None:
    rows = [f'{{"n": "{n}"}}\n' if format == "json" else f"{n}\n" for n in range(500)]
    file.write_text(("n\n" if format == "csv" else "") + "".join(rows))
    offsets = Offsets()
    first = task(file, offsets, format, batch_rows="200")
    read = (first.poll() or []) + (first.poll() or [])
    assert len(read) == 400
    offsets.commit(read[300])  # records 0..300 arrived; then the process was killed
    again = task(file, offsets, format)
    assert values(again) == [{"n": str(n)} for n in range(301, 500)]


def test_a_truncated_file_is_named_with_the_remedy(file: Path) -> None:
    file.write_text('{"a": 1}\n{"a": 2}\n')
    offsets = Offsets()
    source = task(file, offsets)
    offsets.commit((source.poll() or [])[-1])
    file.write_text('{"a": 3}\n')
    with pytest.raises(ConnectorError, match=r"lines was truncated; it was read up to byte 18.*on\.replaced=restart"):
        source.poll()
    with pytest.raises(ConnectorError, match="was truncated"):
        task(file, offsets).poll()
    assert values(task(file, offsets, on_replaced="restart")) == [{"a": 3}]


def test_a_file_that_was_replaced_while_nobody_read_is_noticed_though_it_is_longer(file: Path) -> None:
    file.write_text('{"a": 1}\n')
    offsets = Offsets()
    offsets.commit((task(file, offsets).poll() or [])[-1])
    file.write_text('{"b": 1}\n{"b": 2}\n')
    with pytest.raises(ConnectorError, match="was replaced"):
        task(file, offsets).poll()
    assert values(task(file, offsets, on_replaced="restart")) == [{"b": 1}, {"b": 2}]


def test_after_a_rotation_the_rest_of_the_old_file_comes_before_the_new_one(file: Path) -> None:
    file.write_text('{"a": 1}\n{"a": 2}\n')
    source, strict = task(file, on_replaced="restart", batch_rows="1"), task(file)
    assert values(source) == [{"a": 1}]
    strict.poll()
    file.rename(file.with_suffix(".1"))
    file.write_text('{"a": 3}\n')
    with pytest.raises(ConnectorError, match="was rotated"):
        strict.poll()
    assert values(source) == [{"a": 2}]
    assert [value for _ in range(2) for value in values(source)] == [{"a": 3}]


def test_offsets_belong_to_the_file_that_was_read_when_both_are_long(file: Path) -> None:
    lines = [[f'{{"{name}": {n}}}\n' for n in range(200)] for name in "ab"]
    file.write_text("".join(lines[0]))
    offsets = Offsets()
    source = task(file, offsets, on_replaced="restart")
    assert len(values(source)) == 200
    file.rename(file.with_suffix(".1"))
    file.write_text("".join(lines[1]))
    read = [record for _ in range(2) for record in source.poll() or []]
    assert [record.value for record in read] == [{"b": n} for n in range(200)]
    offsets.commit(read[150])
    assert values(task(file, offsets)) == [{"b": n} for n in range(151, 200)]


def test_a_bad_line_fails_after_what_is_before_it_or_is_skipped(file: Path) -> None:
    file.write_bytes(b'{"a": 1}\n{"a": \n[1]\n\xff\n{"a": 2}\n')
    source = task(file)
    assert values(source) == [{"a": 1}]
    with pytest.raises(ConnectorError, match=r"the line at byte 9 is not valid json: .*errors\.tolerance=all"):
        source.poll()
    assert values(task(file, errors_tolerance="all")) == [{"a": 1}, {"a": 2}]


def test_a_csv_row_with_other_fields_than_the_header_is_named(file: Path) -> None:
    file.write_text("a,b\n1\n")
    with pytest.raises(ConnectorError, match="at byte 4 is not valid csv: 1 fields, the header has 2"):
        task(file, format="csv").poll()


def test_a_line_without_end_is_an_error_and_not_memory(file: Path) -> None:
    file.write_text("x" * 100)
    with pytest.raises(ConnectorError, match=r"line at byte 0 is longer than line\.bytes\.max \(50\)"):
        task(file, line_bytes_max="50").poll()


def test_stop_wakes_a_waiting_poll(file: Path) -> None:
    source = task(file, poll_interval_ms="3600000")
    polling = threading.Thread(target=source.poll)
    polling.start()
    source.stop()
    polling.join(60)
    assert not polling.is_alive()


def test_configuration_errors_name_key_and_remedy() -> None:
    problems = FileSourceConnector().validate({"flie": "x", "format": "xml", "batch.rows": "0"})
    assert problems.keys() == {"flie", "file", "topic", "format", "batch.rows"}
    assert problems["flie"] == ["unknown key; did you mean file?"]
    assert "is required (topic to write the records to)" in problems["topic"]
    assert "'xml' cannot be used: input should be 'json' or 'csv'" in problems["format"][0]
    with pytest.raises(ConfigError, match=r"batch\.rows: '0' cannot be used: .*greater than or equal to 1"):
        FileSourceConnector().start({"file": "f", "topic": "t", "format": "csv", "batch.rows": "0"})


def test_the_connector_has_one_task_with_its_configuration() -> None:
    connector = FileSourceConnector()
    props = {"file": "f", "topic": "t", "format": "csv", "tasks.max": "4", "name": "n", "connector.class": "c"}
    assert connector.validate(props) == {}
    connector.start(props)
    assert connector.task_class() is FileSourceTask
    assert connector.task_configs(4) == [props]
