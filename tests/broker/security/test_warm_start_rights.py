"""Warm start and backfill with the minimum rights of the page, step by step; a missing right is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

from streams_py.cli.commands import app
from tests.support.broker.rights import Line, lines_of
from tests.support.broker.site import PASSWORD, Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytestmark = [pytest.mark.timeout(900)]

RUN, VERIFY, COMMIT, ABORT, BACKFILL = (
    "Warm start",
    "Verify of a warm start",
    "Commit of a warm start",
    "Abort of a warm start",
    "Backfill of topics",
)
_PROGRAM = """
from streams_py import StreamsBuilder, serdes


def topology():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    counts = builder.stream({input!r}).group_by(lambda _, word: word).count(store="counts")
    counts.to_stream().to({output!r}, value=serdes.INT64)
    return builder.build()
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """One session for all commands: they take the active one."""
    from streams_py.spark.session import spark_session

    session = spark_session("streams-py tests", master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


class Desk:
    """An application with some input that has never run, and a user who gets rights one after the other."""

    def __init__(self, made: Site, folder: Path) -> None:
        self.site = made
        made.write("a", "b", "a")
        self._file = made.properties(made.login("SCRAM-SHA-512"))
        self._program = folder / "app.py"
        self._program.write_text(_PROGRAM.format(input=made.input, output=made.output))
        secret = folder / "password"
        secret.write_text(PASSWORD)
        self._secret = ["--option", f"kafka.sasl.password=file:{secret}"]
        self._folder = folder

    def done(self, *arguments: str) -> Any:
        return CliRunner().invoke(app, [*arguments, "--config", str(self._file), "--plan", str(self._folder / "plan")])

    def step(self, name: str) -> Any:
        """A step of a warm start."""
        on_spark = self._secret if name in ("run", "verify") else []
        return self.done("bootstrap", name, *on_spark)

    def backfill(self) -> Any:
        return self.done("backfill", f"{self._program}:topology", "--sinks", *self._secret)

    def up_to(self, name: str) -> None:
        """Take the steps before this one, with every right, which is taken away again."""
        granted = [line.right(self.site.names) for line in {*lines_of(RUN), *lines_of(VERIFY), *_PLANNING}]
        self.site.broker.allow(self.site.user, granted)
        planned = self.done("bootstrap", "plan", f"{self._program}:topology")
        assert planned.exit_code == 0, planned.output
        for earlier in _BEFORE[name]:
            done = self.step(earlier)
            assert done.exit_code == 0, done.output
        if name == "abort":
            self._start_too_early()
        self.site.broker.withdraw(self.site.user, granted)

    def _start_too_early(self) -> None:
        """As if the application had run on top of the changelogs: it has committed something."""
        settings = {"bootstrap.servers": self.site.broker.bootstrap, "group.id": self.site.id}
        consumer = Consumer(settings)
        consumer.commit(offsets=[TopicPartition(self.site.input, 0, 1)], asynchronous=False)
        consumer.close()


_PLANNING = lines_of("Looking at a group")
_BEFORE = {"run": (), "verify": ("run",), "commit": ("run", "verify"), "abort": ("run",)}
_HEADINGS = {"run": RUN, "verify": VERIFY, "commit": COMMIT, "abort": ABORT}
_QUICK = {"commit-READ-group-<application.id>", "abort-DELETE-topic-<application.id>"}


@pytest.fixture
def desk(site: Callable[[], Site], spark: SparkSession, tmp_path: Path) -> Desk:
    return Desk(site(), tmp_path)


@pytest.mark.parametrize("name", ["run", "verify", "commit", "abort"])
def test_step_is_taken_with_the_rights_of_the_page(desk: Desk, name: str) -> None:
    desk.up_to(name)
    desk.site.grant(_HEADINGS[name])
    done = desk.step(name)
    assert done.exit_code == 0, done.output


def _one_line_less() -> Iterator[Any]:
    for name, heading in _HEADINGS.items():
        for line in lines_of(heading):
            id = f"{name}-{line.id}"
            yield pytest.param(name, line, id=id, marks=[] if id in _QUICK else [pytest.mark.weekly])


def _is_named(line: Line, made: Site, text: str) -> bool:
    """READ, WRITE and DELETE include DESCRIBE, which is asked for before; a topic that may not be seen is as if it were
    not there."""
    name = line.right(made.names).name
    rights = {line.operation, "DESCRIBE"}
    is_named = any(f"no right {right} on {line.kind}" in text for right in rights)
    is_unseen = line.kind == "topic" and "not found" in text and "whether the user may describe it" in text
    return (is_named or is_unseen) and name.rstrip("-") in text


@pytest.mark.parametrize(("name", "line"), list(_one_line_less()))
def test_right_that_a_step_lacks_is_named(desk: Desk, name: str, line: Line) -> None:
    desk.up_to(name)
    desk.site.grant(_HEADINGS[name], but=line)
    refused = desk.step(name)
    (sentence,) = refused.stderr.splitlines()
    assert refused.exit_code in (1, 2)
    assert _is_named(line, desk.site, sentence), sentence


def test_outputs_are_written_with_the_rights_of_the_page(desk: Desk) -> None:
    desk.site.grant(BACKFILL)
    done = desk.backfill()
    assert done.exit_code == 0, done.output
    desk.site.until_counted({"a": 2, "b": 1})


@pytest.mark.parametrize(
    "line", [pytest.param(line, id=line.id, marks=pytest.mark.weekly) for line in lines_of(BACKFILL)]
)
def test_right_that_a_backfill_lacks_is_named(desk: Desk, line: Line) -> None:
    desk.site.grant(BACKFILL, but=line)
    refused = desk.backfill()
    (sentence,) = refused.stderr.splitlines()
    assert refused.exit_code in (1, 2)
    assert _is_named(line, desk.site, sentence), sentence
