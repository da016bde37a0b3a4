"""A running group explained from outside, compared with the explanations of its own leader."""

from __future__ import annotations

import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streams_protocol import LATEST_OFFSET
from streams_protocol.types import TaskId
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.explanation import Rule
from streams_py.cli.groups.explaining_live import _head, reasons_json  # the command would need a broker
from streams_py.errors import StreamsError
from streams_py.inspection.reasons import Lags, Outlook, Reasons, TaskReason, explain_group
from streams_py.ports import MemberSubscription
from tests.support.inspection.groups import FakeCluster, process, rebalanced, said, topics

STANDBYS = AssignmentConfigs(num_standby_replicas=1)


def counting(partitions: int, end: int = 50_000) -> FakeCluster:
    return FakeCluster(topics(partitions), {"in": 1_000, "app-counts-changelog": end})


def tasks(partitions: int) -> list[TaskId]:
    return [TaskId(sub, n) for sub in (0, 1) for n in range(partitions)]


def running(number: int, mine: list[TaskId], **more: object) -> MemberSubscription:
    sums = {task: LATEST_OFFSET for task in mine if task.subtopology == 0}
    return said(number, owned=mine, sums=sums | dict(more.get("sums", {})))  # type: ignore[call-overload]


def told(reasons: Reasons, reason: TaskReason) -> str:
    (found,) = (task for task in reasons_json(reasons, [reason])["tasks"])
    return str(found["text"])


def test_tasks_at_rest_stay_and_say_why_as_their_leader_does() -> None:
    cluster = counting(2)
    first, second = [TaskId(0, 0), TaskId(1, 0)], [TaskId(0, 1), TaskId(1, 1)]
    members = {
        "m0": running(0, first, sums={TaskId(0, 1): 49_990}),
        "m1": running(1, second, sums={TaskId(0, 0): 49_000}),
    }
    own = rebalanced(cluster, members, 2, STANDBYS)
    reasons = explain_group(cluster, "app")
    assert reasons.configs["num.standby.replicas"] == 1, "taken from the copies there are"
    assert {task: reason.decided for task, reason in reasons.tasks.items()} == dict(own.explanations)
    assert {reason.outlook for reason in reasons.tasks.values()} == {Outlook.STAYS}
    assert all(reason.is_as_decided for reason in reasons.tasks.values())
    text = told(reasons, reasons.tasks[TaskId(0, 1)])
    assert text.startswith("0_1 is active on B (")
    assert "a rebalance now would not move it" in text
    assert str(process(1)) not in text
    assert not cluster.created


def test_a_task_that_warms_up_elsewhere_says_for_whom_it_is_meant() -> None:
    cluster = counting(2)
    members = {"m0": running(0, tasks(2)), "m1": said(1, generation=-1)}
    rebalanced(cluster, members, 2)
    reasons = explain_group(cluster, "app")
    (meant,) = (r for r in reasons.tasks.values() if r.decided and r.decided.desired != r.decided.active.process_id)
    assert meant.task.owner == "m0"
    assert meant.outlook is Outlook.DEPENDS, "its copy is not known to have caught up, and may have"
    assert (meant.destination, meant.destination_if_caught_up, meant.next) == ("m0", "m1", None)
    text = told(reasons, meant)
    assert "it is meant for B, which has to catch up first" in text
    assert (
        "a rebalance now would move it to B1 if the copies have caught up since the last rebalance, and not move it "
        "if not; their progress is not visible from outside"
    ) in text


def test_records_since_the_last_rebalance_change_no_answer() -> None:
    """Reported offsets are from the last rebalance, so every copy looks behind the present end offsets."""
    cluster = counting(4)
    members = {  # after a restart: every member has state on disk, and no member runs a task
        "m0": said(0, sums={TaskId(0, 2): 49_990, TaskId(0, 3): 49_990}, generation=-1),
        "m1": said(1, sums={TaskId(0, 0): 49_990, TaskId(0, 1): 49_990}, generation=-1),
    }
    rebalanced(cluster, members, 4)
    assert all(reason.is_as_decided for reason in explain_group(cluster, "app").tasks.values())
    cluster.ends["app-counts-changelog"] += 1_000_000
    after = explain_group(cluster, "app")
    lags = {reason.lags for reason in after.tasks.values() if reason.task.id.subtopology == 0}
    assert lags == {Lags.BOUNDED, Lags.UNKNOWN}
    for reason in after.tasks.values():
        text = told(after, reason)
        assert reason.is_as_decided, text
        assert "decides differently" not in text
        assert "lag 1000010" not in text
        assert ("which are no longer known" in text) is (reason.lags is Lags.UNKNOWN)
        assert ("lag <= 1000010" in text) is (reason.lags is Lags.BOUNDED)
        if reason.lags is Lags.UNKNOWN:
            assert reason.decided is None
            assert "no client is caught up" not in text
            assert "catch up first" not in text


def test_a_copy_that_has_caught_up_is_about_to_get_its_task() -> None:
    cluster = counting(2)
    members = {"m0": running(0, tasks(2)), "m1": said(1, sums={TaskId(0, 1): 49_999}, generation=-1)}
    rebalanced(cluster, members, 2)
    # m0 had two tasks with state and revoked one: no member runs it in this generation (KIP-429).
    reasons = explain_group(cluster, "app")
    coming = reasons.tasks[TaskId(0, 1)]
    assert (coming.task.owner, coming.task.coming_from, coming.destination) == (None, "m0", "m1")
    assert coming.outlook is Outlook.STARTS
    text = told(reasons, coming)
    assert text.startswith("0_1 is withheld: A1 still owned it at the last rebalance")
    assert "0_1 is meant for B" in text
    assert "the next rebalance assigns it to B1" in text


def test_a_rebalance_that_would_move_a_task_is_foretold() -> None:
    """The copy was too far behind with the settings at the last rebalance, but not with the given ones."""
    cluster = counting(2)
    members = {"m0": running(0, tasks(2)), "m1": said(1, sums={TaskId(0, 1): 1_000}, generation=-1)}
    rebalanced(cluster, members, 2)
    reasons = explain_group(cluster, "app", configs={"acceptable.recovery.lag": "49000"})
    moving = reasons.tasks[TaskId(0, 1)]
    assert (moving.task.owner, moving.destination, moving.outlook) == ("m0", "m1", Outlook.MOVES)
    assert not moving.is_as_decided
    text = told(reasons, moving)
    assert "decides differently with these settings, the offsets that members reported at the last rebalance" in text
    assert "would have put it elsewhere" not in text, "the leader saw other end offsets"
    assert "  offsets of copies as reported at the last rebalance" in "\n".join(_head(reasons))
    assert "a rebalance now would move it to B1, because" in text


def test_another_assignor_says_what_it_would_do() -> None:
    cluster = counting(2)
    rebalanced(cluster, {"m0": running(0, tasks(2)), "m1": said(1, generation=-1)}, 2)
    reasons = explain_group(cluster, "app", assignor="sticky")
    rules = {reason.decided.active.rule for reason in reasons.tasks.values() if reason.decided is not None}
    assert rules == {Rule.PREVIOUS_OWNER, Rule.LEAST_LOADED}, "those of the sticky assignor"
    assert reasons.assignor == "sticky"


def test_settings_of_the_group_show_from_outside() -> None:
    cluster = counting(2)
    zone = [{"zone": name, "streams-py.draining": "no"} for name in ("a", "b")]
    members = {f"m{n}": said(n, tags=zone[n], generation=-1) for n in range(2)}
    rebalanced(cluster, members, 2, AssignmentConfigs(num_standby_replicas=1, rack_aware_assignment_tags=("zone",)))
    reasons = explain_group(cluster, "app")
    assert reasons.configs == {"num.standby.replicas": 1, "rack.aware.assignment.tags": ["zone"]}
    assert reasons.assumed[0].endswith("num.standby.replicas=1, rack.aware.assignment.tags=zone")
    assert reasons_json(reasons, reasons.tasks.values())["configs"] == reasons.configs


def test_members_with_garbage_are_left_out_and_named() -> None:
    cluster = counting(2)
    rebalanced(cluster, {"m0": running(0, tasks(2)), "m1": running(1, [])}, 2)
    good, bad = cluster.described.members
    for damaged in (bad._replace(subscription=b"\xff"), bad._replace(assignment=b"\x01")):
        cluster.described = cluster.described._replace(members=(good, damaged))
        reasons = explain_group(cluster, "app")
        assert {reason.task.owner for reason in reasons.tasks.values()} == {"m0"}
        assert any("client-m1" in problem for problem in reasons.view.problems)


@pytest.mark.parametrize(("state", "why"), [("Empty", "has no members"), ("PreparingRebalance", "is rebalancing")])
def test_a_group_that_has_no_tasks_to_explain_says_so(state: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = counting(2)
    rebalanced(cluster, {"m0": running(0, tasks(2))}, 2)
    cluster.described = cluster.described._replace(state=state)
    monkeypatch.setattr("streams_py.inspection.reasons._REST_SECONDS_MAX", 0.0)
    with pytest.raises(StreamsError, match=why):
        explain_group(cluster, "app")


def test_a_group_whose_assignments_mention_no_task_is_refused() -> None:
    cluster = counting(1)
    rebalanced(cluster, {"m0": running(0, tasks(1))}, 1)
    (only,) = cluster.described.members
    cluster.described = cluster.described._replace(members=(only._replace(assignment=b""),))
    with pytest.raises(StreamsError, match="no assignment of group app mentions a task"):
        explain_group(cluster, "app")


@given(st.data())
def test_what_is_told_from_outside_is_what_the_leader_decided(data: st.DataObject) -> None:
    partitions = data.draw(st.integers(1, 6))
    count = data.draw(st.integers(1, 4))
    everything = tasks(partitions)
    owners = [data.draw(st.integers(-1, count - 1)) for _ in everything]
    members = {}
    for number in range(count):
        mine = [task for task, owner in zip(everything, owners, strict=True) if owner == number]
        disk = {
            task: data.draw(st.integers(0, 60_000))
            for task in everything
            if task.subtopology == 0 and task not in mine and data.draw(st.booleans())
        }
        members[f"m{number}"] = running(number, mine, sums=disk)
    cluster = counting(partitions)
    configs = AssignmentConfigs(num_standby_replicas=data.draw(st.integers(0, 2)))
    own = rebalanced(cluster, members, partitions, configs)
    given = {"num.standby.replicas": configs.num_standby_replicas}
    reasons = explain_group(cluster, "app", configs=given)
    assume(any(task.is_stateful for task in reasons.view.tasks))  # else nothing tells whose the changelog is
    assume(not reasons.view.topics_without_tasks)  # all tasks of a sub-topology withheld
    assert dict(reasons.last.explanations) == dict(own.explanations)
    for task, reason in reasons.tasks.items():
        assert reason.lags is Lags.UNKNOWN or reason.decided == own.explanations[task]
    assert dict(reasons.last.owners) == dict(own.owners)
    assert reasons.last.decided.deadlines.keys() == own.decided.deadlines.keys()


def test_a_large_group_is_explained_in_seconds() -> None:
    cluster = counting(5_000)
    everything = tasks(5_000)[:5_000]
    members = {
        f"m{number:03}": running(
            number, everything[number::100], sums=dict.fromkeys(everything[(number + 1) % 100 :: 100], 49_000)
        )
        for number in range(100)
    }
    rebalanced(cluster, members, 5_000, STANDBYS)
    began = time.process_time()
    reasons = explain_group(cluster, "app")
    assert len(reasons.tasks) == 10_000
    assert time.process_time() - began < 10, "what somebody on call waits for"
