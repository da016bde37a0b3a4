"""The commands ``backfill`` and ``diff``."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner, Result

from streams_py.adapters.confluent.bulk import once_writer
from streams_py.cli.commands import app
from streams_py.cli.spark import history_inputs, history_options
from streams_py.cli.spark.output_folder import write_new
from streams_py.errors import ConfigError, StreamsError
from streams_py.history.backfill import BackfillPlan
from streams_py.spark.history.run import run
from tests.support.spark.cluster import Cluster
from tests.support.spark.source import read
from tests.support.system.file_locks import held_elsewhere
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

_numbers = itertools.count()
_PROGRAM = """
from streams_py import StreamsBuilder, serdes


def lengths(limit={limit}):
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream({lines!r}).map_values(lambda line: line.upper() if len(line) > limit else line).to({out!r})
    return builder.build()


def chosen():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream({lines!r}).to(lambda key, line, _: {out!r} if len(line) > 4 else {short!r})
    return builder.build()


def placed():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream({lines!r}).to({out!r}, partitioner=lambda *_: 2)
    return builder.build()


def seen():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream({lines!r}).peek(print).to({out!r})
    return builder.build()


def named():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    names = builder.global_table({short!r})
    lines = builder.stream({lines!r})
    lines.join(names, lambda line, name: line + name, on=lambda key, _: key).to({out!r})
    return builder.build()


def unnamed():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    names = builder.global_table({short!r})
    lines = builder.stream({lines!r})
    lines.join(names, lambda line, name: line + name, on=lambda key, line: None if len(line) > 4 else key).to({out!r})
    return builder.build()
"""


class Files:
    """Two versions of an application, its topics, and the commands."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.lines, self.out, self.short = cluster.topic(2), cluster.topic(3), cluster.topic(1)
        self.id = f"commands-{os.getpid()}-{next(_numbers)}"
        for name, limit in (("old", 4), ("new", 2)):
            text = _PROGRAM.format(limit=limit, lines=self.lines, out=self.out, short=self.short)
            (folder / f"{name}.py").write_text(text)

    def topology(self, version: str = "old", name: str = "lengths") -> str:
        return f"{self.folder / f'{version}.py'}:{name}"

    def produce(self, *texts: str, first_ms: int = 1_700_000_000_000) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap})
        for at, text in enumerate(texts):
            producer.produce(self.lines, text, f"k{at}", at % 2, timestamp=first_ms + at)
        assert producer.flush(30) == 0

    def do(self, command: str, *arguments: str, sinks: bool = False) -> Result:
        plan = ["--plan", str(self.folder / "plan.json")] if sinks else []
        return CliRunner().invoke(app, [command, *arguments, "--bootstrap", self.cluster.bootstrap, *plan])

    def backfill(self, *more: str) -> Result:
        return self.do("backfill", self.topology(), "--sinks", "--application-id", self.id, *more, sinks=True)

    def leave_unfinished(self) -> None:
        """Change the plan as if the command had been killed before its last step."""
        plan = BackfillPlan.load(self.folder / "plan.json")
        assert plan is not None
        replace(plan, done=False).save(self.folder / "plan.json")

    def await_written(self, wanted: Counter[bytes]) -> None:
        """The end of a transaction reaches the partitions a moment after its coordinator has answered."""
        found: Counter[bytes] = Counter()

        def complete() -> bool:
            rows = read({"kafka.bootstrap.servers": self.cluster.bootstrap, "topics": self.out})
            found.clear()
            found.update(row["value"] for row in rows)
            return found.total() >= wanted.total()

        until(complete, f"{wanted} in {self.out}")
        assert found == wanted


@pytest.fixture
def files(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> Files:
    return Files(cluster, tmp_path)


TEXTS = ["a", "bbb", "ccccc", "bbb", "dddddd"]
BY_OLD = Counter([b"a", b"bbb", b"CCCCC", b"bbb", b"DDDDDD"])


@pytest.mark.weekly
def test_backfill_writes_parquet_from_kafka_and_from_an_archive(files: Files, spark: SparkSession) -> None:
    files.produce(*TEXTS)
    done = files.do("backfill", files.topology(), "--out", str(files.folder / "made"), "--until", "1700000000004")
    assert done.exit_code == 0, done.output
    assert f"{files.out}: 4 records" in done.output
    assert os.listdir(files.folder / "made") == [files.out]
    made = spark.read.parquet(str(files.folder / "made" / files.out)).collect()
    assert Counter(bytes(row.value) for row in made) == BY_OLD - Counter([b"DDDDDD"])
    refused = files.do("backfill", files.topology(), "--out", str(files.folder / "made"))
    assert refused.exit_code == 2
    assert f"{files.out} exists" in refused.output
    assert "stages" not in refused.output, "said before anything is done"
    archive = str(files.folder / "archive")
    spark.read.format("streams-kafka").options(
        **{"kafka.bootstrap.servers": files.cluster.bootstrap, "topics": files.lines}
    ).load().write.parquet(archive)
    arguments = ("--out", str(files.folder / "again"), "--input", f"{files.lines}={archive}")
    assert files.do("backfill", files.topology(), *arguments).exit_code == 0
    again = spark.read.parquet(str(files.folder / "again" / files.out)).collect()
    assert Counter(bytes(row.value) for row in again) == BY_OLD
    few = ("--input", f"{files.lines}={archive}", "--partitions", f"{files.lines}=1")
    for command in (
        ("backfill", files.topology(), "--out", str(files.folder / "few"), *few),
        ("diff", files.topology("old"), files.topology("new"), *few),
    ):
        refused = files.do(*command)
        assert refused.exit_code == 1
        assert "has records of partition 1, but its partition count is 1" in refused.output
    more = (*few[:-1], f"{files.lines}=5")
    assert files.do("diff", files.topology(), files.topology(), *more).exit_code == 0


def test_topics_that_a_function_chooses_are_named(files: Files) -> None:
    files.produce(*TEXTS)
    arguments = [files.topology(name="chosen"), "--sinks", "--application-id", files.id]
    refused = files.do("backfill", *arguments, sinks=True)
    assert refused.exit_code == 2
    assert "name all topics that it may choose as outputs (--output, or partitions=)" in refused.output
    some = files.do("backfill", *arguments, "--output", files.out, sinks=True)
    assert some.exit_code == 1
    assert f"chose topic {files.short}" in some.output
    outputs = ("--output", files.out, "--output", files.short)
    done = files.do("backfill", *arguments, *outputs, sinks=True)
    assert done.exit_code == 0, done.output
    files.await_written(Counter([b"ccccc", b"dddddd"]))
    same = files.do("diff", files.topology(name="chosen"), files.topology(name="chosen"), *outputs)
    assert same.exit_code == 0, same.output
    assert f"{files.short}: 3 records the same" in same.output


def test_outputs_in_files_have_the_partitions_that_are_said(files: Files, spark: SparkSession) -> None:
    files.produce(*TEXTS)
    topology, out = files.topology(name="placed"), str(files.folder / "made")
    refused = files.do("backfill", topology, "--out", out)
    assert f"chose partition 2 of {files.out}, which has 2" in refused.output
    said = ("--partitions", f"{files.out}=3")
    done = files.do("backfill", topology, "--out", out, *said)
    assert done.exit_code == 0, done.output
    assert {row.partition for row in spark.read.parquet(f"{out}/{files.out}").collect()} == {2}
    same = files.do("diff", topology, topology, *said)
    assert same.exit_code == 0, same.output
    assert f"{files.out}: 5 records the same" in same.output
    refused = files.do("backfill", topology, "--sinks", *said, sinks=True)
    assert refused.exit_code == 2
    assert f"--partitions {files.out}: the topic is not read from an archive (--input)" in refused.output


@pytest.mark.weekly
def test_archive_that_topics_would_not_keep_is_refused_and_leaves_no_plan(files: Files, spark: SparkSession) -> None:
    files.produce(*TEXTS)
    archive = str(files.folder / "archive")
    options = {"kafka.bootstrap.servers": files.cluster.bootstrap, "topics": files.lines}
    spark.read.format("streams-kafka").options(**options).load().write.parquet(archive)
    files.cluster.set_config(files.out, retention_ms="86400000")
    given = ("--input", f"{files.lines}={archive}")
    refused = files.backfill(*given)
    assert refused.exit_code == 2, refused.output
    assert f"the archive of {files.lines} has older records" in refused.output
    assert not (files.folder / "plan.json").exists()
    files.cluster.set_config(files.out, retention_ms="-1", retention_bytes="9")
    refused = files.backfill(*given)
    assert refused.exit_code == 2, refused.output
    assert f"topic {files.out} keeps 9 bytes of each of its " in refused.output
    assert f"the archives have {sum(len(text) + 2 for text in TEXTS)} bytes of keys and values" in refused.output
    assert not (files.folder / "plan.json").exists()
    assert files.backfill(*given, "--accept-retention").exit_code == 0


def test_backfill_to_topics_writes_every_record_once_also_when_it_is_repeated(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.produce(*TEXTS)
    asked: list[object] = []
    check = history_options.check_answers

    def counted(settings: Any) -> None:
        asked.append(settings)
        check(settings)

    for module in (history_inputs, history_options):
        monkeypatch.setattr(module, "check_answers", counted)
    done = files.backfill("--option", "poll.timeout.ms=50000", "--option", "flush.timeout.ms=50000")
    assert done.exit_code == 0, done.output
    assert len(asked) == 1, "whether the cluster answers"
    files.await_written(BY_OLD)
    refused = files.backfill()
    assert refused.exit_code == 2
    assert "is complete" in refused.output
    files.leave_unfinished()
    files.produce("later")  # beyond the plan
    again = files.backfill()
    assert again.exit_code == 0, again.output
    assert "5 records existed already" in again.output
    files.await_written(BY_OLD)
    files.leave_unfinished()
    other = files.backfill("--until", "1700000000002")
    assert other.exit_code == 2
    assert "with another topology, application.id or --until" in other.output


def test_backfill_does_not_go_on_to_a_topic_that_was_created_again(files: Files) -> None:
    files.produce(*TEXTS)
    assert files.backfill().exit_code == 0
    plan = files.folder / "plan.json"
    files.leave_unfinished()
    begun = plan.read_text()
    files.cluster.delete(files.out)
    files.cluster.topic(3, name=files.out)
    refused = files.backfill()
    assert refused.exit_code == 2
    assert f"started with another topic {files.out}: it was deleted and created again" in refused.output
    assert plan.read_text() == begun
    files.cluster.add_partitions(files.lines, 4)
    grown = files.backfill()
    assert grown.exit_code == 2
    assert f"started when {files.lines} had 2 partitions, but it has 4 now" in grown.output


def test_backfill_does_not_go_on_when_brokers_have_forgotten_how_far_it_is(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once_writer, "_PATIENCE_S", 0.5)
    files.produce(*TEXTS)
    assert files.backfill().exit_code == 0
    files.await_written(BY_OLD)
    plan = files.folder / "plan.json"
    begun = json.loads(plan.read_text())
    assert len(begun["writers"]) == 2, "a task for each partition of the input"
    files.leave_unfinished()
    admin = AdminClient({"bootstrap.servers": files.cluster.bootstrap})
    for forgotten in admin.delete_consumer_groups(begun["writers"][1:]).values():
        forgotten.result(30)
    refused = files.backfill()
    assert refused.exit_code == 1, refused.output
    assert f"brokers have no committed position of {begun['writers'][1]}" in refused.output
    assert "stage" not in refused.output, "said before anything is done"
    files.await_written(BY_OLD)


def test_backfill_that_fails_when_it_has_begun_to_write_says_how_it_goes_on(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StreamsError("the outputs are not complete: a broker is away")

    files.produce(*TEXTS)
    with monkeypatch.context() as while_it_is_away:
        while_it_is_away.setattr("streams_py.spark.history.sinks.write_sinks", fails)
        failed = files.backfill()
    assert failed.exit_code == 1
    assert "broker is away; the written records stay; fix the error and repeat the command to continue" in failed.output
    assert files.backfill().exit_code == 0
    files.await_written(BY_OLD)


def test_end_of_a_partition_that_a_topic_does_not_have_is_refused(files: Files, spark: SparkSession) -> None:
    files.produce(*TEXTS)
    options = {"kafka.bootstrap.servers": files.cluster.bootstrap}
    with pytest.raises(ConfigError, match=f"until: topic {files.lines} has no partition 2, only 0 to 1$"):
        run(files.topology(), options, until={files.lines: {0: 1, 2: 1}}, spark=spark)
    ends = {files.short: {1: 1}}
    with pytest.raises(ConfigError, match=f"until: topic {files.short} has no partition 1, only 0 to 0$"):
        run(files.topology(name="named"), options, until=ends, global_tables="as-of-end", spark=spark)
    with run(files.topology(), options, until={files.lines: {0: 1}}, spark=spark) as results:
        assert Counter(bytes(row.value) for row in results.sinks[files.out].collect()) == BY_OLD - Counter(
            [b"CCCCC", b"DDDDDD"]
        )


def test_folder_that_another_run_has_is_refused_before_there_is_a_plan(files: Files) -> None:
    with held_elsewhere(files.folder / ".lock") as holder:
        for command in (("--sinks",), ("--out", str(files.folder / "made"))):
            refused = files.do(
                "backfill", files.topology(), *command, "--work", str(files.folder), sinks="--sinks" in command
            )
            assert refused.exit_code == 2, refused.output
            assert f"--work: process {holder.pid} has a run in {files.folder}" in refused.output
    assert not (files.folder / "plan.json").exists()


def test_folder_that_another_backfill_writes_to_is_refused_before_anything_is_done(files: Files) -> None:
    files.produce(*TEXTS)
    made = files.folder / "made"
    made.mkdir()
    with held_elsewhere(made / ".lock") as holder:
        refused = files.do("backfill", files.topology(), "--out", str(made))
        assert refused.exit_code == 2, refused.output
        assert f"--out: process {holder.pid} writes a backfill to {made}; stop it, or wait until" in refused.output
        assert "stage" not in refused.output
    done = files.do("backfill", files.topology(), "--out", str(made))
    assert done.exit_code == 0, done.output
    assert os.listdir(made) == [files.out]


def test_topics_without_records_make_no_outputs(files: Files) -> None:
    done = files.backfill()
    assert done.exit_code == 0, done.output
    assert f"{files.out}: 0 records" in done.output
    same = files.do("diff", files.topology("old"), files.topology("new"), "--last", "1h")
    assert same.exit_code == 0, same.output
    assert f"{files.out}: 0 records the same, 0 only old, 0 only new" in same.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "choose where to write outputs"),
        (("--out", "x", "--sinks"), "choose where to write outputs"),
        (("--out", "x", "--input", "other=y"), "--input other: "),
        (("--out", "x", "--input", "other"), "expected TOPIC=PATH"),
        (("--out", "x", "--input", "a=b", "--input", "a=c"), "--input a: given twice"),
    ],
)
def test_backfill_that_cannot_be_is_refused_in_one_sentence(files: Files, arguments: Any, said: str) -> None:
    refused = files.do("backfill", files.topology(), *arguments)
    assert refused.exit_code == 2
    assert said in refused.output


def test_folder_that_cannot_be_written_is_refused_before_anything_is_done(files: Files) -> None:
    files.produce(*TEXTS)
    (files.folder / "letter").write_text("dear")
    out = str(files.folder / "letter" / "made")
    refused = files.do("backfill", files.topology(), "--out", out)
    assert refused.exit_code == 2, refused.output
    assert f"--out: {out} cannot be written (" in refused.output
    assert "stage" not in refused.output


def test_outputs_are_all_there_or_none(spark: SparkSession, tmp_path: Path) -> None:
    def fails(_: Any) -> Any:
        raise ValueError("no more room")

    out = tmp_path / "made"
    sinks = {"whole": spark.range(3).toDF("n"), "half": spark.range(3).mapInArrow(fails, "n bigint")}
    with pytest.raises(Exception, match="no more room"):
        write_new(spark, str(out), sinks)
    assert not out.exists()
    (out / "half").mkdir(parents=True)
    with pytest.raises(ConfigError, match="half exists; name another folder"):
        write_new(spark, str(out), sinks)
    assert [place.name for place in out.iterdir()] == ["half"], "somebody else's stays"


def test_outputs_that_cannot_be_taken_back_are_said_to_be_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: Any) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("streams_py.spark.jobs.end_jobs", gone)
    out = tmp_path / "made"
    half = spark.range(3).selectExpr("raise_error('no more room') AS n")
    with pytest.raises(StreamsError, match=f"no more room.*; the outputs in {out} are not complete; delete them"):
        write_new(spark, str(out), {"whole": spark.range(3).toDF("n"), "half": half})
    assert (out / "whole").exists()


def test_global_table_is_allowed_as_it_is_at_the_end_and_said_so(files: Files) -> None:
    files.produce(*TEXTS)
    names = {b"k0": b"!", b"k1": b"?", b"k2": None}
    producer = Producer({"bootstrap.servers": files.cluster.bootstrap})
    for key, name in [(b"k0", b"old"), (b"k2", b"gone"), *names.items()]:
        producer.produce(files.short, name, key)
    assert producer.flush(30) == 0
    arguments = [files.topology(name="named"), "--sinks", "--application-id", files.id]
    refused = files.do("backfill", *arguments, sinks=True)
    assert refused.exit_code == 2
    assert "--global-tables as-of-end" in refused.output
    wrong = files.do("backfill", *arguments, "--global-tables", "now", sinks=True)
    assert wrong.exit_code == 2
    assert "the only supported value is as-of-end" in wrong.output
    done = files.do("backfill", *arguments, "--global-tables", "as-of-end", sinks=True)
    assert done.exit_code == 0, done.output
    assert f"global table of topic {files.short}: all records are joined with its final state" in done.output
    files.await_written(Counter([b"a!", b"bbb?"]))
    same = files.do("diff", *[files.topology(name="named")] * 2, "--global-tables", "as-of-end", "--last", "1h")
    assert same.exit_code == 0, same.output
    assert f"{files.out}: 2 records the same" in same.output


def test_records_that_were_dropped_are_counted(files: Files) -> None:
    files.produce(*TEXTS)
    arguments = (files.topology("old", "unnamed"), "--out", str(files.folder / "made"), "--global-tables", "as-of-end")
    done = files.do("backfill", *arguments)
    assert done.exit_code == 0, done.output
    assert "sub-topology 1 dropped 2 records, as a live application would" in done.output


def test_what_is_refused_leaves_no_plan(files: Files) -> None:
    arguments = ("--sinks", "--application-id", files.id)
    refused = files.do("backfill", files.topology("old", "seen"), *arguments, sinks=True)
    assert refused.exit_code == 2
    assert "called again" in refused.output
    files.cluster.delete(files.out)
    missing = files.backfill()
    assert missing.exit_code == 2
    assert f"output topic {files.out} does not exist" in missing.output
    assert not (files.folder / "plan.json").exists()


@pytest.mark.weekly
def test_diff_counts_what_differs_and_ends_with_status_1(files: Files) -> None:
    files.produce(*TEXTS)
    report = files.folder / "report.json"
    done = files.do("diff", files.topology("old"), files.topology("new"), "--sample", "1", "--report", str(report))
    assert done.exit_code == 1, done.output
    assert f"{files.out}: 3 records the same, 2 only old, 2 only new" in done.output
    assert done.output.count("'value'") == 1
    found = json.loads(report.read_text())[files.out]
    assert (found["same"], found["only_old"], found["only_new"]) == (3, 2, 2)
    assert {row["value"] for _, row in found["sample"]} <= {"bbb", "BBB"}
    same = files.do("diff", files.topology("old"), files.topology("old"))
    assert same.exit_code == 0, same.output
    files.produce("bbb", first_ms=1_700_000_000_000 + 86_400_000)
    newest = files.do("diff", files.topology("old"), files.topology("new"), "--last", "1h")
    assert f"{files.out}: 0 records the same, 1 only old, 1 only new" in newest.output
    wrong = files.do("diff", files.topology("old"), files.topology("new"), "--last", "soon")
    assert wrong.exit_code == 2
    assert "use for example 1d" in wrong.output
    lost = files.do("diff", files.topology("old"), files.topology("new"), "--report", "nowhere/report.json")
    assert lost.exit_code == 2
    assert "folder nowhere does not exist" in lost.output
    folder = files.do("diff", files.topology("old"), files.topology("new"), "--report", str(files.folder))
    assert folder.exit_code == 2
    assert "is a folder; name a file" in folder.output


def test_diff_reads_the_same_records_twice_while_more_come(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    from streams_py.spark.history import compare

    files.produce(*TEXTS)

    def run_while_more_comes(*arguments: Any, **given: Any) -> Any:
        files.produce("bbb", "bbb")
        return run(*arguments, **given)

    monkeypatch.setattr(compare, "run", run_while_more_comes)
    same = files.do("diff", files.topology("old"), files.topology("old"))
    assert same.exit_code == 0, same.output
    assert f"{files.out}: 5 records the same, 0 only old, 0 only new" in same.output
