"""The process that reads parts of changelogs, on librdkafka's mock cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rocksdict

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.producer import ConfluentProducer
from streams_py.clients import sorter_process
from streams_py.clients.factory import KafkaClients
from streams_py.clients.sorter_process import SorterProcess
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import StreamsError
from streams_py.ports import ChangelogPart, SortedPart
from streams_py.state.stores.codec import pack_timestamp
from tests.support.waiting import until


@pytest.fixture
def sorter(configure: Callable[..., StreamsConfig]) -> Iterator[SorterProcess]:
    clients = KafkaClients(configure())
    found = clients.changelog_sorter("app-StreamThread-1")
    assert found is not None
    yield found
    found.close()
    clients.close()


@pytest.fixture
def changelog(topic: str, producer: ConfluentProducer) -> TopicPartition:
    """300 records: each of 100 keys is written three times, and each tenth removed in the end."""
    for offset in range(300):
        value = None if offset >= 200 and offset % 10 == 0 else b"v%d" % offset
        producer.produce(topic, value, b"k%02d" % (offset % 100), 1, None, 1_000 + offset)
    assert producer.flush(5_000) == 0
    return TopicPartition(topic, 1)


def outcome(sorter: SorterProcess) -> SortedPart:
    found: list[SortedPart] = []

    def look() -> bool:
        part = sorter.outcome()
        if part is not None:
            found.append(part)
        return bool(found)

    until(look, "the part to be read")
    return found[0]


def contents(files: tuple[str, ...], folder: Path) -> dict[bytes, bytes]:
    database: Any = rocksdict.Rdict(str(folder / "database"), rocksdict.Options(raw_mode=True))
    database.ingest_external_file(list(files))
    return dict(database.items())


def test_part_of_a_changelog_comes_as_sorted_files(
    sorter: SorterProcess, changelog: TopicPartition, tmp_path: Path
) -> None:
    sorter.begin(ChangelogPart(changelog, 50, 250, str(tmp_path / "sorted"), "7-1", stamped=True))
    part = outcome(sorter)
    assert part.last == 249
    assert part.records == 200
    assert [Path(file).name for file in part.files] == ["7-1-0.sst"]
    latest = {b"k%02d" % (offset % 100): offset for offset in range(50, 250)}
    assert contents(part.files, tmp_path) == {
        key: pack_timestamp(1_000 + offset) + b"v%d" % offset
        for key, offset in latest.items()
        if not (offset >= 200 and offset % 10 == 0)
    }


def test_parts_are_read_one_after_the_other_up_to_the_end_of_the_log(
    sorter: SorterProcess, changelog: TopicPartition, tmp_path: Path
) -> None:
    for number, (start, end) in enumerate([(250, 300), (100, 250), (99, 100)]):
        sorter.begin(ChangelogPart(changelog, start, end, str(tmp_path), str(number), stamped=False))
        part = outcome(sorter)
        assert (part.last, part.records) == (end - 1, end - start)
        assert sorter.position is not None
        assert start <= sorter.position <= end


def test_part_that_cannot_be_written_is_an_error_and_the_next_one_is_read(
    sorter: SorterProcess, changelog: TopicPartition, tmp_path: Path
) -> None:
    sorter.begin(ChangelogPart(changelog, 0, 300, str(tmp_path / "gone" / "sorted"), "1", stamped=True))
    with pytest.raises(StreamsError, match="gone"):
        outcome(sorter)
    sorter.begin(ChangelogPart(changelog, 0, 300, str(tmp_path), "2", stamped=True))
    assert outcome(sorter).records == 300


def test_process_that_is_killed_is_an_error(sorter: SorterProcess, changelog: TopicPartition, tmp_path: Path) -> None:
    os.kill(sorter.pid, signal.SIGKILL)
    sorter.begin(ChangelogPart(changelog, 0, 300, str(tmp_path), "1", stamped=True))
    with pytest.raises(StreamsError, match="status -9"):
        outcome(sorter)


@pytest.mark.parametrize(
    "line",
    [b"{", b"\xff", b"[" * 100_000, b"1", b"null", b"[]", b'"at"', b"{}", b'{"files": 1}', b'{"files": [], "no": 1}'],
)
def test_damaged_line_of_the_process_is_an_error(
    monkeypatch: pytest.MonkeyPatch, changelog: TopicPartition, tmp_path: Path, line: bytes
) -> None:
    """The process is alive, and would be waited for."""
    # The processors of this machine do not matter.
    monkeypatch.setattr(sorter_process, "_spare", threading.BoundedSemaphore(1))
    sorter_process._spare.acquire()  # as `start` does
    (tmp_path / "line").write_bytes(line + b"\n")
    script = "import sys, pathlib; sys.stdout.buffer.write(pathlib.Path(sys.argv[1]).read_bytes()); sys.stdout.flush()"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{script}; sys.stdin.read()", str(tmp_path / "line")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    damaged = SorterProcess(process)
    damaged._begin({})  # as `start` does
    damaged.begin(ChangelogPart(changelog, 0, 300, str(tmp_path), "1", stamped=True))
    with pytest.raises(StreamsError, match="a line that is not an answer"):
        outcome(damaged)
    damaged.close()


def test_process_that_gets_a_damaged_line_exits(
    sorter: SorterProcess, changelog: TopicPartition, tmp_path: Path
) -> None:
    pipe = sorter._process.stdin  # the library writes no damaged lines
    assert pipe is not None
    pipe.write(b"{\n")
    pipe.flush()
    sorter.begin(ChangelogPart(changelog, 0, 300, str(tmp_path), "1", stamped=True))
    with pytest.raises(StreamsError, match="exited with status 1"):
        outcome(sorter)


@pytest.mark.parametrize("forked", [False, True], ids=["", "forked"])
def test_it_ends_with_the_process_that_started_it(configure: Callable[..., StreamsConfig], forked: bool) -> None:
    """Also when a forked process holds the same pipes, since a fork inherits all open files."""
    program = (
        "import os, sys, time\n"
        "from streams_py.clients.sorter_process import SorterProcess\n"
        f"made = SorterProcess.start({{'bootstrap.servers': {configure().bootstrap_servers[0]!r}, 'client.id': 'c',"
        " 'group.id': 'g'})\n"
        f"fork = os.fork() if {forked} else -1\n"
        "if fork:\n"
        "    print(made.pid, fork, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child, fork = map(int, parent.stdout.readline().split())
    parent.kill()
    parent.wait()
    parent.stdout.close()

    def is_gone() -> bool:
        try:
            with open(f"/proc/{child}/stat") as state:
                return state.read().rsplit(")", 1)[1].split()[0] == "Z"  # its parent, which would wait for it, is gone
        except FileNotFoundError:
            return True

    try:
        until(is_gone, "the process to end")
    finally:
        if forked:
            os.kill(fork, signal.SIGKILL)


def test_secrets_are_neither_arguments_nor_in_the_environment(configure: Callable[..., StreamsConfig]) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "client.id": "c", "group.id": "g", "sasl.password": "hush-hush"}
    made = SorterProcess.start(settings)
    assert made is not None
    try:
        for file in ("cmdline", "environ"):
            assert b"hush" not in Path(f"/proc/{made.pid}/{file}").read_bytes()
    finally:
        made.close()


def test_there_is_none_for_settings_that_another_process_cannot_be_told() -> None:
    assert SorterProcess.start({"bootstrap.servers": "b:1", "oauth_cb": lambda _: ("token", 0.0)}) is None


def test_there_is_none_where_the_program_is_no_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/bin/uwsgi")
    assert SorterProcess.start({"bootstrap.servers": "b:1"}) is None


def test_there_are_no_more_than_there_are_processors_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    # The processors of this machine do not matter.
    monkeypatch.setattr(sorter_process, "_spare", sorter_process.threading.BoundedSemaphore(1))
    settings = {"bootstrap.servers": "127.0.0.1:1", "client.id": "c", "group.id": "g"}
    first = SorterProcess.start(settings)
    assert first is not None
    assert SorterProcess.start(settings) is None
    first.close()
    again = SorterProcess.start(settings)
    assert again is not None
    again.close()


@pytest.mark.parametrize("setting", [{"restore.processes": 1}, {"bootstrap.servers": "embedded"}])
def test_there_is_none_if_the_configuration_excludes_it(
    setting: dict[str, object], configure: Callable[..., StreamsConfig]
) -> None:
    clients = KafkaClients(configure(setting))
    assert clients.changelog_sorter("app-StreamThread-1") is None
    clients.close()
