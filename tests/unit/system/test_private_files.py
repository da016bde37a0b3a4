"""Files and folders on a host that other users share: links, owners, modes, and what is deleted."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from streams_py.system import private_files
from streams_py.system.private_files import (
    UntrustedPathError,
    check_shared_folder,
    close_to_others,
    delete,
    make_folder,
    open_file,
    replace_file,
)

STRANGER = 65_534
GiveAway = Callable[[Path], None]


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> GiveAway:
    """Make a path another user's: really where root runs the tests, else by a process that runs as somebody else."""

    def given(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, STRANGER, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr(private_files, "_uid", lambda: STRANGER)  # a test cannot become another user

    return given


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- folders -----------------------------------------------------------------------------------------------------------


def test_folder_is_for_this_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(str(tmp_path / "state"))
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "state") == 0o700


def test_folder_that_a_volume_has_opened_to_a_group_is_closed_again(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o2775)
    make_folder(str(tmp_path / "state"))
    assert mode_of(tmp_path / "state") & 0o777 == 0o700


def test_folder_of_another_user_is_refused(tmp_path: Path, give_away: GiveAway) -> None:
    (tmp_path / "state").mkdir(mode=0o777)
    give_away(tmp_path / "state")
    with pytest.raises(UntrustedPathError, match=r"state belongs to .*run it as that user"):
        make_folder(str(tmp_path / "state"))


def test_link_to_a_folder_is_refused_also_to_one_of_this_user(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "elsewhere").chmod(0o755)
    (tmp_path / "state").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UntrustedPathError, match="symbolic link"):
        make_folder(str(tmp_path / "state"))
    assert mode_of(tmp_path / "elsewhere") == 0o755


def test_folder_that_stays_open_to_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o755)
    monkeypatch.setattr(os, "fchmod", lambda *_: None)  # as file systems without modes do
    with pytest.raises(UntrustedPathError, match="another file system"):
        make_folder(str(tmp_path / "state"))


def test_files_that_a_library_creates_with_0644_are_private(tmp_path: Path) -> None:
    make_folder(str(tmp_path / "state"))
    if "system.posix_acl_default" not in os.listxattr(tmp_path / "state"):
        pytest.skip("this file system has no access control lists; the mode of the folder protects the files")
    before = os.umask(0o022)
    try:
        (tmp_path / "state" / "1.sst").touch(0o644)
        (tmp_path / "state" / "sub").mkdir(0o755)
        (tmp_path / "state" / "sub" / "2.sst").touch(0o644)
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "state" / "1.sst") == 0o600
    assert mode_of(tmp_path / "state" / "sub") == 0o700
    assert mode_of(tmp_path / "state" / "sub" / "2.sst") == 0o600


def test_files_of_an_older_version_are_closed_to_others_and_links_left_alone(tmp_path: Path) -> None:
    (tmp_path / "victim").touch(0o644)
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "1.sst").touch()
    (folder / "1.sst").chmod(0o644)
    (folder / "link").symlink_to(tmp_path / "victim")
    was = mode_of(tmp_path / "victim")
    close_to_others(str(folder))
    assert mode_of(folder / "1.sst") == 0o600
    assert mode_of(tmp_path / "victim") == was


# -- the shared folder above -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777, 0o1775])
def test_shared_folder_is_accepted_when_nobody_else_can_replace_its_entries(tmp_path: Path, mode: int) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base").chmod(mode)
    check_shared_folder(str(tmp_path / "base"))


def test_shared_folder_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base").chmod(0o777)
    with pytest.raises(UntrustedPathError, match="writable for all users"):
        check_shared_folder(str(tmp_path / "base"))


def test_shared_folder_that_a_group_may_write_is_refused_unless_it_has_this_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base").chmod(0o775)
    monkeypatch.setattr(private_files, "_is_private_group", lambda _: False)  # groups of this machine do not matter
    with pytest.raises(UntrustedPathError, match="writable for group"):
        check_shared_folder(str(tmp_path / "base"))
    monkeypatch.setattr(private_files, "_is_private_group", lambda _: True)  # groups of this machine do not matter
    check_shared_folder(str(tmp_path / "base"))


def test_mount_point_may_be_writable_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(volume))
    check_shared_folder(str(volume))
    (volume / "below").mkdir()
    check_shared_folder(str(volume / "below"))


def test_shared_folder_of_another_user_is_refused(tmp_path: Path, give_away: GiveAway) -> None:
    (tmp_path / "base").mkdir()
    give_away(tmp_path / "base")
    with pytest.raises(UntrustedPathError, match=r"belongs to .*could replace"):
        check_shared_folder(str(tmp_path / "base"))


def test_shared_folder_below_one_of_another_user_is_refused(tmp_path: Path, give_away: GiveAway) -> None:
    (tmp_path / "above" / "base").mkdir(parents=True)
    give_away(tmp_path / "above")
    with pytest.raises(UntrustedPathError, match=r"(above|base) belongs to"):
        check_shared_folder(str(tmp_path / "above" / "base"))


def test_link_of_another_user_in_the_path_is_refused(tmp_path: Path, give_away: GiveAway) -> None:
    (tmp_path / "mine" / "base").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    check_shared_folder(str(tmp_path / "link" / "base"))  # this user's own link is a usual way to move data
    give_away(tmp_path / "link")
    with pytest.raises(UntrustedPathError, match=r"link is a symbolic link of|belongs to"):
        check_shared_folder(str(tmp_path / "link" / "base"))


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_RDONLY])
def test_file_behind_a_link_is_neither_opened_nor_emptied(tmp_path: Path, flags: int) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(UntrustedPathError, match="symbolic link"):
        open_file(str(tmp_path / "link"), flags)
    assert (tmp_path / "victim").read_text() == "precious"


def test_dangling_link_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(UntrustedPathError, match="symbolic link"):
        open_file(str(tmp_path / "link"), os.O_RDWR | os.O_CREAT)
    assert not (tmp_path / "victim").exists()


def test_hard_link_to_another_file_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    os.link(tmp_path / "victim", tmp_path / "lock")
    with pytest.raises(UntrustedPathError, match="hard link"):
        open_file(str(tmp_path / "lock"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    assert (tmp_path / "victim").read_text() == "precious"


def test_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan")
    with pytest.raises(UntrustedPathError, match="not a regular file"):
        open_file(str(tmp_path / "plan"), os.O_RDONLY)


def test_file_of_another_user_is_not_written(tmp_path: Path, give_away: GiveAway) -> None:
    (tmp_path / "lock").write_text("precious")
    (tmp_path / "lock").chmod(0o666)
    give_away(tmp_path / "lock")
    with pytest.raises(UntrustedPathError, match="belongs to"):
        open_file(str(tmp_path / "lock"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    assert (tmp_path / "lock").read_text() == "precious"


def test_replaced_file_is_private_and_a_link_under_its_name_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "plan").symlink_to(tmp_path / "victim")
    replace_file(str(tmp_path / "plan"), b"new")
    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "plan").read_bytes() == b"new"
    assert not (tmp_path / "plan").is_symlink()
    assert mode_of(tmp_path / "plan") == 0o600
    assert sorted(os.listdir(tmp_path)) == ["plan", "victim"]


def test_links_under_names_of_drafts_of_older_versions_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    for ending in (".new", ".tmp", ".draft"):
        (tmp_path / f"plan{ending}").symlink_to(tmp_path / "victim")
    replace_file(str(tmp_path / "plan"), b"new")
    assert (tmp_path / "victim").read_text() == "precious"


def test_file_for_others_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(str(tmp_path / "report"), b"x", shared=True)
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "report") == 0o640


def test_old_content_stays_and_no_draft_is_left_when_the_new_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_file(str(tmp_path / "plan"), b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(str(tmp_path / "plan"), b"new")
    assert os.listdir(tmp_path) == ["plan"]
    assert (tmp_path / "plan").read_bytes() == b"old"


# -- deletion ----------------------------------------------------------------------------------------------------------


def precious(folder: Path) -> Path:
    folder.mkdir()
    (folder / "file").write_text("precious")
    return folder


def test_deletion_removes_a_folder_with_all_that_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "state" / "0_0" / "rocksdb").mkdir(parents=True)
    (tmp_path / "state" / "0_0" / "rocksdb" / "CURRENT").write_text("x")
    delete(str(tmp_path / "state" / "0_0"))
    assert os.listdir(tmp_path / "state") == []


@pytest.mark.parametrize("place", ["0_0", "0_0/rocksdb", "0_0/rocksdb/deep"])
def test_deletion_refuses_links_at_every_level_and_deletes_nothing(tmp_path: Path, place: str) -> None:
    victim = precious(tmp_path / "victim")
    link = tmp_path / "state" / place
    link.parent.mkdir(parents=True)
    (tmp_path / "state" / "own").write_text("x")
    link.symlink_to(victim)
    with pytest.raises(UntrustedPathError, match=f"{place} is a symbolic link"):
        delete(str(tmp_path / "state" / "0_0"))
    assert (victim / "file").read_text() == "precious"
    assert link.is_symlink()


def test_deletion_refuses_a_link_above(tmp_path: Path) -> None:
    victim = precious(tmp_path / "victim")
    (tmp_path / "state").symlink_to(victim)
    with pytest.raises(UntrustedPathError, match="symbolic link"):
        delete(str(tmp_path / "state" / "file"))
    assert (victim / "file").exists()


@pytest.mark.parametrize("place", ["0_0", "0_0/rocksdb"])
def test_deletion_refuses_folders_of_another_user_below(tmp_path: Path, place: str, give_away: GiveAway) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True)
    (folder / "file").write_text("x")
    give_away(folder)
    with pytest.raises(UntrustedPathError, match="belongs to"):
        delete(str(tmp_path / "0_0"))
    assert (folder / "file").exists()
