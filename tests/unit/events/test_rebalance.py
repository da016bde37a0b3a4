"""What is written about an assign step."""

from __future__ import annotations

import pytest

from streams_protocol.types import TaskId
from streams_py.assignment.api import (
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    TaskType,
)
from streams_py.errors import BrokerUnavailableError, StreamsError, TaskAssignmentError
from streams_py.events.codec import decode_event
from streams_py.events.model import ClientPart, Event, RebalanceHeader
from streams_py.events.parts import WholeRebalance
from streams_py.events.rebalance import rebalance_id
from streams_py.leader.effects import CreateTopics, FailAssign, ListEndOffsets
from streams_py.leader.events import EndOffsetsListed
from streams_py.ports import MemberSubscription
from streams_py.topology.physical.metadata import TopologyMetadata
from tests.support.events.kit import ENVELOPE, Recorder
from tests.support.leader.kit import COUNT, NOW_MS, STATELESS, TIMED_OUT, FakeCluster, assign, member, pid, sub, tasks

RUNNING = -2
ALL = "in-0 in-1 in-2 in-3"


def client(of: WholeRebalance, number: int) -> ClientPart:
    return next(part for part in of.clients if part.client == str(pid(number)))


def header(recorded: object) -> RebalanceHeader:
    (event,) = (e for e in recorded.events if isinstance(e.body, RebalanceHeader))
    return event.body


def with_state() -> FakeCluster:
    return FakeCluster({"in": 4, "app-counts-changelog": 4}, 1000)


def test_record_has_what_the_assignor_saw_and_decided() -> None:
    members = {
        "a": member(1, owned="in-0 in-1", sums={"0_0": RUNNING, "0_1": RUNNING, "0_2": 990}, tags={"zone": "x"}),
        "b": member(2, endpoint="host:80", rack="r1"),
    }
    recorded = Recorder().assign(members, COUNT, with_state())
    found = recorded.whole
    (piece,) = found.slices
    assert (piece.sub, piece.count, piece.stateful, piece.logged) == ("0", 4, True, True)
    assert (piece.stores, piece.sources, piece.changelogs) == (("counts",), ("in",), ("app-counts-changelog",))
    assert piece.end == (1000,) * 4
    assert piece.racks is not None
    assert piece.racks.names == ("r0",)
    assert piece.racks.p["in"] == ((0,),) * 4
    first, second = client(found, 1), client(found, 2)
    assert first.prev_active == tuple(tasks("0_0 0_1"))
    assert first.prev_standby == tuple(tasks("0_2"))
    assert (first.sums.tasks, first.sums.v) == (tuple(tasks("0_0 0_1 0_2")), (RUNNING, RUNNING, 990))
    assert first.tags == {"zone": "x"}
    assert (second.host, second.rack) == ("host:80", "r1")
    assert first.consumers[0].owned == tuple(tasks("0_0 0_1"))
    assert (first.consumers[0].version, first.consumers[0].supported) == (11, 11)


def test_every_task_is_active_once() -> None:
    recorder = Recorder(num_standby_replicas=1)
    found = recorder.assign({"a": member(1), "b": member(2), "c": member(2)}, COUNT, with_state()).whole
    active = sorted(task for part in found.clients for task in part.active)
    assert active == tasks("0_0 0_1 0_2 0_3")
    given = sorted(task for part in found.clients for thread in part.threads for task in thread.active)
    assert given == active
    assert found.header.counts == {
        "clients": 2, "consumers": 3, "tasks": 4, "stateful": 4,
        "active": 4, "standby": 4, "warmup": 0, "withheld": 0, "moved": 0,
    }  # fmt: skip
    assert sorted(t for part in found.clients for of in part.reasons.values() for t in of) == sorted(2 * active)


def test_withheld_task_stands_with_its_new_client_and_counts_as_moved() -> None:
    found = Recorder().assign({"a": member(1, owned=ALL), "b": member(2)}, STATELESS).whole
    second = client(found, 2)
    assert len(second.active) == 2
    assert second.threads[0].active == ()
    assert second.threads[0].withheld == second.active
    assert second.reasons == {"moved": second.active}
    assert found.header.counts["withheld"] == found.header.counts["moved"] == 2


def test_warm_up_is_told_from_a_standby() -> None:
    members = {"a": member(1, owned=ALL, sums={f"0_{n}": RUNNING for n in range(4)}), "b": member(2)}
    recorded = Recorder(acceptable_recovery_lag=0).assign(members, COUNT, with_state())
    second = client(recorded.whole, 2)
    assert len(second.warmup) == 2
    assert second.standby == ()
    assert second.reasons == {"warm_target": second.warmup}
    (followup,) = header(recorded).followups
    assert (followup.process, followup.deadline_ms) == (str(pid(1)), NOW_MS + 600_000)


def test_future_members_are_one_client_of_that_name() -> None:
    found = Recorder().assign({"a": member(1), "z": member(9, version=12)}, STATELESS).whole
    assert sorted(part.client for part in found.clients) == [str(pid(1)), "future"]
    assert found.header.versions is not None
    assert found.header.versions.future


def test_versions_of_each_member_are_those_it_sent() -> None:
    found = Recorder().assign({"a": member(1, version=2), "b": member(2, version=7, latest=9)}, STATELESS).whole
    consumers = [consumer for part in found.clients for consumer in part.consumers]
    assert [(c.version, c.supported) for c in consumers] == [(2, -1), (7, 9)]


def test_unknown_lags_are_said_and_the_fallback_named() -> None:
    cluster = with_state()
    cluster.faults[ListEndOffsets] = lambda effect: EndOffsetsListed(NOW_MS, error=TIMED_OUT)
    found = Recorder().assign({"a": member(1, owned="in-0", sums={"0_0": RUNNING})}, COUNT, cluster).whole
    assert not found.header.lag_ok
    assert found.header.assignor.name.endswith(":FallbackPriorAssignor")
    assert found.slices[0].end == (-3,) * 4
    assert list(client(found, 1).reasons) == ["fallback"]


# -- outcomes ----------------------------------------------------------------------------------------------------------


def test_error_assignment_is_a_header_with_the_code() -> None:
    recorded = Recorder().assign({"a": member(1)}, COUNT, FakeCluster({}))
    (event,) = recorded.events
    assert isinstance(event.body, RebalanceHeader)
    assert event.body.outcome == "error_assignment"
    assert event.body.error is not None
    assert (event.body.error.code, event.body.error.type) == (1, "MissingSourceTopicError")
    assert event.body.versions is None


def test_failed_step_is_a_header() -> None:
    topology = TopologyMetadata({0: sub("in")})
    recorded = Recorder(reference_behaviour=True).assign(
        {"a": member(1, version=11)._replace(user_data=b"x")}, topology
    )
    assert isinstance(recorded.result, FailAssign)
    (event,) = recorded.events
    assert isinstance(event.body, RebalanceHeader)
    assert event.body.outcome == "raised"


@pytest.mark.parametrize(
    ("error", "outcome"), [(BrokerUnavailableError("away"), "retriable"), (StreamsError("x"), "raised")]
)
def test_error_that_leaves_the_step_is_recorded_and_raised(error: StreamsError, outcome: str) -> None:
    def fail(effect: object) -> EndOffsetsListed:
        raise error

    recorder = Recorder()
    cluster = FakeCluster()
    cluster.faults[CreateTopics] = fail
    with pytest.raises(type(error)):
        recorder.assign({"a": member(1)}, COUNT, cluster)
    (record,) = recorder.drafts[0].records(ENVELOPE)
    event = decode_event(record.value)
    assert isinstance(event, Event)
    assert isinstance(event.body, RebalanceHeader)
    assert event.body.outcome == outcome


def test_garbage_of_one_member_does_not_hide_the_others() -> None:
    bad = member(2)._replace(user_data=b"\x00\x00\x00\x0bxx")
    found = Recorder().assign({"a": member(1), "bad": bad}, STATELESS).whole
    assert [part.client for part in found.clients] == [str(pid(1))]
    assert found.header.outcome == "ok"


def test_no_secret_is_in_any_byte() -> None:
    configs = {"sasl.jaas.config": "x password='hunter2'", "bootstrap.servers": "secret-host:9092"}
    cluster = FakeCluster()

    def fail(effect: object) -> EndOffsetsListed:
        raise StreamsError("cannot log in: password=hunter2 at https://me:hunter2@secret-host")

    recorder = Recorder(original_configs=configs)
    good = recorder.assign({"a": member(1)}, COUNT, FakeCluster()).drafts[0].records(ENVELOPE)
    cluster.faults[CreateTopics] = fail
    with pytest.raises(StreamsError):
        recorder.assign({"a": member(1)}, COUNT, cluster)
    bad = recorder.drafts[1].records(ENVELOPE)
    sent = b"".join(record.key + record.value for record in (*good, *bad))
    assert b"hunter2" not in sent
    assert b"***" in sent
    assert b"9092" not in sent


# -- ids and triggers --------------------------------------------------------------------------------------------------


def test_rebalance_id_names_leader_generation_and_attempt() -> None:
    assert rebalance_id("app", "leader", 7, 0) == rebalance_id("app", "leader", 7, 0)
    assert rebalance_id("app", "leader", 7, 1).endswith("-000000000007-1")
    assert rebalance_id("app", "x", 7, 0)[:16] != rebalance_id("xapp", "", 7, 0)[:16]


def test_second_attempt_at_a_generation_has_another_id() -> None:
    recorder = Recorder()
    first = header(recorder.assign({"a": member(1)}, STATELESS))
    recorder.generation -= 1
    second = header(recorder.assign({"a": member(1)}, STATELESS))
    assert first.rebalance_id.endswith("-000000000001-0")
    assert second.rebalance_id.endswith("-000000000001-1")


def test_triggers_follow_from_the_previous_step() -> None:
    recorder = Recorder()

    def trigger(*arguments: object) -> list[str]:
        return list(header(recorder.assign(*arguments)).trigger)

    assert trigger({"a": member(1)}, STATELESS) == ["first"]
    assert trigger({"a": member(1, owned=ALL), "b": member(2)}, STATELESS) == ["member_joined"]
    assert trigger({"a": member(1, owned="in-0 in-2"), "b": member(2)}, STATELESS) == ["revocation_done"]
    assert trigger({"b": member(2, owned="in-1")}, STATELESS) == ["member_left"]
    assert trigger({"b": member(2)}, STATELESS, FakeCluster({"in": 6})) == ["metadata_changed"]
    other = member(2)._replace(topics=("in", "more"))
    assert trigger({"b": other}, STATELESS, FakeCluster({"in": 6})) == ["subscription_changed"]
    assert trigger({"b": other}, STATELESS, FakeCluster({"in": 6})) == ["unknown"]


@pytest.mark.parametrize(
    ("members", "trigger"),
    [
        ({"a": member(1, owned="in-0")}, ("member_left",)),
        ({"a": member(1, owned="in-0"), "b": member(2, generation=-1)}, ("member_joined", "member_left")),
        # a whole group that starts again, with its state on the disk
        ({"a": member(1, sums={"0_0": 5}, generation=-1), "b": member(2, generation=-1)}, ("first",)),
    ],
)
def test_new_leader_tells_why_from_the_subscriptions(
    members: dict[str, MemberSubscription], trigger: tuple[str, ...]
) -> None:
    """A coordinator keeps its leader: the next leader knows that the former leader has left."""
    assert header(Recorder(member="a").assign(members, COUNT, with_state())).trigger == trigger


def test_static_leader_that_was_restarted_is_a_member_that_joined() -> None:
    """Its process is another one, and the coordinator keeps it as the leader: no member left."""
    members = {"a": member(1, generation=-1), "b": member(2, owned="in-0")}
    assert header(Recorder(member="a").assign(members, COUNT, with_state())).trigger == ("member_joined",)


def test_copy_that_has_caught_up_early_is_a_followup() -> None:
    """Its member does not wait for the instant of the probing rebalance."""
    recorder, behind = Recorder(), FakeCluster({"in": 4, "app-counts-changelog": 4}, 50_000)
    members = {"a": member(1, owned=ALL, sums={f"0_{n}": RUNNING for n in range(4)}), "b": member(2)}
    first = header(recorder.assign(members, COUNT, behind))
    assert first.followups
    assert not first.counts["withheld"]
    assert header(recorder.assign(members, COUNT, behind)).trigger == ("followup",)


def test_trigger_is_unknown_when_the_leader_missed_a_step() -> None:
    recorder = Recorder()
    recorder.assign({"a": member(1)}, STATELESS).events  # noqa: B018  # reading makes the records
    recorder.generation += 1
    assert header(recorder.assign({"a": member(1)}, STATELESS)).trigger == ("unknown",)


def test_durations_have_every_step() -> None:
    found = header(Recorder().assign({"a": member(1)}, COUNT, with_state()))
    assert set(found.duration_us) == {"decode", "topics", "end_offsets", "assign", "threads", "encode", "total"}
    assert found.duration_us["total"] >= sum(us for name, us in found.duration_us.items() if name != "total")


# -- custom assignors --------------------------------------------------------------------------------------------------


class Explaining(TaskAssignor):
    """Gives everything to the first client and says why."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        clients = sorted(application_state.kafka_streams_states())
        active = [AssignedTask(task, TaskType.ACTIVE) for task in application_state.all_tasks()]
        return TaskAssignment([KafkaStreamsAssignment(c, active if c == clients[0] else ()) for c in clients])

    def explain(self, task: TaskId) -> str:
        if task.partition == 3:
            raise RuntimeError("no idea")
        return "by moonlight" if task.partition else ""


def test_custom_assignor_may_explain_itself() -> None:
    cluster = FakeCluster(assignor=Explaining().assign)
    recorder = Recorder(task_assignor=Explaining)
    found = recorder.assign({"a": member(1), "b": member(2)}, STATELESS, cluster, Explaining()).whole
    assert found.header.assignor.custom
    assert found.header.assignor.name == f"{__name__}:Explaining"
    assert client(found, 1).reasons == {"by moonlight": tuple(tasks("0_1 0_2")), "custom": tuple(tasks("0_0 0_3"))}


def test_group_that_keeps_its_tasks_after_an_assignor_failed_is_a_fallback() -> None:
    def refuse(state: ApplicationState) -> TaskAssignment:
        raise TaskAssignmentError("not today")

    cluster = FakeCluster(assignor=refuse)
    recorder = Recorder(task_assignor=Explaining)
    found = recorder.assign({"a": member(1, owned="in-0 in-1"), "b": member(2)}, STATELESS, cluster).whole
    assert client(found, 1).active == tuple(tasks("0_0 0_1"))
    assert list(client(found, 1).reasons) == ["fallback"]


def test_leader_publishes_the_same_when_it_is_watched() -> None:
    members = {"a": member(1, owned=ALL), "b": member(2, endpoint="h:1"), "c": member(2), "z": member(9, version=12)}
    for topology in (COUNT, STATELESS):
        watched = Recorder(num_standby_replicas=1).assign(members, topology).result
        assert watched == assign(members, topology, num_standby_replicas=1).result
