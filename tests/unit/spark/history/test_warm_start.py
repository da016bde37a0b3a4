"""A warm start makes all checks before it changes anything."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.answers import TopicRetention
from streams_py.cli.spark import bootstrap
from streams_py.cli.spark.bootstrap import bootstrap_app
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.history.bootstrap import BootstrapPlan, Step
from streams_py.history.bootstrap_planning import BootstrapAllowances, make_plan
from streams_py.history.bootstrap_topics import check_topics
from streams_py.history.loading import load_topology
from streams_py.spark.history import warm_start
from streams_py.spark.history.warm_start import verify_changelogs, write_changelogs
from tests.support.history.bootstrap import APP, CHANGELOG, CONFIG, Cluster

_PROGRAM = """
from streams_py import StreamsBuilder, serdes


def topology():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    lines = builder.stream("lines")
    lines.group_by_key().count(store="counts")
    lines.peek(print).to("out")
    return builder.build()
"""


class Connected(Cluster):
    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A plan that allows side effects, of a topology that has some."""
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    name = f"{program}:topology"
    allowed = BootstrapAllowances(side_effects=True)
    plan, _ = make_plan(name, load_topology(name), APP, CONFIG, Cluster(), allowed)
    plan.save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def refused(
    file: Path,
    cluster: Cluster,
    *,
    master: str = "local[1]",
    sinks: bool = False,
    options: Mapping[str, str] = MappingProxyType({}),
    **conf: str,
) -> str:
    settings = {key.replace("_", "."): value for key, value in conf.items()}
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master, getConf=lambda: settings))
    before = file.read_text()
    with pytest.raises(StreamsError) as error:
        write_changelogs(spark, file, CONFIG, cluster, {"kafka.bootstrap.servers": "none:1", **options}, sinks=sinks)
    assert (file.read_text(), cluster.done) == (before, [])
    return str(error.value)


def test_topology_that_may_not_run_is_refused_before_anything_is_changed(file: Path) -> None:
    plan = BootstrapPlan.load(file)
    assert plan.side_effects, "what is allowed is in the plan"
    replace(plan, side_effects=False).save(file)
    assert "is called again when Spark repeats a task" in refused(file, Cluster())


def test_folder_or_topic_that_is_missing_is_named_before_anything_is_changed(file: Path) -> None:
    assert "output topic out does not exist" in refused(file, Cluster(), sinks=True)
    assert "name a folder that all machines share" in refused(file, Cluster(), master="spark://host:7077")


def test_two_attempts_at_once_are_refused_before_anything_is_changed(file: Path) -> None:
    assert "spark.speculation is true" in refused(file, Cluster(), spark_speculation="true")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("flush.timeout.ms", "soon", "flush.timeout.ms = 'soon' is not valid"),
        ("kafka.acks", "1", "kafka.acks cannot be set"),
        ("split.records", "5", "split.records splits partitions"),
        ("push.filters", "true", "push.filters may leave records out"),
        ("poll.timeout.mx", "5", "unknown option poll.timeout.mx: did you mean poll.timeout.ms?"),
    ],
)
def test_option_that_no_client_takes_is_refused_before_anything_is_changed(
    file: Path, key: str, value: str, said: str
) -> None:
    assert said in refused(file, Cluster(), options={key: value})


def test_records_that_were_deleted_since_the_plan_are_named_unless_they_may_be_passed_over(file: Path) -> None:
    cluster = Cluster()
    cluster.logs[TopicPartition("lines", 1)] = (3, 7)
    gone = "topic lines-1: its first 3 offsets are deleted now, but only 0 were when the plan was made; plan again, or"
    assert gone in refused(file, cluster)
    check_topics(BootstrapPlan.load(file), cluster, skip_gone=True)
    cluster.topics[CHANGELOG] = 1
    other = refused(file, cluster, options={"on.gone": "skip"})
    assert "are deleted now" not in other
    assert f"topic {CHANGELOG}: it has 1 partitions" in other


def test_output_that_was_created_again_since_an_earlier_attempt_is_refused(file: Path) -> None:
    cluster = Cluster()
    cluster.topics["out"] = 1
    plan = BootstrapPlan.load(file)
    plan.writing_to(cluster.topic_ids(["out"])).save(file)
    cluster.create_again("out")
    assert "topic out: it was deleted and created again" in refused(file, cluster, sinks=True)


def test_functions_choose_among_the_partitions_that_topics_have_whether_outputs_are_written_or_not(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Mapping[str, int]] = []

    def ask(*_: object, partitions: Mapping[str, int], **__: object) -> NothingLeft:
        asked.append(partitions)
        raise StreamsError("that is all")

    cluster = Cluster()
    cluster.topics |= {"out": 12, "chosen": 5}
    plan = replace(BootstrapPlan.load(file), outputs=["chosen", "missing"])
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[1]", getConf=dict))
    monkeypatch.setattr(warm_start, "register", lambda _: None)
    monkeypatch.setattr(warm_start, "run", ask)
    plan.save(file)
    with pytest.raises(StreamsError, match="that is all"):
        write_changelogs(spark, file, CONFIG, cluster, {"kafka.bootstrap.servers": "none:1"})
    assert asked == [{"out": 12, "chosen": 5, "missing": 1}]


class NothingLeft:
    """Results without state."""

    changelogs: Mapping[str, Any] = MappingProxyType({})
    read_of_tables: Mapping[Any, int] = MappingProxyType({})

    def __enter__(self) -> NothingLeft:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def summaries(self) -> Mapping[str, Any]:
        return {}

    def dropped(self) -> Mapping[int, int]:
        return {}


def test_outputs_that_were_written_in_part_are_completed_before_anything_is_committed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_cut_off(*_: object) -> None:
        begun = BootstrapPlan.load(file)
        assert (begun.outputs_begun, begun.written_to) == (True, ["out"]), "the plan says so before the first record"
        raise StreamsError("the outputs are not complete")

    def run_with_outputs() -> None:
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[1]", getConf=dict))
        write_changelogs(spark, file, CONFIG, cluster, {"kafka.bootstrap.servers": "none:1"}, sinks=True)

    cluster = Cluster()
    cluster.topics["out"] = 1
    for name, made in {
        "register": None,
        "announce_sinks": ["writer"],
        "check_writers": None,
        "_kept": ({}, {}),
    }.items():
        monkeypatch.setattr(warm_start, name, lambda *_, made=made: made)
    monkeypatch.setattr(warm_start, "run", lambda *_, **__: NothingLeft())
    monkeypatch.setattr(warm_start, "write_sinks", is_cut_off)
    with pytest.raises(StreamsError, match="are not complete"):
        run_with_outputs()
    BootstrapPlan.load(file).aborted().save(file)
    cluster.done.clear()
    said = refused(file, cluster)
    assert "has written some outputs, and abort does not delete them" in said
    assert "pass --sinks, which writes the missing outputs, or leave the plan aborted" in said
    monkeypatch.setattr(warm_start, "write_sinks", lambda *_: [])
    run_with_outputs()
    complete = BootstrapPlan.load(file).aborted()
    complete.check_outputs(sinks=False)


def test_plan_over_an_aborted_one_knows_what_that_has_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Connected()
    cluster.topics["out"] = 1
    cluster.logs[TopicPartition("out", 0)] = (0, 5)
    replace(BootstrapPlan.load(file), step=Step.RUNNING, written_to=["out"]).save(file)
    monkeypatch.setattr(bootstrap, "connected", lambda settings: closing(cluster))
    aborted = CliRunner(env={"COLUMNS": "400"}).invoke(bootstrap_app, ["abort", "--plan", str(file)])
    assert "outputs in out stay: `run --sinks` of this plan skips the outputs that are written" in aborted.stdout
    left = BootstrapPlan.load(file)
    asked = ["plan", left.topology, "--application-id", APP, "--plan", str(file), "--allow-side-effects"]
    done = CliRunner(env={"COLUMNS": "400"}).invoke(bootstrap_app, asked)
    assert done.exit_code == 2
    assert f"topic out: the aborted warm start ({left.id}) has written outputs to it" in done.stderr
    assert BootstrapPlan.load(file) == left


def test_plan_says_what_topics_would_delete(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Connected()
    cluster.topics |= {"out": 1, CHANGELOG: 2}
    cluster.kept = {"out": TopicRetention(-1, 999), CHANGELOG: TopicRetention(60_000, -1)}
    monkeypatch.setattr(bootstrap, "connected", lambda settings: closing(cluster))
    again = str(BootstrapPlan.load(file).topology)
    asked = ["plan", again, "--application-id", APP, "--plan", str(file), "--allow-side-effects"]
    done = CliRunner(env={"COLUMNS": "400"}).invoke(bootstrap_app, asked)
    assert done.exit_code == 0, done.output
    for said in (
        f"`run` will be refused: topic {CHANGELOG} keeps records for 0:01:00 (its retention.ms = 60000), but",
        "`run --sinks` will be refused: topic out keeps 999 bytes of each of its 1 partitions (its retention.bytes = ",
    ):
        assert said in done.stdout
    cluster.kept = {}
    assert "will be refused" not in CliRunner().invoke(bootstrap_app, asked).stdout


def test_changelog_that_was_filled_since_is_named_before_anything_is_changed(file: Path) -> None:
    cluster = Cluster()
    cluster.topics[CHANGELOG] = 2
    cluster.logs[TopicPartition(CHANGELOG, 0)] = (0, 1)
    assert f"topic {CHANGELOG}: it is not empty" in refused(file, cluster)


def test_plan_is_not_verified_any_more_when_its_changelogs_have_changed_since(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {f"{CHANGELOG}-0": (4, 99)}
    replace(BootstrapPlan.load(file), step=Step.WRITTEN, written=dict(found)).save(file)
    reader = SimpleNamespace(format=lambda _: SimpleNamespace(options=lambda **_: SimpleNamespace(load=lambda: None)))
    monkeypatch.setattr(warm_start, "register", lambda _: None)
    monkeypatch.setattr(warm_start, "_sums_of_all", lambda *_: found)  # no Spark
    spark: Any = SimpleNamespace(read=reader)
    for _ in range(2):
        verify_changelogs(spark, file, CONFIG, {"kafka.bootstrap.servers": "none:1"})
        assert BootstrapPlan.load(file).step is Step.VERIFIED
    found.clear()  # the topic has deleted them
    with pytest.raises(StreamsError, match=f"{CHANGELOG}-0 does not contain the 4 written records"):
        verify_changelogs(spark, file, CONFIG, {"kafka.bootstrap.servers": "none:1"})
    assert BootstrapPlan.load(file).step is Step.WRITTEN, "nothing can be committed"


@pytest.mark.parametrize(
    ("command", "step", "begun", "said"),
    [
        (
            "run",
            Step.PLANNED,
            Step.RUNNING,
            "no answer came; the warm start of shop is running: it was interrupted, so",
        ),
        ("run", Step.PLANNED, Step.PLANNED, "no answer came\n"),
        ("run", Step.RUNNING, Step.RUNNING, "the warm start of shop is running: it was interrupted, so abort it and"),
        ("commit", Step.VERIFIED, Step.COMMITTING, "no answer came; the warm start of shop is being committed: it was"),
    ],
)
def test_step_that_fails_says_what_it_has_left_and_what_to_do(
    file: Path, monkeypatch: pytest.MonkeyPatch, command: str, step: Step, begun: Step, said: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        replace(BootstrapPlan.load(file), step=begun).save(file)
        raise BrokerUnavailableError("no answer came")

    replace(BootstrapPlan.load(file), step=step).save(file)
    monkeypatch.setattr(bootstrap, "connected", lambda settings: closing(Connected()))
    monkeypatch.setattr(bootstrap, "spark_of", lambda *_: nullcontext())
    monkeypatch.setattr(warm_start, "write_changelogs", fails)
    monkeypatch.setattr("streams_py.history.bootstrap_ends.commit", fails)
    done = CliRunner(env={"COLUMNS": "400"}).invoke(bootstrap_app, [command, "--plan", str(file)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {said}")
