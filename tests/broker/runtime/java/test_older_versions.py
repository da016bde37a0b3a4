"""Members of older releases together with Python members: the group agrees on the newest common version, and is then
stable.

Otherwise there would be a loop. One member would keep a version that others want to leave, and all members would rejoin
about every second, forever. A stable group keeps its generation.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from streams_py.testing.broker import NoBrokerError
from tests.support.broker.java_programs import JAVA_WORKER, JavaPrograms
from tests.support.broker.kit import PYTHON, Application, Instance, text, true_counts
from tests.support.broker.older_releases import VERSION_OF, streams_jars

pytestmark = [pytest.mark.broker, pytest.mark.weekly, pytest.mark.timeout(1_200)]

REST_S = 60
LATEST = 11
WORDS = text(6_000, vocabulary=50)


class Group:
    """An application, its input so far, and the state of its group."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self._fed = 0

    def feed(self) -> None:
        self.app.feed(WORDS[self._fed : self._fed + 20])
        self._fed += 20

    def await_counted(self) -> None:
        self.app.await_caught_up()
        assert self.app.counts() == true_counts(WORDS[: self._fed]), self.app.tails()

    def await_rest(self, python: Instance, *others: Instance, rest_s: float, version: int) -> None:
        """Wait until all tasks are placed, every member has tasks, and the generation stays the same while words are
        counted.
        """
        self.app.await_shared(python, *others)
        generation, since = generations(python), time.monotonic()
        until = since + 180  # a warm-up that has caught up, and a member that steps up, may still join once more
        while time.monotonic() - since < rest_s:
            assert time.monotonic() < until, f"the group does not rest: {generations(python)}\n{self.app.tails()}"
            self.feed()
            time.sleep(2)
            if generations(python) != generation:
                generation, since = generations(python), time.monotonic()
        assert self.app.shared(python, *others), self.app.tails()
        assert python.ask("versions") == [version]
        self.await_counted()


def generations(python: Instance) -> dict[str, int]:
    """The group's generation as each thread knows it."""
    return dict(python.status["generations"])


def older(java_programs: JavaPrograms, release: str) -> tuple[str, ...]:
    """The command of a member of an older release."""
    try:
        jars = streams_jars(release)
    except NoBrokerError as error:
        pytest.skip(f"a member of Kafka Streams {release} needs its jars: {error}")
    return java_programs.command(JAVA_WORKER, jars)


@pytest.mark.parametrize("first", ["python", "java"])
@pytest.mark.parametrize(
    ("release", "exact"),
    [
        pytest.param("2.5.1", False, id="version 6"),
        pytest.param("3.1.2", False, id="version 10"),
        pytest.param("3.1.2", True, id="version 10 exactly once"),  # older ones have no exactly_once_v2
    ],
)
def test_group_rests_at_the_older_version_and_steps_up_when_its_last_member_is_gone(
    application: Callable[..., Application],
    java: tuple[str, ...],
    java_programs: JavaPrograms,
    first: str,
    release: str,
    exact: bool,
) -> None:
    app = application(num_standby_replicas=1, **({"processing_guarantee": "exactly_once_v2"} if exact else {}))
    group = Group(app)
    group.feed()
    commands = {"python": PYTHON, "java": older(java_programs, release)}
    second = "java" if first == "python" else "python"
    members = {}
    for name in (first, second):
        members[name] = app.start(name, command=commands[name])
        app.until(lambda one=members[name]: one.state == "RUNNING", f"{name} to run")  # type: ignore[misc]
    led = members["python"].ask("led")
    assert (led > 0) == (first == "python")
    group.await_rest(members["python"], members["java"], rest_s=REST_S, version=VERSION_OF[release])

    # A member of today does not make the others step up, either; who leads is the same.
    today = app.start("java of today", command=java)
    group.await_rest(members["python"], members["java"], today, rest_s=REST_S / 3, version=VERSION_OF[release])

    members["java"].close()
    group.await_rest(members["python"], today, rest_s=REST_S / 3, version=LATEST)


def test_members_of_three_versions_rest_in_one_group(
    application: Callable[..., Application], java_programs: JavaPrograms
) -> None:
    app = application(num_standby_replicas=1, partitions=6)
    group = Group(app)
    group.feed()
    oldest, older_one = (app.start(release, command=older(java_programs, release)) for release in VERSION_OF)
    python = app.start("python")
    group.await_rest(python, oldest, older_one, rest_s=REST_S, version=6)
    oldest.kill()
    group.await_rest(python, older_one, rest_s=REST_S / 3, version=10)
    older_one.kill()
    group.await_rest(python, rest_s=REST_S / 3, version=LATEST)
