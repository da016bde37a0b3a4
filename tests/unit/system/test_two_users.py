"""Two real users on one host: what one of them prepares or leaves, the other one cannot use against the first one.

The second user has the uid 65534. A child process takes this identity, which needs root.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streams_py.errors import StreamsError
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.system.file_locks import FileLock
from streams_py.system.private_files import replace_file
from tests.support.state.directories import opened

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
