"""Clients that deliver records again, or lose one: the reports of jobs, and the exit status of commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.spark.cluster import Cluster
from tests.support.spark.source import numbered, produce
from tests.support.spark.telemetry import append
from tests.support.telemetry.golden import stored

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).parents[2]
APP = """
from streams_py import StreamsBuilder, serdes


def copied():
    builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
    builder.stream({topic!r}).to({out!r})
    return builder.build()


def joined():
    builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
    names = builder.global_table({table!r})
    builder.stream({topic!r}).join(names, lambda ours, name: ours + name, on=lambda key, _: key).to({out!r})
    return builder.build()


def counted():
    builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
    builder.stream({topic!r}).group_by_key().count(store="counts")
    return builder.build()


def joined_and_counted():
    builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
    names = builder.global_table({table!r})
    both = builder.stream({topic!r}).join(names, lambda ours, name: ours + name, on=lambda key, _: key)
    both.group_by_key().count(store="counts")
    return builder.build()
"""


def done(odd: str, *command: str) -> subprocess.CompletedProcess[str]:
    """A command whose clients, also in Spark's workers, behave as ``odd_clients`` defines."""
    path = os.pathsep.join([str(REPOSITORY / "tests/support/spark/odd_clients"), str(REPOSITORY)])
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=REPOSITORY, env={**os.environ, "ODD_CLIENT": odd, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def test_jobs_read_records_that_are_delivered_again_once_and_count_them(cluster: Cluster, tmp_path: Path) -> None:
    topic, group = cluster.topic(2), f"again-{os.getpid()}"
    produce(cluster, topic, *numbered(30), *numbered(12, 1))
    events = stored()
    append(cluster, cluster.topic(1, name=f"{group}-assignment-events"), events)
    result = done("again", "tests.support.spark.redelivering", str(tmp_path), cluster.bootstrap, topic, group)
    assert result.returncode == 0, result.stdout + result.stderr
    said = dict(line.split(maxsplit=1) for line in result.stdout.splitlines() if " " in line)
    assert said["batch"] == "42 42"
    assert said["stream"] == "42 42"
    assert said["history"] == "42 42 42"
    assert said["warm"].startswith("42 ")
    assert "clients delivered 42 records more than once, for example after a leader change" in said["warm"]
    assert said["verify"].startswith("42 "), "it reads a changelog of 42 keys"
    assert "a second client counted 42 records" in said["verify"]
    again = f"{len(events):,}"
    assert f" {again} records in " in said["telemetry"]
    assert f"; {again} delivered more than once" in said["telemetry"]


class App:
    """A program, its topics with records, and its commands."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.topic, self.table, self.out = (cluster.topic(2) for _ in range(3))
        for topic in (self.topic, self.table):
            produce(cluster, topic, *numbered(30), *numbered(12, 1))
        self.file, self.place = folder / "app.py", ["-b", cluster.bootstrap, "--master", "local[2]"]
        self.file.write_text(APP.format(topic=self.topic, table=self.table, out=self.out))

    def do(self, lost: str, *command: str) -> subprocess.CompletedProcess[str]:
        return done(f"lost {lost}", "streams_py", *command, *self.place)

    def is_refused(self, result: subprocess.CompletedProcess[str], lost: str) -> bool:
        said = f"error: {lost}-0 has 30 records from offset 0 to 30, but the run read 29, so the results are wrong"
        return said in result.stderr


@pytest.mark.parametrize("is_table", [False, True])
def test_backfill_that_leaves_out_a_record_ends_with_status_1_and_writes_nothing(
    cluster: Cluster, tmp_path: Path, is_table: bool
) -> None:
    app, out = App(cluster, tmp_path), tmp_path / "out"
    lost = app.table if is_table else app.topic
    more = ["--global-tables", "as-of-end"] if is_table else []
    what = f"{app.file}:{'joined' if is_table else 'copied'}"
    result = app.do(lost, "backfill", what, "--out", str(out), *more)
    assert result.returncode == 1, result.stdout + result.stderr
    assert app.is_refused(result, lost), result.stderr
    assert not out.exists() or not any(out.iterdir())


@pytest.mark.parametrize("last", [[], ["--last", "1d"]])
def test_diff_of_runs_that_leave_out_a_record_has_no_result(cluster: Cluster, tmp_path: Path, last: list[str]) -> None:
    """Status 1 means that outputs differ, so failures of diff have status 2."""
    app = App(cluster, tmp_path)
    result = app.do(app.topic, "diff", f"{app.file}:copied", f"{app.file}:copied", *last)
    assert result.returncode == 2, result.stdout + result.stderr
    assert app.is_refused(result, app.topic), result.stderr


@pytest.mark.parametrize("is_table", [False, True])
def test_warm_start_that_leaves_out_a_record_ends_with_status_1_and_commits_nothing(
    cluster: Cluster, tmp_path: Path, is_table: bool
) -> None:
    app = App(cluster, tmp_path)
    lost = app.table if is_table else app.topic
    more = ["--global-tables", "as-of-end"] if is_table else []
    what = f"{app.file}:{'joined_and_counted' if is_table else 'counted'}"
    group = f"{app.topic}-counts"
    place = ["--plan", str(tmp_path / "plan.json"), "-b", cluster.bootstrap]
    program = ["streams_py", "bootstrap"]
    planned = done("", *program, "plan", what, "--application-id", group, *more, *place)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    result = done(f"lost {lost}", *program, "run", "--commit", "--master", "local[2]", *place)
    assert result.returncode == 1, result.stdout + result.stderr
    assert app.is_refused(result, lost), result.stderr
    refused = done("", *program, "commit", *place)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "verify it, or abort it" in refused.stderr
    found = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_consumer_groups().result(30)
    assert group not in {listed.group_id for listed in found.valid}
