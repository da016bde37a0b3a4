"""The bookkeeping of the benchmarks: goals, medians, names. The measured values themselves are not tested."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console
from typer.testing import CliRunner

import benchmarks.__main__ as command
from benchmarks import gaps, records, restoring, takeover
from benchmarks.assignors.rows import _Ours  # programs have no public names
from benchmarks.cluster import BenchmarkError, Output, measure
from benchmarks.live_output import longest_silence, moved_between, silences
from benchmarks.local import LOCAL, local_rows
from benchmarks.peers import PEERS, Peer, command_of
from benchmarks.records import JOBS, _rotated  # see above
from benchmarks.table import Goal, Row, line_of, middle, table_of
from benchmarks.takeover import WORKS, Work, children_of, partitions_of_the_dead


@pytest.mark.parametrize(
    ("goal", "ours", "peer", "met"),
    [
        (Goal("", ratio_min=0.8), 80.0, 100.0, True),
        (Goal("", ratio_min=0.8), 79.0, 100.0, False),
        (Goal("", ratio_max=2.0), 199.0, 100.0, True),
        (Goal("", ratio_max=2.0), 200.0, 100.0, False),
        (Goal("", ours_max=3.0), 2.9, None, True),
        (Goal("", ours_max=3.0), 3.0, None, False),
        (Goal("", ratio_min=0.8), 80.0, None, None),
        (Goal(""), 80.0, 100.0, None),
    ],
)
def test_goal_is_judged_by_its_own_limit(goal: Goal, ours: float, peer: float | None, met: bool | None) -> None:
    assert goal.is_met(ours, peer) is met


def test_median_of_nothing_is_nothing() -> None:
    assert middle(()) is None
    assert middle((3.0, 1.0, 2.0)) == 2.0


def test_rate_counts_what_was_worked_off_after_the_first_batch() -> None:
    assert Output(records=100, worked_off=80, seconds=2.0).rate == 40.0
    assert Output(records=100, worked_off=0, seconds=0.0).rate == 0.0


def test_peers_take_turns_in_coming_first() -> None:
    peers = tuple(PEERS.values())
    assert [_rotated(peers, run)[0] for run in range(len(peers))] == list(peers)


def test_every_job_has_a_goal() -> None:
    for job in JOBS.values():
        assert set(job.goals) <= set(PEERS) - {"ours"}
        assert any(goal.text for goal in (*job.goals.values(), job.own_goal))


def test_table_shows_medians_ratio_goal_and_what_is_missing() -> None:
    rows = [
        Row("map", "Java", "/s", (150.0, 100.0, 200.0), (100.0,), Goal(">= 1.5", ratio_min=1.5)),
        Row("map", "Quix", "/s", (150.0,), note="not installed: no index"),
    ]
    screen = Console(width=160, file=io.StringIO())
    screen.print(table_of(rows, title="t"))
    text = screen.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO from above
    assert "150.0 /s" in text
    assert "100.0 - 200.0" in text
    assert "1.50" in text
    assert "yes" in text
    assert "not installed: no index" in text


def test_failed_benchmark_becomes_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(runs: int, tick: object) -> list[Row]:
        raise BenchmarkError("out of order")

    monkeypatch.setitem(LOCAL, "protocol", fails)  # type: ignore[misc, arg-type]  # a function that fails immediately
    assert list(local_rows("protocol", 1, lambda what: None)) == [
        Row("protocol", "", "", (), note="out of order", failed=True)
    ]


def test_benchmark_that_breaks_does_not_take_the_table_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(runs: int, tick: object) -> list[Row]:
        raise KeyError("no such figure")

    def works(runs: int, tick: object) -> list[Row]:
        return [Row("works", "", "s", (1.0,))]

    monkeypatch.setitem(LOCAL, "protocol", breaks)  # type: ignore[misc, arg-type]
    monkeypatch.setitem(LOCAL, "imports", works)  # type: ignore[misc, arg-type]
    result = CliRunner().invoke(command.app(), ["--only", "protocol,imports"])
    assert result.exit_code == 1
    assert "FAILED: KeyError: 'no such figure'" in result.output
    assert "1 of 2 rows failed" in result.output
    assert "1.00 s" in result.output


@pytest.mark.parametrize(
    ("row", "status"),
    [
        (Row("work", "Java", "s", (1.0,), note="not requested"), 0),
        (Row("work", "Java", "s", (1.0,), note="gave up after 100 s"), 0),
        (Row("work", "Java", "s", (1.0,), note="ended early", failed=True), 1),
    ],
)
def test_run_ends_with_status_1_only_when_something_failed(
    row: Row, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOCAL, "protocol", lambda runs, tick: [row])  # type: ignore[misc]
    result = CliRunner().invoke(command.app(), ["--only", "protocol"])
    assert (result.exit_code, result.output.count(f"FAILED: {row.note}")) == (status, 2 * status)


def test_peer_is_prepared_in_the_folder_of_each_benchmark(tmp_path: Path) -> None:
    def build(folder: Path) -> list[str]:
        (folder / "Peer.class").touch()
        built.append(folder)
        return ["java", "-cp", str(folder), "Peer"]

    built: list[Path] = []
    peer = Peer(f"peer of {tmp_path}", "a peer", build)
    for name in ("restore", "records"):
        folder = tmp_path / name
        folder.mkdir()
        for _ in range(2):
            command_line = command_of(peer, folder)
            assert Path(command_line[2], "Peer.class").exists()
        shutil.rmtree(folder)
    assert built == [tmp_path / "restore", tmp_path / "records"]


class _Broker:
    bootstrap = "nowhere:1"
    closed = False

    def close(self) -> None:
        _Broker.closed = True


@pytest.mark.parametrize("broken", ["fill", "_measure"])
def test_records_that_cannot_be_measured_are_rows_that_failed(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(self: records._Bench, *arguments: object) -> Output:  # a benchmark without its brokers
        if broken == "_measure" and arguments[1] is PEERS["ours"]:
            return Output(records=100, worked_off=80, seconds=2.0)
        raise RuntimeError("the broker has gone")

    monkeypatch.setattr(records, "JvmBroker", lambda **_: _Broker())
    monkeypatch.setattr(records._Bench, "fill", lambda *_: None)  # no brokers
    monkeypatch.setattr(records._Bench, "warm_up", lambda *_: None)  # no brokers
    monkeypatch.setattr(records._Bench, broken, breaks)  # no brokers
    settings = records.Settings(1000, 10, None, 1, tuple(PEERS.values()))
    rows = list(records.record_rows([JOBS["map"]], settings, lambda what: None, lambda what: None))
    assert _Broker.closed
    assert {(row.failed, row.note) for row in rows} == {(True, "RuntimeError: the broker has gone")}
    assert [row.ours for row in rows] == ([()] if broken == "fill" else [(40.0,)] * 3)


@pytest.mark.parametrize("measured", [gaps.gap_rows, restoring.restore_rows, takeover.takeover_rows])
def test_peer_that_breaks_leaves_our_figures(
    measured: Callable[..., Iterator[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Scene(contextlib.nullcontext[Any]):
        def __init__(self, bootstrap: str, folder: Path, peer: object = None, work: object = None) -> None:
            super().__init__(self)
            self.peer = peer

        def rate(self, peer: Peer, *arguments: object) -> float:
            if peer is PEERS["java"]:
                raise OSError("no such process")
            return 7.0

        def gaps(self, events: tuple[str, ...]) -> list[gaps.Gap]:
            if self.peer is PEERS["java"]:
                raise OSError("no such process")
            return [gaps.Gap(event, (0.25,), 0.01) for event in events]

        def events(self, count: int, tick: object) -> Iterator[float]:
            for _ in range(count):
                if self.peer is PEERS["java"]:
                    raise OSError("no such process")
                yield 0.5

    for module in (gaps, restoring, takeover):
        monkeypatch.setattr(module, "JvmBroker", lambda **_: _Broker())
        monkeypatch.setattr(module, "_Scene", Scene)  # no brokers
    rows = list(measured(1, lambda what: None))
    assert all(row.ours for row in rows)
    with_peer = [row for row in rows if row.compared_with]
    assert {(row.failed, row.note) for row in with_peer} == {(True, f"{PEERS['java'].title}: OSError: no such process")}
    assert not any(row.failed for row in rows if not row.compared_with)


def test_unknown_name_is_refused_with_the_known_ones() -> None:
    result = CliRunner().invoke(command.app(), ["--only", "nope"])
    assert result.exit_code == 2
    assert "count-cached" in result.output


def test_help_teaches_by_examples() -> None:
    result = CliRunner().invoke(command.app(), ["--help"])
    assert result.exit_code == 0
    assert "python3 run.py bench --only map --records 50000" in result.output


class _Written(NamedTuple):
    stamp: int
    name: bytes = b"k"
    count: int = 1

    def key(self) -> bytes:
        return self.name

    def value(self) -> bytes:
        return self.count.to_bytes(8, "big")

    def timestamp(self) -> tuple[int, int]:
        return 2, self.stamp


def test_map_is_timed_from_the_end_of_its_first_output_to_the_last() -> None:
    output = [_Written(stamp) for stamp in (1000, 1400, 1501, 2000, 3400)]
    done, shown = measure("map", output, 1000)
    assert done == 5
    assert (shown.records, shown.worked_off, shown.seconds, shown.rate) == (5, 3, 2.0, 1.5)


def test_count_worked_off_what_its_last_results_add_up_to() -> None:
    output = [_Written(0, b"a", 5), _Written(10, b"b", 7), _Written(1010, b"a", 20), _Written(1010, b"b", 8)]
    done, shown = measure("count", output, 1000)
    assert done == 28
    assert (shown.worked_off, shown.seconds) == (16, 1.0)


def test_nothing_is_timed_when_all_output_came_at_once() -> None:
    done, shown = measure("count", [_Written(0, b"a", 5), _Written(5, b"b", 5)], 1000)
    assert (done, shown.worked_off) == (10, 0)


def test_assignors_without_java_start_no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_jvm(*arguments: object) -> list[str]:
        raise AssertionError("the JVM was not requested")

    monkeypatch.setattr("benchmarks.assignors.rows.prepare", no_jvm)
    monkeypatch.setattr("benchmarks.assignors.rows._run_ours", lambda *_: _Ours((0.5,), "same", 1.0))  # no brokers
    rows = local_rows("assignors", 1, lambda what: None, with_jvm=False)
    first = next(rows)  # the row comes before any other measurement
    assert (first.ours, first.note) == ((500.0,), "not requested")
    assert line_of(first).startswith(f"{first.work}: 500.00 ms; ")
    rows.close()  # type: ignore[attr-defined]  # a generator


def test_run_that_is_stopped_shows_the_rows_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object, **options: object) -> Iterator[Row]:
        yield Row("first work", "", "ms", (1.0,))
        raise KeyboardInterrupt

    monkeypatch.setattr("benchmarks.__main__.local_rows", stopped)
    result = CliRunner().invoke(command.app(), ["--only", "protocol"])
    assert result.exit_code == 130
    assert result.output.count("first work") == 2  # printed when measured, and in the table
    assert "stopped" in result.output


def test_longest_silence_is_looked_for_from_the_last_stamp_before_on() -> None:
    stamps = [1.0, 2.0, 2.5, 4.0, 4.1, 9.0]
    assert longest_silence(stamps, 2.2, 4.05) == 1.5
    assert longest_silence(stamps, 4.05, 6.0) == pytest.approx(1.9)  # the silence continues at the end
    assert longest_silence([], 1.0, 3.0) == 2.0


def test_pauses_are_all_times_between_two_stamps() -> None:
    assert silences([1.0, 2.0, 2.5, 4.0, 9.0], 2.2, 5.0) == [0.5, 1.5, 1.0]
    assert silences([], 1.0, 3.0) == [2.0]


def test_partitions_of_a_dead_process_are_those_whose_member_is_gone() -> None:
    before = {0: "a", 1: "b", 2: "c", 3: "b"}
    assert partitions_of_the_dead(before, {0: "a", 1: "a", 2: "c", 3: "c"}) == {1, 3}
    assert partitions_of_the_dead(before, {0: "a", 1: "d", 2: "c", 3: "d"}) == {1, 3}
    assert partitions_of_the_dead(before, dict(reversed(before.items()))) == set()


def test_kafka_streams_is_measured_at_most_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, int]] = []

    class Scene(contextlib.nullcontext[Any]):
        def __init__(self, bootstrap: str, folder: Path, peer: Peer, work: Work) -> None:
            super().__init__(self)
            self.where = work.event, peer.name

        def events(self, count: int, tick: object) -> Iterator[float]:
            asked.append((*self.where, count))
            return iter([1.0] * count)

    monkeypatch.setattr(takeover, "JvmBroker", lambda **_: _Broker())
    monkeypatch.setattr(takeover, "_Scene", Scene)  # no brokers
    rows = list(takeover.takeover_rows(10, lambda what: None))
    assert [(len(row.ours), len(row.peer)) for row in rows] == [(10, 3 * work.with_java) for work in WORKS]
    assert ("child", "java", 3) not in asked
    asked.clear()
    assert not any(row.peer or row.compared_with for row in takeover.takeover_rows(1, lambda _: None, with_jvm=False))
    assert {peer for _, peer, _ in asked} == {"members"}


@pytest.mark.skipif(sys.platform != "linux", reason="children are found in /proc")
def test_only_children_with_the_program_of_the_benchmark_count() -> None:
    wait = "input()  # {}"
    with contextlib.ExitStack() as started:
        children = [
            started.enter_context(subprocess.Popen([sys.executable, "-c", wait.format(name)], stdin=subprocess.PIPE))
            for name in ("benchmarks.takeover", "another")
        ]
        assert children_of(os.getpid()) == [children[0].pid]
        for child in children:
            child.kill()


def test_partitions_with_more_than_one_member_have_moved() -> None:
    history = [
        (1.0, {0: "a", 1: "a"}),
        (2.0, {0: "a", 1: "b"}),
        (3.0, {0: "a"}),
        (4.0, {0: "a", 1: "b"}),
        (9.0, {0: "c"}),
    ]
    assert moved_between(history, 1.5, 5.0, 2) == {1}
    assert moved_between(history, 2.5, 5.0, 2) == set()
    assert moved_between(history, 2.5, 9.5, 2) == {0}
