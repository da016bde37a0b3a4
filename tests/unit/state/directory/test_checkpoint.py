"""The checkpoint file: its format, refused content, and atomic replacement."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams_protocol import OFFSET_UNKNOWN
from streams_protocol.types import TopicPartition
from streams_py.errors import StateError
from streams_py.state.directory.checkpoint import CHECKPOINT_FILE, delete_checkpoint, read_checkpoint, write_checkpoint
from streams_py.system.private_files import is_temporary

A = TopicPartition("app-store-a-changelog", 3)
B = TopicPartition("app-store-b-changelog", 3)


def test_checkpoint_file_is_kafkas_under_a_name_that_no_java_member_looks_for(tmp_path: Path) -> None:
    write_checkpoint(str(tmp_path), {B: OFFSET_UNKNOWN, A: 1207})
    text = (tmp_path / CHECKPOINT_FILE).read_text()
    assert text == "0\n2\napp-store-a-changelog 3 1207\napp-store-b-changelog 3 -4\n"
    assert read_checkpoint(str(tmp_path)) == {A: 1207, B: -4}
    assert os.listdir(tmp_path) == [CHECKPOINT_FILE]
    assert not CHECKPOINT_FILE.startswith(".checkpoint")  # ".checkpoint", and ".checkpoint_<store>"


def test_checkpoint_is_private_to_user_and_group(tmp_path: Path) -> None:
    write_checkpoint(str(tmp_path), {A: 1})
    assert (tmp_path / CHECKPOINT_FILE).stat().st_mode & 0o137 == 0


def test_reading_gives_nothing_when_there_is_no_file(tmp_path: Path) -> None:
    assert read_checkpoint(str(tmp_path)) == {}


def test_writing_nothing_deletes_the_file(tmp_path: Path) -> None:
    write_checkpoint(str(tmp_path), {A: 1})
    write_checkpoint(str(tmp_path), {})
    assert os.listdir(tmp_path) == []
    delete_checkpoint(str(tmp_path))


def test_writing_refuses_a_negative_offset_that_means_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="-2"):
        write_checkpoint(str(tmp_path), {A: -2})
    assert os.listdir(tmp_path) == []


def test_reading_skips_other_negative_offsets_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / CHECKPOINT_FILE).write_text("0\n3\na 0 -2\nb 0 -4\nc 0 7\n")
    assert read_checkpoint(str(tmp_path)) == {TopicPartition("b", 0): -4, TopicPartition("c", 0): 7}
    assert "-2" in caplog.text
    assert "a-0" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "\n",
        "1\n0\n",
        "0\n2\na 0 1\n",
        "0\n0\na 0 1\n",
        "0\n1\na 0\n",
        "0\n1\na 0 1 2\n",
        "0\n1\na x 1\n",
        "0\n1\na 0 x\n",
        "0\n1\na -1 5\n",
        "0\n1\na 0 9223372036854775808\n",
        "0\n-1\n",
        "0\nx\n",
        "0\n²\n",
        "0\n1\n\n",
        "0\n99999999999999999999\n",
    ],
)
def test_reading_refuses_a_malformed_file_and_names_it(text: str, tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT_FILE).write_text(text)
    with pytest.raises(ValueError, match="checkpoint"):
        read_checkpoint(str(tmp_path))


def test_reading_refuses_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT_FILE).write_bytes(b"0\n1\n\xff\xfe 0 1\n")
    with pytest.raises(ValueError):
        read_checkpoint(str(tmp_path))


def test_reading_refuses_a_huge_file_without_loading_it(tmp_path: Path) -> None:
    with open(tmp_path / CHECKPOINT_FILE, "wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(ValueError, match="larger"):
        read_checkpoint(str(tmp_path))


def test_reading_says_what_to_do_when_the_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT_FILE).mkdir()
    with pytest.raises(StateError, match="permissions"):
        read_checkpoint(str(tmp_path))


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(
        st.builds(TopicPartition, st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True), st.integers(0, 2**31 - 1)),
        st.integers(0, 2**63 - 1) | st.just(OFFSET_UNKNOWN),
        max_size=8,
    )
)
def test_checkpoint_round_trip(tmp_path_factory: pytest.TempPathFactory, offsets: dict[TopicPartition, int]) -> None:
    directory = str(tmp_path_factory.mktemp("checkpoint"))
    write_checkpoint(directory, offsets)
    assert read_checkpoint(directory) == offsets


@given(st.text(alphabet="0123456789- \nabc.", max_size=60))
def test_reading_gives_offsets_or_refuses_whatever_is_in_the_file(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    directory = tmp_path_factory.mktemp("checkpoint")
    (directory / CHECKPOINT_FILE).write_text(text)
    try:
        offsets = read_checkpoint(str(directory))
    except ValueError:
        return
    assert all(offset >= 0 or offset == OFFSET_UNKNOWN for offset in offsets.values())


KILLED_BETWEEN_WRITING_AND_RENAMING = """
import os, signal, sys
from streams_protocol.types import TopicPartition
from streams_py.state.directory import checkpoint
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
checkpoint.write_checkpoint(sys.argv[1], {TopicPartition("a", 0): 2})
"""


def test_old_checkpoint_is_intact_when_the_process_is_killed_before_the_rename(tmp_path: Path) -> None:
    write_checkpoint(str(tmp_path), {TopicPartition("a", 0): 1})
    ended = subprocess.run(
        [sys.executable, "-c", KILLED_BETWEEN_WRITING_AND_RENAMING, str(tmp_path)], check=False, timeout=60
    )
    assert ended.returncode == -signal.SIGKILL
    found, left = sorted(os.listdir(tmp_path))
    assert found == CHECKPOINT_FILE
    assert is_temporary(left, CHECKPOINT_FILE)
    assert read_checkpoint(str(tmp_path)) == {TopicPartition("a", 0): 1}
    write_checkpoint(str(tmp_path), {TopicPartition("a", 0): 3})
    assert read_checkpoint(str(tmp_path)) == {TopicPartition("a", 0): 3}


def test_file_and_directory_are_forced_to_disk_around_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda fd: (calls.append("directory" if os.path.isdir(f"/dev/fd/{fd}") else "file"), fsync(fd))
    )
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("rename"), replace(*names)))
    write_checkpoint(str(tmp_path), {A: 1})
    assert calls == ["file", "rename", "directory"]
