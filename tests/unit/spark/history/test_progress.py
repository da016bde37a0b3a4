"""The progress that workers report to the driver, and that users see."""

from __future__ import annotations

import io
import pickle
import queue
import socket

import pytest
from rich.console import Console

pytest.importorskip("pyspark")

from streams_py.cli.spark.history_bar import ProgressText, progress
from streams_py.spark.history import progress as telling
from streams_py.spark.history.progress import HistoryProgress, ProgressListener, RecordCounter

HOST = "127.0.0.1"


class Heard:
    """A listener, and the progress that it has reported."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(telling, "_TELL_EVERY_S", 0.0)
        self.told: queue.Queue[HistoryProgress] = queue.Queue()
        self.listener = ProgressListener(self.told.put, 2, HOST, HOST)

    def next(self) -> tuple[int, int, int | None, bool]:
        at = self.told.get(timeout=20)
        return at.stage, at.records, at.total, at.is_processed


def test_records_of_all_tasks_are_added_up_read_ones_before_processed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(monkeypatch)
    try:
        reports = heard.listener.begin(0, 50)
        assert heard.next() == (0, 0, 50, False)
        travelled = pickle.loads(pickle.dumps(reports))
        reading, processing = (RecordCounter(travelled, is_processed=flag) for flag in (False, True))
        for part, count, sum_of_all in ((0, 30, 30), (1, 20, 50)):
            reading.begin(part)
            reading.add(count)
            reading.end()
            assert heard.next() == (0, sum_of_all, 50, False)
        processing.begin(0)
        processing.add(7)
        processing.end()
        assert heard.next() == (0, 7, 50, True)
        processing.begin(0)  # Spark repeats it
        processing.add(5)
        processing.end()
        assert heard.next() == (0, 5, 50, True)
        heard.listener.end(48)
        assert heard.next() == (0, 48, 48, True)
    finally:
        heard.listener.close()


def test_what_others_send_does_not_count_nor_what_is_of_an_earlier_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(monkeypatch)
    try:
        earlier = heard.listener.begin(0, None)
        assert earlier is not None
        heard.listener.end(9)
        now = heard.listener.begin(1, None)
        assert now is not None
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            # A message of another task.
            for said in (b"", b"x" * 7, b"x" * 1_000, telling._DATAGRAM.pack(b"x" * 16, 1, True, 0, 99)):
                other.sendto(said, now.address)
        late = RecordCounter(earlier, is_processed=True)
        late.add(4)
        late.end()
        counter = RecordCounter(now, is_processed=True)
        counter.add(3)
        counter.end()
        told = [heard.next() for _ in range(4)]
        assert told == [(0, 0, None, False), (0, 9, 9, True), (1, 0, None, False), (1, 3, None, True)]
    finally:
        heard.listener.close()


def test_nobody_is_disturbed_when_a_worker_cannot_say_anything() -> None:
    counter = RecordCounter(telling.StageReports(("no.such.host.invalid", 1), b"x" * 16, 0), is_processed=True)
    counter.add(1)
    counter.end()
    RecordCounter(None, is_processed=True).end()


def test_rate_and_time_left_are_said_once_they_are_known() -> None:
    now_s = 0.0
    text = ProgressText(lambda: now_s)

    def said(records: int, total: int | None, *, is_processed: bool = True) -> tuple[str, str]:
        return text.of(HistoryProgress(1, 3, records, total, is_processed))

    assert said(0, 10_000, is_processed=False) == ("stage 2 of 3", "up to 10,000 records")
    assert said(500, 10_000, is_processed=False) == ("stage 2 of 3, reading", "500 of 10,000 records")
    now_s = 60.0
    assert said(0, 10_000, is_processed=False)[1] == "up to 10,000 records"
    assert said(1_000, 10_000)[1] == "1,000 of 10,000 records"
    now_s = 70.0
    assert said(3_000, 10_000)[1] == "3,000 of 10,000 records, 200/s, 0:00:35 left"
    assert said(3_000, None)[1] == "3,000 records, 200/s"
    assert said(10_000, 10_000)[1] == "10,000 of 10,000 records, 900/s"


def test_where_there_is_no_terminal_a_stage_has_a_line_when_it_begins_and_one_when_it_ends() -> None:
    out = io.StringIO()
    with progress(Console(file=out, width=100)) as tick:
        for records in (0, 10, 20, 30, 30):  # the last task says so, then the driver
            tick(HistoryProgress(0, 1, records, 30, is_processed=records > 0, run="old"))
    assert out.getvalue().splitlines() == ["old, stage 1 of 1: up to 30 records", "old, stage 1 of 1: 30 of 30 records"]
