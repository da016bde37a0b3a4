"""Two real users on one host: what one of them prepares or leaves, the other one cannot use against the first one.

The second user has the uid 65534. A child process takes this identity, which needs root.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_py.cli.groups import resetting
from streams_py.cli.groups.reset_plan import Target
from streams_py.cli.groups.resetting import reset_application
from streams_py.connect.connectors.file_sink import FileSinkTask
from streams_py.connect.connectors.file_source import FileSourceTask
from streams_py.errors import ConfigError, ConnectorError, StreamsError
from streams_py.http.hosts import listen_unix
from streams_py.state.directory.run_directory import lock_run_directory, unlock_run_directory
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.snapshots.manifest import SnapshotFile
from streams_py.state.snapshots.storage import TaskSnapshots, hash_of, open_storage
from streams_py.system.file_locks import FileLock
from streams_py.system.private_files import UntrustedPathError, replace_file
from tests.support.connect.contexts import Offsets, record, started
from tests.support.resetting import FakeCluster
from tests.support.state.directories import opened
from tests.support.state.manifest import MANIFEST

OTHER = 65_534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like /tmp: all may write, and only the owner of a file may delete it."""
    folder = Path(tempfile.mkdtemp(prefix="two-users-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def as_other(act: Callable[[], object]) -> str | None:
    """Run a function as the other user. Return the class and text of its error; None without one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
            os.umask(0o022)
            act()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode()[:4_000])
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        return answer.read() or None


def test_the_other_user_is_another_one(shared: Path) -> None:
    assert as_other(lambda: (shared / "his").write_text("x")) is None
    assert (shared / "his").stat().st_uid == OTHER


def test_state_is_closed_to_the_other_user(shared: Path) -> None:
    directory = opened(shared / "state")
    directory.close()
    for act in (
        lambda: os.listdir(shared / "state" / "app"),
        lambda: StateDirectory(str(shared / "state"), "app").open(),
        lambda: StateDirectory(str(shared / "state"), "app").clean_up(),
        lambda: (shared / "state" / "planted").symlink_to("/etc"),
        lambda: (shared / "state").rename(shared / "mine"),
    ):
        assert as_other(act) is not None
    assert (shared / "state" / "app").is_dir()


@pytest.mark.parametrize("made", ["state", "state/app"])
def test_state_directory_that_the_other_user_made_first_is_refused(shared: Path, made: str) -> None:
    assert as_other(lambda: os.makedirs(shared / made)) is None
    uses = [StateDirectory.open, StateDirectory.clean_up]
    for use in uses if made == "state/app" else uses[:1]:  # there is nothing to delete without a folder of "app"
        with pytest.raises(StreamsError, match="belongs to"):
            use(StateDirectory(str(shared / "state"), "app"))
    assert (shared / made).stat().st_uid == OTHER


@pytest.mark.parametrize("claim", ["folder", "link", "folder of the application", "link of the application", "file"])
def test_run_directory_that_the_other_user_claims_first_is_not_used(
    shared: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, claim: str
) -> None:
    caplog.set_level(logging.INFO, "streams_py")
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    base, victim = shared / f"kafka-streams-run-{os.geteuid()}", shared / "victim"
    victim.mkdir(mode=0o700)
    if "of the application" in claim:
        base.mkdir()
        base.chmod(0o1777)
    at = base / "app" if "of the application" in claim else base
    acts: dict[str, Callable[[], object]] = {
        "folder": lambda: os.mkdir(at, 0o777),
        "link": lambda: at.symlink_to(victim),
        "file": lambda: at.write_text("x"),
    }
    assert as_other(acts[claim.partition(" ")[0]]) is None
    assert lock_run_directory(None, "app") is None
    assert list(victim.iterdir()) == []
    if claim == "folder":
        assert list(at.iterdir()) == []
    (said,) = [record for record in caplog.records if "not on record" in record.getMessage()]
    assert (said.levelname == "WARNING") == (claim != "file")


def test_run_directory_of_this_user_is_closed_to_the_other_one(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    locked = lock_run_directory(None, "app")
    assert locked is not None
    assert as_other(lambda: os.listdir(locked.path)) is not None
    assert as_other(lambda: os.rename(os.path.dirname(locked.application), shared / "his")) is not None
    unlock_run_directory(locked)


def test_link_of_the_other_user_in_the_place_of_the_state_directory_is_refused(shared: Path) -> None:
    victim = shared / "victim"
    (victim / "app" / "0_0").mkdir(parents=True, mode=0o700)
    (victim / "app" / "0_0" / "file").write_text("precious")
    assert as_other(lambda: (shared / "state").symlink_to(victim)) is None
    with pytest.raises(StreamsError):
        StateDirectory(str(shared / "state"), "app").clean_up()
    assert (victim / "app" / "0_0" / "file").read_text() == "precious"


def test_file_is_written_past_a_link_of_the_other_user(shared: Path) -> None:
    victim = shared / "victim"
    victim.write_text("precious")
    assert as_other(lambda: (shared / "plan").symlink_to(victim)) is None
    try:
        replace_file(str(shared / "plan"), b"plan")
    except OSError:
        pass
    else:
        assert (shared / "plan").read_bytes() == b"plan"
        assert (shared / "plan").stat().st_uid == 0
        assert as_other((shared / "plan").read_bytes) is not None
    assert victim.read_text() == "precious"


def test_lock_is_not_taken_through_a_link_of_the_other_user(shared: Path) -> None:
    victim = shared / "victim"
    victim.write_text("precious")
    assert as_other(lambda: (shared / "x.lock").symlink_to(victim)) is None
    with pytest.raises((OSError, StreamsError)):
        FileLock.take(shared / "x.lock")
    assert victim.read_text() == "precious"


# -- reset -------------------------------------------------------------------------------------------------------------


def reset(state_dir: Path, *, dry_run: bool) -> tuple[int, list[tuple[str, Any]]]:
    """Return the exit status of ``streams-py reset``, and what it has changed in the cluster."""
    fake, real = FakeCluster(), resetting.connected
    try:
        resetting.connected = lambda *_: contextlib.nullcontext(fake)  # type: ignore[assignment]
        status = reset_application(
            "app", "b:1", None, inputs=(), target=Target(), state_dir=str(state_dir), dry_run=dry_run, force=False,
            confirmed=lambda: True,
        )  # fmt: skip
    finally:
        resetting.connected = real
    return status, fake.done


@pytest.mark.parametrize("dry_run", [True, False])
def test_reset_without_the_right_to_look_at_the_state_changes_nothing_and_says_why(
    shared: Path, dry_run: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    opened(shared / "state").close()
    (shared / "state").chmod(0o700)

    def act() -> None:
        status, changed = reset(shared / "state", dry_run=dry_run)
        raise AssertionError(f"status {status}, changed {changed}")

    assert as_other(act) == "AssertionError: status 2, changed []"
    assert "cannot delete the local state in" in capfd.readouterr().err


@pytest.mark.parametrize("dry_run", [True, False])
def test_reset_changes_nothing_in_the_cluster_if_the_state_belongs_to_the_other_user(
    shared: Path, dry_run: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert as_other(lambda: os.makedirs(shared / "state" / "app")) is None
    assert reset(shared / "state", dry_run=dry_run) == (2, [])
    assert "belongs to" in capsys.readouterr().err


# -- snapshots ---------------------------------------------------------------------------------------------------------


def snapshots(root: Path) -> TaskSnapshots:
    return TaskSnapshots(open_storage(root.as_uri()), "app", "0_0")


def test_snapshots_are_closed_to_the_other_user(shared: Path) -> None:
    place, content = snapshots(shared / "place"), shared / "content"
    content.write_text("state")
    file = hash_of(str(content))
    place.put_file(str(content), file, int)
    place.put_manifest(MANIFEST)
    for act in (
        lambda: os.listdir(shared / "place"),
        lambda: os.listdir(shared / "place" / "app"),
        lambda: snapshots(shared / "place").names(),
        (shared / "place" / "app" / "0_0" / "files" / file.sha256).read_bytes,
        lambda: (shared / "place" / "app" / "planted").symlink_to("/etc"),
        lambda: (shared / "place").rename(shared / "mine"),
    ):
        assert as_other(act) is not None


@pytest.mark.parametrize("made", ["place", "place/app", "place/app/0_0", "place/app/0_0/manifests"])
@pytest.mark.parametrize("is_there_first", [True, False])
def test_snapshots_of_the_other_user_are_not_used(shared: Path, made: str, is_there_first: bool) -> None:
    """The other user may also create the folder after the application has started."""
    mine = shared
    for name in Path(made).parent.parts:
        mine /= name
        mine.mkdir()
        mine.chmod(0o1777)
    before = None if is_there_first else snapshots(shared / "place")

    def plant() -> None:
        for kind in ("manifests", "files"):
            folder = shared / "place" / "app" / "0_0" / kind
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "000000000000001-00000000.json").write_bytes(MANIFEST.encode())

    assert as_other(plant) is None
    with pytest.raises((UntrustedPathError, ConfigError), match="belongs to"):
        (before or snapshots(shared / "place")).names()
    with pytest.raises((UntrustedPathError, ConfigError), match="belongs to"):
        (before or snapshots(shared / "place")).manifest("000000000000001-00000000.json")


def test_link_of_the_other_user_below_the_place_of_snapshots_is_refused(shared: Path) -> None:
    content, victim = shared / "content", shared / "victim"
    content.write_text("state")
    (victim / "0_0" / "files").mkdir(parents=True)
    place = snapshots(shared / "place")
    (shared / "place").mkdir()
    (shared / "place").chmod(0o1777)
    assert as_other(lambda: (shared / "place" / "app").symlink_to(victim)) is None
    with pytest.raises(UntrustedPathError, match="symbolic link"):
        place.put_file(str(content), hash_of(str(content)), int)
    with pytest.raises(UntrustedPathError, match="symbolic link"):
        place.get_file(SnapshotFile("0" * 64, 1), str(shared / "back"))
    assert not list((victim / "0_0" / "files").iterdir())


# -- files of connectors -----------------------------------------------------------------------------------------------


def sink(directory: Path) -> FileSinkTask:
    task = FileSinkTask()
    task.start({"directory": str(directory), "format": "json"})
    return task


@pytest.mark.parametrize("plant", ["link", "file"])
def test_file_sink_does_not_write_to_what_the_other_user_has_planted(shared: Path, plant: str) -> None:
    victim, name = shared / "victim", shared / "t-0.json"
    victim.write_text("")
    assert as_other(lambda: name.symlink_to(victim) if plant == "link" else name.write_text("")) is None
    with pytest.raises(OSError, match=r".?"):  # Linux itself refuses files of others in sticky folders
        sink(shared).put([record(0, "secret")])
    assert victim.read_text() == ""
    assert plant == "link" or name.read_text() == ""


def test_file_sink_does_not_follow_a_folder_link_of_the_other_user(shared: Path) -> None:
    (shared / "victim").mkdir()
    assert as_other(lambda: (shared / "out").symlink_to(shared / "victim")) is None
    with pytest.raises(ConnectorError, match="symbolic link of"):
        sink(shared / "out")


def test_files_of_the_file_sink_follow_the_umask(shared: Path) -> None:
    before = os.umask(0o027)
    try:
        sink(shared / "out").put([record(0, "x")])
    finally:
        os.umask(before)
    assert stat.S_IMODE((shared / "out" / "t-0.json").stat().st_mode) == 0o640
    assert as_other((shared / "out" / "t-0.json").read_text) is not None


def source(file: Path, **more: str) -> FileSourceTask:
    props = {"file": str(file), "topic": "t", "format": "csv", "poll.interval.ms": "1", **more}
    task: FileSourceTask = started(FileSourceTask(), Offsets(), props)
    return task


@pytest.mark.parametrize("where", ["file", "folder", "behind my link"])
def test_file_source_does_not_follow_links_of_the_other_user(shared: Path, where: str) -> None:
    """Otherwise a user who may write to the folder could publish every file that the worker may read."""
    victim, folder = shared / "victim", shared / "drop"
    victim.mkdir(mode=0o700)
    (victim / "in.csv").write_text("a\nsecret\n")
    folder.mkdir()
    folder.chmod(0o777)
    file = {"file": folder / "in.csv", "folder": folder / "sub" / "in.csv", "behind my link": shared / "in.csv"}[where]
    if where == "behind my link":
        file.symlink_to(folder / "in.csv")
    task = source(file)
    assert not task.poll()
    planted = (folder / "sub", victim) if where == "folder" else (folder / "in.csv", victim / "in.csv")
    assert as_other(lambda: planted[0].symlink_to(planted[1])) is None
    with pytest.raises(ConnectorError, match="symbolic link of"):
        task.poll()


def test_file_source_follows_my_link_and_reads_a_file_of_the_other_user(shared: Path) -> None:
    assert as_other(lambda: (shared / "his.csv").write_text("a\n1\n")) is None
    (shared / "link").symlink_to(shared / "his.csv")
    assert [made.value for made in source(shared / "link").poll() or []] == [{"a": "1"}]


def test_file_source_does_not_wait_for_a_pipe_of_the_other_user(shared: Path) -> None:
    assert as_other(lambda: os.mkfifo(shared / "in.csv")) is None
    with pytest.raises(ConnectorError, match="not a regular file"):
        source(shared / "in.csv").poll()


# -- the Unix socket of Connect ----------------------------------------------------------------------------------------


def listening(path: Path, mode: int = 0o600) -> socket.socket:
    return listen_unix(str(path), mode, key="listeners")


def connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


@pytest.mark.parametrize(("mode", "may"), [(0o600, False), (0o660, False), (0o666, True)])
def test_mode_of_the_unix_socket_decides_about_the_other_user(shared: Path, mode: int, may: bool) -> None:
    with listening(shared / "socket", mode):
        connect(shared / "socket")
        assert (as_other(lambda: connect(shared / "socket")) is None) == may
        for act in (
            (shared / "socket").unlink,
            lambda: (shared / "socket").rename(shared / "mine"),
            lambda: (shared / "socket").chmod(0o666),
            lambda: listening(shared / "socket"),
        ):
            assert as_other(act) is not None
        assert (shared / "socket").stat().st_uid == os.geteuid()


@pytest.mark.parametrize("target", ["file", "socket", "nothing"])
def test_link_of_the_other_user_at_the_path_of_the_unix_socket_is_refused(shared: Path, target: str) -> None:
    victim = shared / "victim"
    if target == "file":
        victim.write_text("precious")
    elif target == "socket":
        listening(victim).close()
    assert as_other(lambda: (shared / "socket").symlink_to(victim)) is None
    with pytest.raises(ConfigError, match=r"listeners: .* cannot be served"):
        listening(shared / "socket")
    assert (shared / "socket").is_symlink()
    assert victim.exists() == (target != "nothing")


def test_unix_socket_that_the_other_user_serves_is_not_taken_over(shared: Path) -> None:
    ready, ended = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(OTHER)
        os.setuid(OTHER)
        with listening(shared / "socket"):
            os.write(ready[1], b"x")
            os.read(ended[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        with pytest.raises(ConfigError, match="cannot be served"):
            listening(shared / "socket")
        assert (shared / "socket").stat().st_uid == OTHER
    finally:
        os.write(ended[1], b"x")
        os.waitpid(child, 0)
        for descriptor in (*ready, *ended):
            os.close(descriptor)


def test_stale_unix_socket_of_the_other_user_is_replaced_or_refused(shared: Path) -> None:
    """Only root may remove it from a sticky folder. The socket that is then served is ours."""
    assert as_other(lambda: listening(shared / "socket").close()) is None
    assert (shared / "socket").stat().st_uid == OTHER
    with listening(shared / "socket"):
        assert (shared / "socket").stat().st_uid == os.geteuid()
        assert as_other(lambda: connect(shared / "socket")) is not None
    assert as_other(lambda: listening(shared / "socket")) is not None


def test_unix_socket_in_a_folder_of_the_other_user_is_refused(shared: Path) -> None:
    assert as_other((shared / "his").mkdir) is None
    with pytest.raises(ConfigError, match="belongs to"):
        listening(shared / "his" / "socket")
