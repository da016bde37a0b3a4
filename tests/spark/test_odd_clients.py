"""Clients that deliver records again, or lose one: what jobs say of it, and how real command lines end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.spark.conftest import Cluster
from tests.spark.test_source_reads import numbered, produce
from tests.spark.test_telemetry import append
from tests.unit.telemetry.golden import stored

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).parents[2]
APP = """
from streams_py import StreamsBuilder, serdes


def copied():
    builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
    builder.stream({topic!r}).to({out!r})
    return builder.build()


def counted():
    builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
    builder.stream({topic!r}).group_by_key().count(store="counts")
    return builder.build()
"""


def done(odd: str, *command: str) -> subprocess.CompletedProcess[str]:
    """A command whose clients, also those in Spark's workers, do what ``odd_clients`` says."""
    path = os.pathsep.join([str(Path(__file__).parent / "odd_clients"), str(REPOSITORY)])
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=REPOSITORY, env={**os.environ, "ODD_CLIENT": odd, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def test_jobs_read_records_that_are_delivered_again_once_and_count_them(cluster: Cluster, tmp_path: Path) -> None:
    topic, group = cluster.topic(2), f"again-{os.getpid()}"
    produce(cluster, topic, *numbered(30), *numbered(12, 1))
    events = stored()
    append(cluster, cluster.topic(1, name=f"{group}-assignment-events"), events)
    result = done("again", "tests.spark.redelivering", str(tmp_path), cluster.bootstrap, topic, group)
    assert result.returncode == 0, result.stdout + result.stderr
    said = dict(line.split(maxsplit=1) for line in result.stdout.splitlines() if " " in line)
    assert said["batch"] == "42 42"
    assert said["stream"] == "42 42"
    assert said["history"] == "42 42 42"
    assert said["warm"].startswith("42 ")
    assert (
        "clients delivered 42 records again, after a change of leaders for example; each was read once" in said["warm"]
    )
    assert said["verify"].startswith("42 "), "it reads a changelog of 42 keys"
    assert "a second client has counted 42 records" in said["verify"]
    again = f"{len(events):,}"
    assert f" {again} records in " in said["telemetry"]
    assert f"; {again} delivered again" in said["telemetry"]


def test_backfill_that_leaves_out_a_record_ends_with_status_1_and_writes_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic, out = cluster.topic(2), cluster.topic(2)
    produce(cluster, topic, *numbered(30), *numbered(12, 1))
    (tmp_path / "app.py").write_text(APP.format(topic=topic, out=out))
    given = ["backfill", f"{tmp_path / 'app.py'}:copied", "--out", str(tmp_path / "out"), "-b", cluster.bootstrap]
    result = done(f"lost {topic}", "streams_py", *given, "--master", "local[2]")
    assert result.returncode == 1, result.stdout + result.stderr
    said = f"error: {topic}-0 has 30 records from offset 0 to 30, and 29 were read of it, so the results are wrong"
    assert said in result.stderr
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


def test_warm_start_that_leaves_out_a_record_ends_with_status_1_and_commits_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic = cluster.topic(2)
    produce(cluster, topic, *numbered(30), *numbered(12, 1))
    (tmp_path / "app.py").write_text(APP.format(topic=topic, out="out"))
    group = f"{topic}-counts"
    place = ["--plan", str(tmp_path / "plan.json"), "-b", cluster.bootstrap]
    program = ["streams_py", "bootstrap"]
    planned = done("", *program, "plan", f"{tmp_path / 'app.py'}:counted", "--application-id", group, *place)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    result = done(f"lost {topic}", *program, "run", "--commit", "--master", "local[2]", *place)
    assert result.returncode == 1, result.stdout + result.stderr
    said = f"error: {topic}-0 has 30 records from offset 0 to 30, and 29 were read of it, so the results are wrong"
    assert said in result.stderr
    refused = done("", *program, "commit", *place)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "verify it, or abort it" in refused.stderr
    found = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_consumer_groups().result(30)
    assert group not in {listed.group_id for listed in found.valid}
