"""The worker's thread, turn by turn, with a group, topics and plug-ins in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.jobs import Jobs
from streams_py.connect.assignment.leader import ConfigSnapshot
from streams_py.connect.assignment.modes import Mode
from streams_py.connect.errors import NotLeaderError, RebalanceExpectedError
from streams_py.connect.stores.configs import RestartRequest, TargetState
from streams_py.connect.stores.log import create_topic
from streams_py.connect.stores.statuses import JobState
from streams_py.connect.worker import herder as herder_module
from streams_py.connect.worker.stores import Stores as TopicStores
from streams_py.errors import BrokerUnavailableError, ConfigError
from streams_py.ports import AdminError, AdminErrorKind, PartitionInfo
from tests.support.connect.bench import SOURCE, Bench
from tests.support.connect.fake_group import Worker


@pytest.fixture
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(herder_module, "_IDLE_S", 0.002)  # a turn without work waits for some
    bench = Bench(**getattr(request, "param", {}))
    yield bench
    bench.herder.jobs.stop_all()


def test_a_connector_runs_with_its_tasks_and_is_gone_when_it_is_deleted(bench: Bench) -> None:
    bench.run(**{"tasks.max": "2"})
    assert bench.herder.member.held is not None
    assert bench.herder.member.held.tasks == (TaskId("a", 0), TaskId("a", 1))
    bench.stores.configs.remove_connector("a")
    bench.until(lambda: not bench.herder.jobs.alive, "nothing runs")
    bench.until(lambda: bench.states("a")[-1] is JobState.DESTROYED, "its status is removed")


def test_a_worker_that_cannot_read_configurations_leaves_and_stops_all_after_five_tries(bench: Bench) -> None:
    bench.run()
    bench.stores.log.is_away = True
    bench.group.members["m1"].request_rejoin()
    other = Worker(bench.group, ConfigSnapshot(99))  # it has read further: this leader must read, too
    for _ in range(4):
        other.turn()
        bench.turn()
        if not bench.herder._can_read:  # nothing else happens at first
            break
    assert not bench.herder._can_read  # see above
    assert "m1" not in bench.group.members
    assert bench.herder.jobs.runs(TaskId("a", 0)), "its jobs continue at first"
    began = time.monotonic()
    bench.turn(5)
    assert not bench.herder.jobs.alive
    assert time.monotonic() - began >= 0.009, "it waits D/40, D/30, D/20, D/10"
    other.member.stop()
    bench.stores.log.is_away = False
    bench.until(lambda: bench.herder.jobs.runs(TaskId("a", 0)), "it is back, and its jobs run")


@pytest.mark.parametrize("bench", [{"connect.protocol": "eager"}], indirect=True)
def test_an_eager_worker_stops_everything_in_each_rebalance(bench: Bench) -> None:
    bench.run()
    before = bench.states("a").count(JobState.RUNNING)
    bench.group.members["m1"].request_rejoin()
    bench.until(lambda: bench.states("a").count(JobState.RUNNING) > before, "it was started again")
    assert bench.states("a")[-3:] == [JobState.RUNNING, JobState.UNASSIGNED, JobState.RUNNING]
    assert bench.stores.configs.snapshot().session_key is None


def test_a_cooperative_worker_keeps_everything_running_in_a_rebalance(bench: Bench) -> None:
    bench.run()
    before, round_before = bench.states("a"), bench.group.rounds
    bench.group.members["m1"].request_rejoin()
    bench.until(lambda: bench.group.rounds > round_before, "a round is over")
    bench.turn(3)
    assert bench.states("a") == before


@pytest.mark.parametrize("bench", [{"inter.worker.key.ttl.ms": "1"}], indirect=True)
def test_the_leader_renews_the_session_key_when_it_is_old(bench: Bench) -> None:
    keys = set()

    def renewed() -> bool:
        key = bench.stores.configs.snapshot().session_key
        keys.add(key.key if key else None)
        return len(keys - {None}) >= 3

    bench.until(renewed, "three keys were in use")


@pytest.mark.parametrize("bench", [{"inter.worker.key.ttl.ms": "0"}], indirect=True)
def test_a_session_key_that_does_not_expire_is_written_once(bench: Bench) -> None:
    bench.until(lambda: bench.stores.configs.snapshot().session_key, "there is a key")
    bench.turn(5)
    assert sum(key == b"session-key" for key, _ in bench.stores.log.records) == 1


def test_only_failed_jobs_are_restarted_when_only_those_are_asked_for(bench: Bench) -> None:
    bench.run("a", **{"tasks.max": "1"})
    bench.run("b", **{"fail.at": "3"})
    broken = TaskId("b", 0)
    bench.until(lambda: bench.states(broken)[-1] is JobState.FAILED, "b-0 has failed")
    a, b = bench.states("a"), bench.states("b")
    bench.stores.configs.put_restart(RestartRequest("b", include_tasks=True, only_failed=True))
    bench.until(lambda: JobState.RESTARTING in bench.states(broken), "b-0 is restarted")
    assert bench.states("a") == a
    assert bench.states("b") == b


def test_of_several_restarts_the_strongest_counts(bench: Bench) -> None:
    bench.run()
    for include_tasks in (False, True, False):
        bench.stores.configs.put_restart(RestartRequest("a", include_tasks=include_tasks, only_failed=False))
    bench.until(lambda: JobState.RESTARTING in bench.states(TaskId("a", 0)), "its task is restarted, too")
    assert bench.states("a").count(JobState.RESTARTING) == 1


def test_a_stopped_connector_configures_no_tasks(bench: Bench) -> None:
    bench.stores.configs.put_connector("a", {**SOURCE, "name": "a"}, TargetState.STOPPED)
    bench.until(lambda: JobState.STOPPED in bench.states("a"), "it is stopped")
    bench.turn(3)
    assert bench.stores.configs.snapshot().task_configs("a") == []


def test_a_follower_gives_task_configurations_to_the_leader_and_answers_for_nobody(bench: Bench) -> None:
    leader = Worker(bench.group, ConfigSnapshot(-1), lists="")  # static, and idle
    leader.turn()

    def turned() -> bool:
        leader.snapshot = bench.stores.configs.snapshot().group_view
        leader.turn()
        return True

    bench.until(lambda: turned() and bench.herder.member.held, "it has joined")
    bench.until(lambda: turned() and not bench.herder.member.needs_rejoin(), "the group is at rest")
    with pytest.raises(NotLeaderError) as told:
        bench.herder.require_leader()
    assert told.value.url == "http://worker:8083/"
    bench.stores.configs.put_connector("a", {**SOURCE, "name": "a"})
    with pytest.raises(RebalanceExpectedError):
        bench.herder.require_leader()  # what was written is not acted on yet
    bench.until(lambda: turned() and bench.forwarded, "the leader is given its tasks")
    assert bench.forwarded[0] == ("http://worker:8083/", "a")


@pytest.mark.parametrize("bench", [{"static.connectors": "b"}], indirect=True)
def test_a_job_that_the_leader_should_not_have_given_is_run_counted_and_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.turn(3)
    held = bench.herder.member.held
    assert held is not None
    assert bench.herder.member.mode is Mode.STATIC
    bench.herder.on_assigned(replace(held, connectors=("a", "b")), 7)
    assert bench.herder.counters.unexpected == 1
    assert "does not list; running them: a" in caplog.text


class Topics:
    """An admin client of a cluster on which every topic exists."""

    def __init__(self, partitions: int, policy: str) -> None:
        self._partitions, self._policy = partitions, policy

    def create_topics(self, specs: Any) -> dict[str, AdminError]:
        return {spec.name: AdminError(AdminErrorKind.ALREADY_EXISTS, "it is there") for spec in specs}

    def describe_topics(self, names: Any) -> dict[str, tuple[PartitionInfo, ...]]:
        return {name: tuple(range(self._partitions)) for name in names}  # type: ignore[misc]

    def topic_cleanup_policy(self, topic: str) -> str:
        return self._policy


def test_a_topic_that_forgets_is_refused_and_one_that_is_compacted_is_taken_as_it_is() -> None:
    kept, forgets = Topics(7, "compact"), Topics(1, "delete")
    how = {"partitions": 5, "replication": 1, "setting": "status.storage.topic"}
    assert create_topic(kept, kept, "s", **how) == 7  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"topic s \(status.storage.topic\) has cleanup.policy=delete"):
        create_topic(forgets, forgets, "s", **how)  # type: ignore[arg-type]


def test_a_topic_that_cannot_be_created_is_told_with_the_reason() -> None:
    class Refusing(Topics):
        def create_topics(self, specs: Any) -> dict[str, AdminError]:
            return {spec.name: AdminError(AdminErrorKind.OTHER, "replication factor 3, 1 broker") for spec in specs}

        def describe_topics(self, names: Any) -> dict[str, Any]:
            return {name: AdminError(AdminErrorKind.UNKNOWN_TOPIC, "it is not there") for name in names}

    refusing = Refusing(1, "compact")
    with pytest.raises(BrokerUnavailableError, match=r"config\.storage\.topic.*replication factor 3"):
        create_topic(refusing, refusing, "c", partitions=1, replication=3, setting="config.storage.topic")  # type: ignore[arg-type]


def test_the_config_topic_has_one_partition() -> None:
    class OneClient(Topics):
        def admin(self) -> OneClient:
            return self

    clients = OneClient(2, "compact")
    settings = Bench().herder._settings  # those of a whole worker
    with pytest.raises(ConfigError, match=r"config\.storage\.topic = c has 2 partitions, but must have 1"):
        TopicStores(settings, clients)  # type: ignore[arg-type]


def test_nothing_is_left_over_of_a_held_set_when_lists_come_into_force(bench: Bench) -> None:
    bench.run("a")
    lister = Worker(bench.group, bench.stores.configs.snapshot().group_view, lists="a a-0")

    def moved() -> bool:
        lister.snapshot = bench.stores.configs.snapshot().group_view
        lister.turn()
        return lister.running == Jobs.of(["a"], [TaskId("a", 0)])

    bench.until(moved, "the lister has both")
    assert not bench.herder.jobs.alive
    assert bench.states("a")[-1] is JobState.UNASSIGNED


def test_stop_during_the_first_poll_of_a_turn_is_not_waited_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run()
    bench.turn()
    polls: list[float] = []
    poll = bench.herder.member.poll

    def stop_meanwhile(timeout_s: float) -> None:
        polls.append(timeout_s)
        bench.herder.stop()
        poll(timeout_s)

    monkeypatch.setattr(bench.herder.member, "poll", stop_meanwhile)
    bench.turn()
    assert polls == [0]
