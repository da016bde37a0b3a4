"""Every command and service with a login and the fewest documented rights. Errors name missing rights."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streams_py.cli.commands import app
from streams_py.testing.broker import Right
from tests.support.broker.rights import lines_of
from tests.support.broker.site import Site

LOOKING, RESET, READING, WRITING = "Looking at a group", "Reset", "Reading records", "Writing records"


class Desk:
    """A site whose application has every right, and an operator who has the rights of some tables."""

    def __init__(self, made: Site) -> None:
        self.site = made
        self._open = ExitStack()
        made.write("a", "b", "a")
        self.streams = self._open.enter_context(
            made.streams(made.settings({"bootstrap.servers": made.broker.bootstrap}))
        )
        made.until_counted({"a": 2, "b": 1})
        self.keys = made.login("SCRAM-SHA-512")

    def close(self) -> None:
        self._open.close()

    def do(self, *arguments: str) -> Any:
        file = str(self.site.properties(self.keys))
        return CliRunner().invoke(app, [*arguments, "-b", self.keys["bootstrap.servers"], "--config", file])

    def refused(self, *arguments: str) -> str:
        done = self.do(*arguments)
        assert done.exit_code == 2, done.output
        (sentence,) = done.stderr.splitlines()
        return str(sentence)


@pytest.fixture
def desk(site: Callable[[], Site]) -> Iterator[Desk]:
    made = Desk(site())
    yield made
    made.close()


def test_group_is_looked_at_with_the_rights_of_the_page(desk: Desk) -> None:
    made = desk.site
    assert f"no right DESCRIBE on group {made.id}" in desk.refused("inspect", "-g", made.id)
    group, *topics = lines_of(LOOKING)
    made.allow([group])
    assert "no right DESCRIBE on topic" in desk.refused("inspect", "-g", made.id)
    made.allow(topics)
    shown = desk.do("inspect", "-g", made.id, "--json")
    assert shown.exit_code == 0, shown.output
    assert {task["task"] for task in json.loads(shown.stdout)["tasks"]} == {"0_0", "0_1", "1_0", "1_1"}
    why = desk.do("explain", "-g", made.id)
    assert why.exit_code == 0, why.output
    assert "1_1" in why.output


@pytest.mark.weekly
def test_page_shows_a_group_with_the_rights_of_the_page(desk: Desk) -> None:
    made = desk.site
    made.allow(lines_of(LOOKING))
    file = str(made.properties(desk.keys))
    command = [sys.executable, "-m", "streams_py", "dashboard", "-g", made.id, "-p", "0", "--config", file]
    with subprocess.Popen(
        [*command, "-b", desk.keys["bootstrap.servers"]], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().partition(" is shown at ")[2].split()[0]
            with urllib.request.urlopen(f"{url}updates", timeout=60) as stream:
                lines = (line.decode() for line in stream)
                first = next(line for line in lines if line.startswith("data:") and "1_1" in line)
        finally:
            process.kill()
    assert "5ecret" not in first


def test_records_are_written_and_read_with_the_rights_of_the_page(desk: Desk) -> None:
    made = desk.site
    topic = made.input
    assert f"topic {topic} does not exist" in desk.refused("produce", topic, "c")
    made.allow(lines_of(WRITING))
    assert desk.do("produce", topic, "c").exit_code == 0
    assert f"no right READ on topic {topic}" in desk.refused("consume", topic)
    made.allow(lines_of(READING))
    done = desk.do("consume", topic)
    assert sorted(line.split("\t")[-1] for line in done.stdout.splitlines()) == ["a", "a", "b", "c"], done.output
    listed = desk.do("topics")
    assert topic in listed.stdout
    assert made.output not in listed.stdout
    assert f"no right CREATE on topic {topic}-new" in desk.refused("topics", "--create", f"{topic}-new")


@pytest.mark.weekly
def test_application_is_reset_with_the_rights_of_the_page(desk: Desk) -> None:
    made = desk.site
    made.allow(lines_of(RESET))
    desk.streams.close(leave_group=True)
    done = desk.do("reset", "-a", made.id, "--yes")
    assert done.exit_code == 0, done.output
    assert f"{made.id} has been reset" in done.stdout


def test_warm_start_is_planned_with_the_rights_to_look_and_says_what_it_may_not_know(
    site: Callable[[], Site], tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    made = site()
    made.write("a")
    file, program = str(made.properties(made.login("SCRAM-SHA-512"))), tmp_path / "app.py"
    program.write_text(
        "from streams_py import StreamsBuilder, serdes\n"
        "builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)\n"
        f"builder.stream({made.input!r}).group_by(lambda _, word: word).count(store='counts')\n"
        "topology = builder.build()\n"
    )
    made.allow(lines_of(LOOKING))
    plan = ["bootstrap", "plan", f"{program}:topology", "--config", file, "--plan", str(tmp_path / "plan.json")]
    said = CliRunner().invoke(app, plan).output
    assert f"{made.input}: 1 records\n" in said
    assert "no right DESCRIBE on cluster" in said
    made.broker.allow(made.user, {Right("DESCRIBE", "CLUSTER", "kafka-cluster", prefixed=False)})
    again = CliRunner().invoke(app, plan).output
    assert f"{made.input}: 1 records, " in again
    assert "no right" not in again


def test_store_is_queried_by_the_application_without_another_right(site: Callable[[], Site]) -> None:
    made = site()
    keys = made.login("SCRAM-SHA-512")
    made.grant("An application")
    made.write("a", "b", "a")
    with made.streams(made.settings(keys)) as streams:
        made.until_counted({"a": 2, "b": 1})
        store = streams.store("counts")
        assert {word: store.get(word) for word in "ab"} == {"a": 2, "b": 1}


@pytest.mark.weekly
def test_spark_source_reads_with_the_rights_of_the_page(site: Callable[[], Site]) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    from pyspark.sql.datasource import CaseInsensitiveDict

    from streams_py.errors import StreamsError
    from streams_py.spark.kafka.source import StreamsKafkaSource

    made = site()
    keys = made.login("SCRAM-SHA-512")
    made.write("a", "b")
    options = {f"kafka.{key}": value for key, value in keys.items()} | {
        "topics": made.input,
        "allow.plain.secrets": "true",
    }

    def read() -> list[Any]:
        reader = StreamsKafkaSource(CaseInsensitiveDict(options)).reader(schema=None)
        rows = []
        for partition in reader.partitions():
            for batch in reader.read(partition):
                rows += batch.to_pylist()
        return rows

    with pytest.raises(StreamsError, match=made.input):
        read()
    made.allow(lines_of(READING))
    assert sorted(row["value"] for row in read()) == [b"a", b"b"]
