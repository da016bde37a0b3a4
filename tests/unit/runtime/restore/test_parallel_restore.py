"""Large restores that are shared with another process."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from streams_py.errors import StateError, StreamsError
from streams_py.ports import ChangelogPart, SortedPart
from streams_py.runtime.restore import parallel_restore
from streams_py.runtime.restore.parallel_restore import ParallelRestore
from tests.support.clocks import FakeClock
from tests.support.runtime.fakes import FakeLog, FakeTask
from tests.support.runtime.stepped_updater import LOG, OTHER, Stepped, active, standby


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_restore, "_SHARED_MIN", 40)
    monkeypatch.setattr(parallel_restore, "_PART_MIN", 10)


class FakeSorter:
    """Reads only when the test calls it."""

    def __init__(self) -> None:
        self.begun: list[ChangelogPart] = []
        self.position: int | None = None
        self.done: SortedPart | None = None
        self.error: StreamsError | None = None
        self.is_closed = False

    def begin(self, part: ChangelogPart) -> None:
        assert not self.is_closed
        self.begun.append(part)
        self.position = part.start

    def finish(self, *files: str) -> None:
        part = self.begun[-1]
        self.done = SortedPart(files, part.end - 1, part.end - part.start, 100)

    def outcome(self) -> SortedPart | None:
        if self.error is not None:
            raise self.error
        done, self.done = self.done, None
        return done

    def close(self) -> None:
        self.is_closed = True


class Shared(Stepped):
    """Restores of 40 records or more are shared, in parts of at least 10; 10 records are read at a time."""

    def __init__(self, log: FakeLog, *, can_start: bool = True) -> None:
        self.sorters: list[FakeSorter] = []
        self.can_start = can_start
        self.tries = 0
        super().__init__(log, self._parallel)
        self.consumer.delivers_max = 10

    def _parallel(self, clock: FakeClock) -> ParallelRestore:
        return ParallelRestore(self._sorter, clock)

    def _sorter(self) -> FakeSorter | None:
        self.tries += 1
        if self.can_start:
            self.sorters.append(FakeSorter())
        return self.sorters[-1] if self.can_start else None

    @property
    def parts(self) -> list[tuple[int, int]]:
        """Return the parts that the last process got."""
        return [(part.start, part.end) for part in self.sorters[-1].begun]


@pytest.fixture
def log() -> FakeLog:
    made = FakeLog()
    made.write(LOG, 110)
    return made


def filled(*changelogs: object, **options: object) -> FakeTask:
    task = active(*changelogs, **options)  # type: ignore[arg-type]
    task.takes_files = dict.fromkeys(task.changelog_partitions, ("folder", True))
    return task


def offsets(task: FakeTask) -> list[int]:
    return [offset for _, offset in task.restored]


def test_another_process_reads_the_far_half_and_what_it_has_read_is_taken_in_behind_the_near_one(log: FakeLog) -> None:
    updater, task = Shared(log), filled(LOG)
    updater.add(task)
    updater.turn(2)
    assert updater.parts == [(60, 110)]  # it has read 10: the far half of the rest
    (part,) = updater.sorters[0].begun
    assert (part.changelog, part.folder, part.stamped) == (LOG, "folder", True)
    updater.turn(3)
    updater.sorters[0].finish("a", "b")
    assert task.taken_in == []
    updater.turn(4)
    assert offsets(task) == list(range(60))
    assert task.taken_in == [(LOG, SortedPart(("a",), None, 0, 0)), (LOG, SortedPart(("b",), 109, 50, 100))]
    assert updater.drain_restored() == [task]
    assert [event for event in updater.listener.events if event[0] == "end"] == [("end", LOG, 110)]
    assert updater.sorters[0].is_closed
    assert len(updater.sorters) == 1


def test_process_that_has_finished_gets_half_of_what_is_left_then(log: FakeLog) -> None:
    log.write(LOG, 890)
    updater, task = Shared(log), filled(LOG)
    updater.add(task)
    updater.turn(2)
    (sorter,) = updater.sorters
    while not updater.drain_restored():
        sorter.finish(str(len(sorter.begun)))
        updater.turn()
    starts = [start for start, _ in updater.parts]
    assert starts == sorted(starts, reverse=True)
    assert [end for _, end in updater.parts] == [1000, *starts[:-1]]
    assert len(starts) > 4
    assert offsets(task) == list(range(starts[-1]))
    assert [part.files for _, part in task.taken_in] == [(str(n),) for n in range(len(starts), 0, -1)]


def test_nothing_is_read_beyond_what_was_lent_while_its_reader_is_slow(log: FakeLog) -> None:
    updater, task = Shared(log), filled(LOG)
    updater.add(task)
    updater.turn(20)
    assert offsets(task) == list(range(60))
    assert updater.consumer.positions == {}
    assert updater.remaining_records() == {task.id: 50}
    updater.sorters[0].position = 100
    updater.turn()
    assert updater.remaining_records() == {task.id: 10}
    assert updater.drain_restored() == []


@pytest.mark.parametrize("fails", ["error", "silence"])
def test_part_that_fails_elsewhere_is_read_here(log: FakeLog, fails: str, caplog: pytest.LogCaptureFixture) -> None:
    updater, task = Shared(log), filled(LOG)
    updater.add(task)
    updater.turn(20)
    if fails == "error":
        updater.sorters[0].error = StreamsError("it ended with status 1")
    else:
        updater.clock.now += 9_999
        updater.turn()
        assert not updater.sorters[0].is_closed
        updater.clock.now += 1
    with caplog.at_level(logging.WARNING):
        updater.turn(7)
    assert updater.sorters[0].is_closed
    assert offsets(task) == list(range(110))
    assert task.taken_in == []
    assert updater.drain_restored() == [task]
    (told,) = caplog.messages
    assert f"offsets 60 to 110 of changelog {LOG} are read by this process" in told
    updater.add(filled(LOG))
    updater.turn(3)
    assert len(updater.sorters) == 1  # not another one this soon


def test_process_that_continues_is_waited_for(log: FakeLog) -> None:
    updater, task = Shared(log), filled(LOG)
    updater.add(task)
    updater.turn(20)
    for position in range(60, 110):
        updater.sorters[0].position = position
        updater.clock.now += 9_000
        updater.turn()
    assert offsets(task) == list(range(60))
    assert not updater.sorters[0].is_closed


def test_parts_of_a_task_that_is_taken_away_are_dropped(log: FakeLog, tmp_path: Path) -> None:
    log.write(LOG, 890)
    updater, task = Shared(log), filled(LOG)
    task.takes_files = {LOG: (str(tmp_path), True)}
    updater.add(task)
    updater.turn(2)
    written = [tmp_path / f"{updater.sorters[0].begun[0].name}-0.sst"]
    written[0].write_bytes(b"sorted")
    updater.sorters[0].finish(str(written[0]))
    updater.turn()
    assert len(updater.parts) == 2
    written.append(tmp_path / f"{updater.sorters[0].begun[1].name}-0.sst")  # of an incomplete part
    written[1].write_bytes(b"sorted")
    assert updater.remove(task.id) is task
    assert updater.sorters[0].is_closed
    assert not any(file.exists() for file in written)
    again = filled(LOG)
    updater.add(again)
    updater.turn(30)
    assert again.taken_in == []


def test_disk_that_is_full_of_what_another_process_wrote_is_freed_of_it(log: FakeLog, tmp_path: Path) -> None:
    updater, task = Shared(log), filled(LOG)
    task.takes_files = {LOG: (str(tmp_path), True)}
    updater.add(task)
    updater.turn(2)
    name = updater.sorters[0].begun[0].name
    files = [tmp_path / file for file in (f"{name}-0.sst", f"{name}-1.sst", f"{name}0-0.sst")]
    for file in files:
        file.write_bytes(b"sorted")
    updater.sorters[0].error = StreamsError("no space left")
    updater.turn()
    assert [file.exists() for file in files] == [False, False, True]  # the last one belongs to another part
    updater.turn(20)
    assert offsets(task) == list(range(110))


def test_disk_catches_up_with_each_file(log: FakeLog) -> None:
    """Above a number of files, RocksDB blocks writers, which then hold the interpreter's lock."""
    updater, task = Shared(log), filled(LOG)
    updater.add(task)
    updater.turn(20)
    updater.sorters[0].finish("a", "b", "c")
    updater.turn()
    for count in (1, 2):
        assert len(task.taken_in) == count
        task.awaits_disk = True
        updater.turn(5)
        assert len(task.taken_in) == count
        task.awaits_disk = False
        updater.turn()
    assert [part.files for _, part in task.taken_in] == [("a",), ("b",), ("c",)]
    updater.turn()
    assert updater.drain_restored() == [task]
    assert updater.listener.events[-2:] == [("batch", LOG, 109, 50), ("end", LOG, 110)]


def test_disk_that_is_full_when_files_are_taken_in_fails_the_task_alone(log: FakeLog) -> None:
    log.write(OTHER, 5)
    updater, task, other = Shared(log), filled(LOG), standby(OTHER)
    for one in (task, other):
        updater.add(one)
    updater.turn(20)
    updater.sorters[0].finish("a")
    task.error = StateError("no space left")
    updater.turn(2)
    assert updater.drain_failed() == [(task, task.error)]
    assert [held.id for held in updater.tasks()] == [other.id]
    updater.turn(2)
    assert offsets(other) == list(range(5))


def test_files_are_taken_in_when_everything_before_them_is_on_the_disk(log: FakeLog) -> None:
    updater, task = Shared(log), filled(LOG)
    updater.add(task)
    task.is_flushed = False
    updater.turn(20)
    updater.sorters[0].finish("a")
    updater.turn(3)
    assert task.taken_in == []
    task.is_flushed = True
    updater.turn()
    assert len(task.taken_in) == 1


@pytest.mark.parametrize("why", ["small", "copy", "windowed"])
def test_what_is_small_or_cannot_be_taken_in_is_read_here(why: str) -> None:
    log = FakeLog()
    log.write(LOG, 49 if why == "small" else 200)
    task = filled(LOG) if why != "copy" else standby(LOG)
    task.takes_files = {} if why == "windowed" else {LOG: ("folder", False)}
    updater = Shared(log)
    updater.add(task)
    updater.turn(30)
    assert updater.tries == 0
    assert offsets(task) == list(range(log.ends[LOG]))


def test_where_no_process_can_be_started_it_is_tried_once_a_minute(log: FakeLog) -> None:
    log.write(LOG, 10_000)
    updater, task = Shared(log, can_start=False), filled(LOG)
    updater.add(task)
    updater.turn(10)
    assert updater.tries == 1
    updater.clock.now += 60_000
    updater.turn(10)
    assert updater.tries == 2
    assert offsets(task) == list(range(200))


def test_closing_ends_the_process(log: FakeLog) -> None:
    updater = Shared(log)
    updater.add(filled(LOG))
    updater.turn(2)
    updater.close(timeout_ms=0)
    updater._run()  # in place of its thread
    assert updater.sorters[0].is_closed
