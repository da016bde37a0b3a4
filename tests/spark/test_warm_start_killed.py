"""A warm start whose process is killed (SIGKILL) at every point. It is aborted and run again.

Only the process itself is killed, as the kernel does when memory is short. Its JVM and its workers must notice it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import pytest

from streams_protocol.types import TopicPartition
from streams_py.config.streams_config import StreamsConfig
from streams_py.history.bootstrap import BootstrapPlan, Step
from streams_py.history.cluster import HistoryCluster
from tests.support.spark.source import read
from tests.support.spark.warm_start import App, committed_text, state_of
from tests.support.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

_REPOSITORY = Path(__file__).parents[2]


@contextmanager
def killed(app: App, folder: Path, command: list[str], *arguments: str, when: Callable[[], object]) -> Iterator[None]:
    """Start a command of the application and kill it at ``when``. Afterwards none of its processes is left."""
    place = ["--bootstrap", app.cluster.bootstrap, "--plan", str(app.plan_file), "--master", "local[2]"]
    temporary, output = folder / "temporary", folder / "killed.log"
    temporary.mkdir()
    with output.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command, *arguments, *place],
            cwd=_REPOSITORY, env={**os.environ, "TMPDIR": str(temporary)}, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        until(lambda: when() or process.poll() is not None, "the point to kill it at", timeout_s=300)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL, output.read_text()
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def killed_at(app: App, folder: Path, point: str, *arguments: str) -> AbstractContextManager[None]:
    """Start ``bootstrap run``, and kill it at a point of ``tests.support.spark.stopped_bootstrap``."""
    mark = folder / "there"
    command = ["tests.support.spark.stopped_bootstrap", point, str(mark), "run"]
    return killed(app, folder, command, *arguments, when=mark.exists)


def ends_of_changelog(app: App) -> dict[int, int]:
    """Records by partition; empty without a changelog."""
    topic = f"{app.id}-counts-changelog"
    config = StreamsConfig.of({"application.id": app.id, "bootstrap.servers": app.cluster.bootstrap})
    with closing(HistoryCluster(config)) as cluster:
        count = cluster.partition_counts().get(topic, 0)
        return {at.partition: end for at, end in cluster.ends([TopicPartition(topic, p) for p in range(count)]).items()}


def step_of(app: App) -> Step:
    return BootstrapPlan.load(app.plan_file).step


def check_made_again(app: App) -> None:
    """An abort deletes everything, and the same plan then leads to the right state."""
    app.ok("abort")
    assert (ends_of_changelog(app), committed_text(app)) == ({}, {})
    app.ok("run", "--commit")
    with app.live() as streams:
        until(lambda: state_of(streams) == dict(app.counted), "the folded state")


def slow(*points: tuple[str, Step]) -> list[object]:
    return [pytest.param(*point, marks=pytest.mark.weekly) for point in points]


@pytest.mark.parametrize(
    ("point", "step"),
    [
        ("a stage", Step.RUNNING),
        *slow(
            ("nothing", Step.RUNNING),
            ("topics", Step.RUNNING),
            ("changelogs", Step.RUNNING),
            ("summed", Step.RUNNING),
            ("written", Step.WRITTEN),
            ("verified", Step.VERIFIED),
        ),
    ],
)
def test_what_a_killed_process_leaves_is_taken_back_and_made_again(
    app: App, tmp_path: Path, point: str, step: Step
) -> None:
    app.produce(20)
    assert app.plan().exit_code == 0
    with killed_at(app, tmp_path, point, "--commit"):
        assert step_of(app) is step
        refused = app.do("run")
        assert refused.exit_code == 2
        assert "abort it" in refused.output
        check_made_again(app)


@pytest.mark.weekly
def test_process_killed_while_changelogs_are_written_writes_nothing_more_after_an_abort(
    app: App, tmp_path: Path
) -> None:
    app.produce(40, distinct=1_000)
    assert app.plan().exit_code == 0
    slowly = ("--option", "kafka.batch.num.messages=1", "--option", "kafka.max.in.flight.requests.per.connection=1")
    found: dict[int, int] = {}

    def is_being_written() -> bool:
        found.update(ends_of_changelog(app))
        return sum(found.values()) > 0

    with killed(app, tmp_path, ["streams_py", "bootstrap", "run"], *slowly, when=is_being_written):
        assert step_of(app) is Step.RUNNING
        assert sum(ends_of_changelog(app).values()) < len(app.counted), "killed in the middle"
        check_made_again(app)


@pytest.mark.weekly
def test_outputs_of_a_killed_process_are_written_once_by_the_next_run(app: App, tmp_path: Path) -> None:
    app.topology = app.with_output
    app.produce(20)
    assert app.plan().exit_code == 0
    wanted = app.counted.copy()

    def written() -> Counter[str]:
        rows = read({"kafka.bootstrap.servers": app.cluster.bootstrap, "topics": app.out})
        return Counter(row["value"].decode() for row in rows)

    with killed_at(app, tmp_path, "outputs", "--sinks"):
        assert step_of(app) is Step.RUNNING
        until(lambda: written().total() > 0, "some outputs were committed")
        assert written() < wanted
        app.ok("abort")
        refused = app.do("run")
        assert refused.exit_code == 2
        assert "pass --sinks, which writes the missing outputs" in refused.output
        anew = app.plan()
        assert anew.exit_code == 2
        assert f"topic {app.out}: the aborted warm start" in anew.output
        app.produce(10, first=20)  # not of this plan
        app.ok("run", "--sinks", "--commit")
        until(lambda: written().total() >= wanted.total(), "all outputs")
        assert written() == wanted


@pytest.mark.weekly
def test_process_killed_behind_its_commit_is_completed_by_committing_once_more(app: App, tmp_path: Path) -> None:
    app.produce(10)
    app.plan()
    with killed_at(app, tmp_path, "committed", "--commit"):
        assert step_of(app) is Step.COMMITTING
        refused = app.do("abort")
        assert refused.exit_code == 1
        assert "again to complete it" in refused.output
        app.ok("commit")
        assert "to start again, reset the application" in app.do("abort").output
        with app.live() as streams:
            until(lambda: state_of(streams) == dict(app.counted), "the folded state")
