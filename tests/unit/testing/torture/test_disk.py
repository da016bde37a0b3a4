"""A small disk becomes full on request, or the reason for having none is reported."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams_py.testing.torture.disk import DiskError, SmallDisk


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        made = SmallDisk(tmp_path / "disk")
    except DiskError as error:
        pytest.skip(f"this user may mount nothing here: {error}")
    yield made
    made.close()


def test_full_disk_takes_nothing_until_it_is_cleared(small: SmallDisk) -> None:
    (small.folder / "before").write_bytes(bytes(1 << 20))
    small.fill()
    with pytest.raises(OSError, match="No space left") as caught:
        (small.folder / "more").write_bytes(bytes(1 << 20))
    assert caught.value.errno == errno.ENOSPC
    assert (small.folder / "before").stat().st_size == 1 << 20
    small.clear()
    (small.folder / "more").write_bytes(bytes(1 << 20))


def test_closed_disk_is_gone_also_while_a_file_is_open(tmp_path: Path) -> None:
    try:
        made = SmallDisk(tmp_path / "disk")
    except DiskError as error:
        pytest.skip(f"this user may mount nothing here: {error}")
    with (made.folder / "open").open("w"):
        made.close()
        assert not os.path.ismount(made.folder)
    assert list(made.folder.iterdir()) == []


def test_reason_is_that_of_the_system_when_nothing_may_be_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "mount").write_text("#!/bin/sh\necho 'mount: only root can do that' >&2\nexit 1\n")
    (commands / "mount").chmod(0o755)
    monkeypatch.setenv("PATH", str(commands))
    with pytest.raises(DiskError, match="only root can do that"):
        SmallDisk(tmp_path / "disk")
    assert not (tmp_path / "disk").exists()
    (commands / "mount").unlink()
    with pytest.raises(DiskError, match="No such file"):
        SmallDisk(tmp_path / "disk")
