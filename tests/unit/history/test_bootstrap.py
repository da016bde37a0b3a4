"""The steps of a warm start against a cluster in memory: their refusals, their changes, and the order of changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from streams_protocol.types import TopicPartition
from streams_py import StreamsBuilder, Topology, serdes
from streams_py.errors import BrokerUnavailableError, ConfigError, StreamsError
from streams_py.history.bootstrap import BootstrapPlan, Step, check_cluster, check_file_is_free
from streams_py.history.bootstrap_ends import abort, check_not_started, commit
from streams_py.history.bootstrap_planning import BootstrapAllowances, make_plan
from streams_py.history.bootstrap_topics import check_topics, check_written, prepare, written
from streams_py.history.refuse import RefusedTopologyError
from streams_py.ports.described_groups import DescribedMember
from tests.support.history.bootstrap import (
    APP,
    BETWEEN,
    CHANGELOG,
    CONFIG,
    Cluster,
    at_step,
    chosen,
    planned,
    word_count,
)


def refusal(cluster: Cluster, **allowed: bool) -> str:
    with pytest.raises(RefusedTopologyError) as refused:
        planned(cluster, **allowed)
    return str(refused.value)


def member() -> DescribedMember:
    return DescribedMember("m-1", None, "worker-7", "/host", b"", b"")


def test_everything_that_stands_against_it_is_said_at_once() -> None:
    cluster = Cluster()
    cluster.topics |= {BETWEEN: 5, CHANGELOG: 2}
    cluster.logs[TopicPartition(CHANGELOG, 1)] = (0, 3)
    cluster.logs[TopicPartition("lines", 0)] = (2, 5)
    cluster.offsets[TopicPartition("lines", 1)] = 4
    text = refusal(cluster)
    for part in (
        f"topic {BETWEEN}: it has 5 partitions, but needs 2; reset the application",
        f"topic {CHANGELOG}: it is not empty; delete it with --replace",
        "topic lines-0: its first 2 offsets are deleted; accept that with --accept-partial-history",
        "group shop: it has committed offsets (lines-1 at 4); delete them with --replace",
    ):
        assert part in text
    assert text.startswith("app:topology cannot start warm:\n"), "the topology can be run"
    assert "it has 5 partitions" in refusal(cluster, replace=True, partial_history=True)
    del cluster.topics["lines"]
    assert "topic lines: it does not exist" in refusal(cluster)
    assert cluster.done == []


def test_topics_of_unequal_partitions_are_named_with_all_the_rest() -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("lines").join(builder.table("names"), lambda line, name: line + name).peek(print).to("out")
    cluster = Cluster()
    cluster.topics["names"] = 3
    cluster.running = [member()]
    with pytest.raises(RefusedTopologyError) as refused:
        make_plan("app:topology", builder.build(), APP, CONFIG, cluster, BootstrapAllowances())
    for part in ("lines (2), names (3)", "called again", "1 members run"):
        assert part in str(refused.value)


def test_topics_that_a_function_chooses_are_named_for_the_whole_warm_start() -> None:
    with pytest.raises(RefusedTopologyError, match=r"chooses the topic.*\(--output, or partitions=\)"):
        make_plan("app:topology", chosen(), APP, CONFIG, Cluster(), BootstrapAllowances())
    plan, _ = make_plan("app:topology", chosen(), APP, CONFIG, Cluster(), BootstrapAllowances(outputs=["errors"]))
    assert plan.outputs == ["errors"]


def test_plan_is_for_one_cluster() -> None:
    cluster = Cluster()
    plan = planned(cluster)
    check_cluster(plan, cluster)
    cluster.name = None
    check_cluster(plan, cluster)
    cluster.name = "two"
    with pytest.raises(ConfigError, match="planned for cluster one, but this is cluster two"):
        check_cluster(plan, cluster)


def test_group_with_members_is_refused_whatever_is_allowed(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.running = [member()]
    assert "group shop: 1 members run (worker-7); stop the application" in refusal(
        cluster, replace=True, partial_history=True
    )
    cluster.running = []
    plan = replace(planned(cluster), step=Step.RUNNING)
    cluster.running = [member()]
    file = tmp_path / "plan.json"
    for step in (check_not_started, abort, lambda plan, cluster: commit(plan, file, cluster)):
        with pytest.raises(StreamsError, match=r"shop runs \(worker-7"):
            step(plan, cluster)
    assert cluster.done == []


def test_committed_offsets_are_given_up_before_the_state_that_belongs_to_them() -> None:
    cluster = Cluster()
    cluster.start_application()
    plan = planned(cluster, replace=True)
    check_not_started(plan, cluster)
    prepare(replace(plan, step=Step.RUNNING), cluster)
    gone, *made = cluster.done
    assert gone == f"forget {APP}"
    assert sorted(made[:2]) == [f"delete {CHANGELOG}", f"delete {BETWEEN}"]
    assert made[2:] == [f"create {CHANGELOG}", f"create {BETWEEN}"]
    assert cluster.offsets == {}
    assert {at.topic for at in cluster.logs} == {"lines"}, "nothing that would be counted once more"


@pytest.mark.parametrize("step", [Step.RUNNING, Step.WRITTEN, Step.VERIFIED])
def test_killed_at_a_step_then_aborted_nothing_is_left(step: Step) -> None:
    cluster = Cluster()
    plan = at_step(cluster, step)
    assert abort(plan, cluster) == [CHANGELOG, BETWEEN]
    assert planned(cluster).ranges == plan.ranges
    assert cluster.offsets == {}


@pytest.mark.parametrize("step", [Step.RUNNING, Step.WRITTEN, Step.VERIFIED])
def test_application_started_meanwhile_gets_nothing_and_abort_clears_up_after_it(tmp_path: Path, step: Step) -> None:
    cluster = Cluster()
    plan = at_step(cluster, step)
    cluster.start_application()
    with pytest.raises(StreamsError, match=r"nothing is committed; stop it, run `bootstrap abort`, and start again"):
        commit(plan, tmp_path / "plan.json", cluster)
    abort(plan, cluster)
    assert cluster.offsets == {}
    assert {at.topic for at in cluster.logs} == cluster.topics.keys() == {"lines"}, "or it would count what is there"
    assert planned(cluster).step is Step.PLANNED


def test_application_that_wrote_between_its_stages_and_was_killed_is_noticed(tmp_path: Path) -> None:
    cluster = Cluster()
    plan = at_step(cluster, Step.VERIFIED)
    cluster.write_to(BETWEEN)
    with pytest.raises(StreamsError, match=f"{BETWEEN}-0 has new records since .*nothing is committed"):
        commit(plan, tmp_path / "plan.json", cluster)
    assert cluster.offsets == {}


def test_aborted_plan_is_run_again_unless_the_application_ran_in_between() -> None:
    cluster = Cluster()
    plan = at_step(cluster, Step.VERIFIED, replace=True)
    abort(plan, cluster)
    again = plan.aborted()
    check_not_started(again, cluster)
    assert (again.id, again.ranges) == (plan.id, plan.ranges), "outputs that are written are found again"
    cluster.topics[CHANGELOG] = 2
    cluster.start_application()
    with pytest.raises(StreamsError, match="it has run"):
        check_not_started(again, cluster)


def test_application_that_was_started_before_the_run_keeps_its_state() -> None:
    cluster = Cluster()
    plan = planned(cluster)
    cluster.start_application()
    with pytest.raises(StreamsError, match="it has run"):
        check_not_started(plan, cluster)


def test_only_the_offsets_that_were_there_at_planning_are_given_up() -> None:
    cluster = Cluster()
    cluster.offsets[TopicPartition("lines", 0)] = 3
    plan = planned(cluster, replace=True)
    check_not_started(plan, cluster)
    cluster.offsets[TopicPartition("lines", 0)] = 4
    with pytest.raises(StreamsError, match="has committed lines-0 at 4 since the plan was made"):
        check_not_started(plan, cluster)


def test_nothing_is_taken_back_twice() -> None:
    cluster = Cluster()
    plan = at_step(cluster, Step.RUNNING)
    abort(plan, cluster)
    cluster.topics[CHANGELOG] = 2
    cluster.start_application()  # it works for weeks, and is stopped for a moment
    before = dict(cluster.offsets), list(cluster.done)
    assert abort(plan.aborted(), cluster) == []
    assert (cluster.offsets, cluster.done) == before


@pytest.mark.parametrize("step", list(Step))
def test_new_plan_takes_the_place_of_one_that_is_done_with_only(tmp_path: Path, step: Step) -> None:
    file = tmp_path / "plan.json"
    check_file_is_free(file)
    replace(planned(Cluster()), step=step).save(file)
    if step in (Step.PLANNED, Step.COMMITTED, Step.ABORTED):
        check_file_is_free(file)
    else:
        first = "run `bootstrap commit` again" if step is Step.COMMITTING else "run `bootstrap abort` first"
        with pytest.raises(ConfigError, match=f"warm start of shop that is {step.value}: {first}"):
            check_file_is_free(file)


def test_plan_takes_the_place_of_no_other_file_and_says_when_it_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(ConfigError, match=r"notes.txt exists and cannot be replaced.*name another file"):
        check_file_is_free(file)
    with pytest.raises(ConfigError, match=r"cannot be written \(No such file or directory\); name another"):
        planned(Cluster()).save(tmp_path / "nowhere" / "plan.json")


def cut_off_commit(cluster: Cluster, file: Path) -> BootstrapPlan:
    """The broker processes the request, but the command does not know it: it was killed, or got no answer."""
    cluster.is_cut_off = True
    with pytest.raises(BrokerUnavailableError):
        commit(at_step(cluster, Step.VERIFIED), file, cluster)
    cluster.is_cut_off = False
    return BootstrapPlan.load(file)


def test_commit_that_was_cut_off_behind_the_request_is_completed_and_not_aborted(tmp_path: Path) -> None:
    cluster, file = Cluster(), tmp_path / "plan.json"
    plan = cut_off_commit(cluster, file)
    wanted = {("lines", 0): 5, ("lines", 1): 7, (BETWEEN, 0): 0, (BETWEEN, 1): 0}
    assert cluster.offsets == {TopicPartition(*at): end for at, end in wanted.items()}
    with pytest.raises(StreamsError, match="run `bootstrap commit` again to complete it"):
        abort(plan, cluster)
    commit(plan, file, cluster)
    assert BootstrapPlan.load(file).step is Step.COMMITTED
    assert CHANGELOG in cluster.topics


def test_application_that_started_behind_a_commit_that_was_cut_off_keeps_its_state(tmp_path: Path) -> None:
    cluster, file = Cluster(), tmp_path / "plan.json"
    plan = cut_off_commit(cluster, file)
    cluster.logs[TopicPartition("lines", 0)] = (0, 6)
    cluster.start_application()
    before = dict(cluster.offsets), list(cluster.done)
    for step in (lambda: abort(plan, cluster), lambda: commit(plan, file, cluster)):
        with pytest.raises(
            StreamsError,
            match="If the application started at the positions of the plan, the warm start of shop is comp",
        ):
            step()
    assert (cluster.offsets, cluster.done) == before


def test_commit_that_was_cut_off_before_the_request_is_taken_back(tmp_path: Path) -> None:
    cluster, file = Cluster(), tmp_path / "plan.json"
    plan = cut_off_commit(cluster, file)
    cluster.offsets.clear()
    assert abort(plan, cluster) == [CHANGELOG, BETWEEN]


def test_commit_that_is_refused_as_a_whole_changes_nothing(tmp_path: Path) -> None:
    cluster, file = Cluster(), tmp_path / "plan.json"
    plan = at_step(cluster, Step.VERIFIED)
    cluster.forbidden = {"lines", BETWEEN}
    with pytest.raises(StreamsError, match="cannot be set"):
        commit(plan, file, cluster)
    assert (BootstrapPlan.load(file).step, cluster.offsets) == (Step.VERIFIED, {})


def test_commit_that_is_obeyed_in_part_is_completed(tmp_path: Path) -> None:
    cluster, file = Cluster(), tmp_path / "plan.json"
    cluster.forbidden = {BETWEEN}
    with pytest.raises(StreamsError, match="cannot be set"):
        commit(at_step(cluster, Step.VERIFIED), file, cluster)
    cluster.forbidden = set()
    commit(BootstrapPlan.load(file), file, cluster)
    assert cluster.offsets.keys() == {TopicPartition(topic, p) for topic in ("lines", BETWEEN) for p in (0, 1)}


def test_plan_of_which_nothing_was_begun_gives_up_after_an_abort_what_it_was_to_give_up() -> None:
    cluster = Cluster()
    cluster.offsets[TopicPartition("lines", 0)] = 3
    plan = planned(cluster, replace=True)
    assert abort(plan, cluster) == []
    check_not_started(plan.aborted(), cluster)


def test_what_was_read_back_must_be_what_was_written() -> None:
    cluster = Cluster()
    plan = at_step(cluster, Step.WRITTEN)
    check_written(plan, {f"{CHANGELOG}-0": (4, 99), f"{CHANGELOG}-1": (4, 99)})
    for read in ({f"{CHANGELOG}-0": (4, 99)}, {f"{CHANGELOG}-0": (4, 98), f"{CHANGELOG}-1": (4, 99)}):
        with pytest.raises(StreamsError, match=r"the 4 written records.*Nothing is committed"):
            check_written(plan, read)


def test_plan_file_says_how_far_it_got_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    plan = at_step(Cluster(), Step.VERIFIED)
    plan.save(file)
    loaded = BootstrapPlan.load(file)
    assert json.loads(file.read_text())["step"] == "verified"
    loaded.check(word_count(), Step.VERIFIED)
    for step, remedy in (
        (Step.PLANNED, "run it first"),
        (Step.RUNNING, "it was interrupted, so abort it"),
        (Step.COMMITTED, "no step is left"),
        (Step.ABORTED, "run it again, or plan again"),
    ):
        with pytest.raises(ConfigError, match=remedy):
            replace(loaded, step=step).check(word_count(), Step.VERIFIED)
    other = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    other.stream("lines").group_by_key().count(store="counts")
    with pytest.raises(ConfigError, match="the topology has changed"):
        loaded.check(other.build(), Step.VERIFIED)
    with pytest.raises(ConfigError, match=r"the plan .* does not exist; create one"):
        BootstrapPlan.load(tmp_path / "none.json")
    for text in ("{", "{}", '{"step": "dancing"}'):
        file.write_text(text)
        with pytest.raises(ConfigError, match="is not the plan of a warm start"):
            BootstrapPlan.load(file)
    replace(plan, format=7).save(file)
    with pytest.raises(ConfigError, match="has format 7"):
        BootstrapPlan.load(file)


def joined() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    names = builder.global_table("names")
    lines = builder.stream("lines").join(names, lambda line, name: line + name, on=lambda key, _: key)
    lines.group_by(lambda _, word: word).count(store="counts")
    return builder.build()


def test_topics_of_global_tables_are_read_to_fixed_ends_and_nothing_is_committed_for_them() -> None:
    cluster = Cluster()
    cluster.topics["names"] = 1
    cluster.logs[TopicPartition("names", 0)] = (2, 9)  # compacted ones may begin anywhere
    with pytest.raises(RefusedTopologyError, match="its contents at the end"):
        make_plan("app:topology", joined(), APP, CONFIG, cluster, BootstrapAllowances())
    plan, _ = make_plan("app:topology", joined(), APP, CONFIG, cluster, BootstrapAllowances(frozen_tables=True))
    assert plan.tables == [("names", 0, 2, 9)]
    assert plan.options_for("names") == {"starting": '{"names": {"0": 2}}', "ending": '{"names": {"0": 9}}'}
    assert {topic for topic, *_ in plan.ranges} == {"lines"}
    assert {topic for topic, *_ in written(plan, {}, [], [], {}, {}).positions} == {"lines"}
    cluster.topics["names"] = 2
    with pytest.raises(RefusedTopologyError, match="topic names: it has 2 partitions, but the plan has 1"):
        check_topics(plan, cluster)
    del cluster.topics["names"]
    with pytest.raises(RefusedTopologyError, match="topic names: it does not exist"):
        make_plan("app:topology", joined(), APP, CONFIG, cluster, BootstrapAllowances(frozen_tables=True))


def test_changelog_that_cannot_be_seen_is_not_taken_for_one_that_was_written_to(tmp_path: Path) -> None:
    cluster = Cluster()
    plan = at_step(cluster, Step.VERIFIED)
    cluster.delete([CHANGELOG])
    with pytest.raises(StreamsError, match=f"{CHANGELOG} does not exist, or the user has no right DESCRIBE on"):
        commit(plan, tmp_path / "plan.json", cluster)
    assert not cluster.offsets
