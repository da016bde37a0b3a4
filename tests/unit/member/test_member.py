"""A member's subscriptions, its handling of assignments, and its rebalance requests.

Comments such as L33 are numbers of invariants.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest

from streams_protocol import (
    NO_FOLLOW_UP,
    AssignmentInfo,
    HostInfo,
    ProcessId,
    SubscriptionInfo,
    TaskId,
    TopicPartition,
    decode_subscription_info,
    encode_assignment_info,
    error_assignment,
)
from streams_py.errors import ConfigError, MissingSourceTopicError, TaskAssignmentError
from streams_py.member import Member, MemberSettings, RebalanceProtocol
from streams_py.member.effects import (
    ApplyTasks,
    CloseLostTasks,
    CompleteRebalance,
    Effect,
    FailThread,
    RequestRejoin,
    SendUserData,
    ShowHosts,
    StopApplication,
    SuspendTasks,
)
from streams_py.member.events import (
    AssignmentReceived,
    DrainRequested,
    Event,
    LoopTurned,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    ShutdownRequested,
    SubscriptionRequested,
)
from streams_py.member.versions import next_used_version, start_protocols, start_version

PROCESS = ProcessId(uuid.UUID(int=1))
EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


class Checked(Member):
    """A member that validates its state after every event."""

    def handle(self, event: Event) -> tuple[Effect, ...]:
        effects = super().handle(event)
        self.validate_state()
        return effects


def new(**changes: object) -> Checked:
    return Checked(MemberSettings(PROCESS, **changes))  # type: ignore[arg-type]  # tests give what the fields take


def tps(text: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(part.rpartition("-")[0], int(part.rpartition("-")[2])) for part in text.split())


def sent(member: Member, sums: Mapping[TaskId, int] | None = None) -> SubscriptionInfo:
    [effect] = member.handle(SubscriptionRequested(sums or {}))
    assert isinstance(effect, SendUserData)
    return decode_subscription_info(effect.user_data)


def received(partitions: str = "", /, **fields: object) -> AssignmentReceived:
    info = AssignmentInfo(**fields)  # type: ignore[arg-type]  # tests give what the fields take
    return AssignmentReceived(tps(partitions), encode_assignment_info(info))


def error(code: int) -> AssignmentReceived:
    return AssignmentReceived((), encode_assignment_info(error_assignment(code)))


def only(effects: tuple[Effect, ...], kind: type[Effect]) -> Effect:
    [found] = [effect for effect in effects if isinstance(effect, kind)]
    return found


def stable(partitions: str = "", **fields: object) -> Checked:
    """Return a member that has an assignment and completed the rebalance."""
    member = new()
    sent(member)
    member.handle(received(partitions, **fields))
    member.handle(PartitionsAssigned())
    return member


# -- subscription ------------------------------------------------------------------------------------------------


def test_subscription_says_who_and_what() -> None:
    member = new(endpoint="http://h:80", client_tags={"zone": "a"})
    info = sent(member, {TaskId(0, 1): -2, TaskId(1, 0): 7})
    assert info == SubscriptionInfo(
        PROCESS, 11, 11, "http://h:80", {TaskId(0, 1): -2, TaskId(1, 0): 7}, 1, 0, {"zone": "a"}
    )


def test_unique_field_counts_as_a_signed_byte() -> None:  # L33
    member = new()
    seen = [sent(member).unique_field for _ in range(258)]
    assert seen[:3] == [1, 2, 3]
    assert seen[126:129] == [127, -128, -127]
    assert seen[255:] == [0, 1, 2]


def test_subscription_bytes_differ_every_time_and_nothing_else_does() -> None:
    member = new()
    first, second = sent(member), sent(member)
    assert first != second
    assert (first.task_offset_sums, first.process_id) == (second.task_offset_sums, second.process_id)


def test_rebalance_is_in_progress_from_subscription_to_completion() -> None:
    member = new()
    seen = [member.rebalance_in_progress]
    for event in (SubscriptionRequested(), received(), PartitionsAssigned()):
        member.handle(event)
        seen.append(member.rebalance_in_progress)
    assert seen == [False, True, True, False]


# -- upgrade.from ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("upgrade_from", "version", "protocols"),
    [
        (None, 11, (EAGER, COOPERATIVE)),
        ("0.10.0", 1, (EAGER,)),
        *[(release, 2, (EAGER,)) for release in ("0.10.1", "0.10.2", "0.11.0", "1.0", "1.1")],
        *[(release, 11, (EAGER,)) for release in ("2.0", "2.1", "2.2", "2.3")],
        *[(release, 11, (EAGER, COOPERATIVE)) for release in ("2.4", "2.8", "3.0", "3.8", "3.9", "4.0", "4.3")],
    ],
)
def test_upgrade_from_decides_version_and_protocols(
    upgrade_from: str | None, version: int, protocols: tuple[RebalanceProtocol, ...]
) -> None:  # L34
    member = new(upgrade_from=upgrade_from)
    assert start_version(upgrade_from) == member.used_version == sent(member).version == version
    assert start_protocols(upgrade_from) == member.protocols == protocols


@pytest.mark.parametrize("upgrade_from", ["", "2", "1.2", "0.9.0", "x.y", "99.0", "2.4.1", "-2.4", "²·4"])
def test_config_error_when_the_release_does_not_exist(upgrade_from: str) -> None:
    with pytest.raises(ConfigError, match=r"upgrade\.from"):
        start_version(upgrade_from)


# -- assignment --------------------------------------------------------------------------------------------------


def test_assignment_becomes_tasks_when_partitions_come_unsorted() -> None:
    member = new()
    sent(member)
    effects = member.handle(
        received(
            "y-0 x-1 x-0",
            active_tasks=(TaskId(0, 0), TaskId(0, 1), TaskId(0, 0)),
            standby_tasks={TaskId(1, 0): frozenset(tps("z-0"))},
        )
    )
    applied = only(effects, ApplyTasks)
    assert isinstance(applied, ApplyTasks)
    assert applied.tasks.active == {TaskId(0, 0): frozenset(tps("x-0 y-0")), TaskId(0, 1): frozenset(tps("x-1"))}
    assert applied.tasks.standby == {TaskId(1, 0): frozenset(tps("z-0"))}
    assert member.tasks == applied.tasks


def test_hosts_are_replaced_by_every_assignment() -> None:
    host = HostInfo("h", 1)
    member = new()
    sent(member)
    effects = member.handle(
        received(
            partitions_by_host={host: frozenset(tps("x-0"))}, standby_partitions_by_host={host: frozenset(tps("x-1"))}
        )
    )
    shown = only(effects, ShowHosts)
    assert isinstance(shown, ShowHosts)
    assert shown.hosts.active == {host: set(tps("x-0"))}
    assert shown.hosts.standby == {host: set(tps("x-1"))}
    assert frozenset().union(*shown.hosts.active.values()) == set(tps("x-0"))  # nothing from the standby map
    member.handle(received())
    assert member.hosts.active == {}


@pytest.mark.parametrize(
    ("version", "active", "standby", "scheduled"),
    [
        (1, False, False, NO_FOLLOW_UP),
        (2, True, False, NO_FOLLOW_UP),
        (6, True, True, NO_FOLLOW_UP),
        (7, True, True, 5),
    ],
)
def test_old_assignment_leaves_out_what_its_version_lacks(
    version: int, active: bool, standby: bool, scheduled: int
) -> None:
    member = new(upgrade_from={1: "0.10.0", 2: "1.0"}.get(version))
    host = {HostInfo("h", 1): frozenset(tps("x-0"))}
    sent(member)
    member.handle(
        received(
            version=version,
            commonly_supported_version=11 if version > 2 else -1,
            partitions_by_host=host,
            standby_partitions_by_host=host,
            next_rebalance_ms=5,
        )
    )
    assert (bool(member.hosts.active), bool(member.hosts.standby)) == (active, standby)
    assert member.next_rebalance_ms == (
        0 if 3 <= version < 11 else scheduled
    )  # a version change causes an immediate rejoin


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (received("x-0"), "0 active tasks for 1 assigned partitions"),
        (received(active_tasks=(TaskId(0, 0),)), "1 active tasks for 0 assigned partitions"),
        (AssignmentReceived((), b""), "AssignmentInfo"),
        (AssignmentReceived((), b"\x00\x00\x00\x0c" + bytes(60)), "version 12"),
        (received(commonly_supported_version=12), "all members support version 12"),
    ],
)
def test_thread_fails_and_nothing_changes_when_an_assignment_is_unusable(
    event: AssignmentReceived, message: str
) -> None:
    member = stable("x-0", active_tasks=(TaskId(0, 0),), next_rebalance_ms=77)
    before = (member.tasks, member.hosts, member.next_rebalance_ms, member.used_version)
    [effect] = member.handle(event)
    assert isinstance(effect, FailThread)
    with pytest.raises(TaskAssignmentError, match=message):
        raise effect.error
    assert (member.tasks, member.hosts, member.next_rebalance_ms, member.used_version) == before
    assert member.handle(PartitionsAssigned()) == (CompleteRebalance(),)


def test_thread_fails_when_a_leader_answers_in_a_version_it_was_not_offered() -> None:
    member = new(upgrade_from="1.0")
    sent(member)
    [effect] = member.handle(received(version=11))
    assert isinstance(effect, FailThread)
    assert "sent a subscription of version 2 and received an assignment of version 11" in str(effect.error)


# -- error codes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1, 2, 3, 4, 99])
def test_error_assignment_leaves_tasks_hosts_and_schedule_alone(code: int) -> None:  # L30
    host = {HostInfo("h", 1): frozenset(tps("x-0"))}
    member = stable("x-0", active_tasks=(TaskId(0, 0),), next_rebalance_ms=77, partitions_by_host=host)
    before = (member.tasks, member.hosts, member.next_rebalance_ms)
    effects = member.handle(error(code))
    assert not any(isinstance(effect, ApplyTasks | ShowHosts | FailThread) for effect in effects)
    assert (member.tasks, member.hosts, member.next_rebalance_ms) == before
    assert member.error_code == code


@pytest.mark.parametrize(("code", "kind"), [(1, MissingSourceTopicError), (3, TaskAssignmentError)])
def test_thread_fails_after_the_rebalance_when_the_code_says_so(code: int, kind: type[Exception]) -> None:
    member = stable()
    member.handle(error(code))
    complete, failure = member.handle(PartitionsAssigned())
    assert complete == CompleteRebalance()
    assert isinstance(failure, FailThread)
    assert isinstance(failure.error, kind)
    assert "leader's log" in str(failure.error)
    assert not member.rebalance_in_progress


def test_member_goes_on_when_the_code_is_version_probing() -> None:
    member = stable()
    member.handle(error(2))
    assert member.handle(PartitionsAssigned()) == (CompleteRebalance(),)
    assert not member.rebalance_in_progress


def test_client_stops_when_the_code_is_shutdown() -> None:
    member = stable()
    member.handle(error(4))
    assert member.handle(PartitionsAssigned()) == (CompleteRebalance(), StopApplication())
    assert member.handle(LoopTurned(10)) == ()


def test_thread_fails_without_completing_when_the_code_is_unknown() -> None:
    member = stable()
    member.handle(error(99))
    [failure] = member.handle(PartitionsAssigned())
    assert isinstance(failure, FailThread)
    assert "error code 99" in str(failure.error)
    assert member.rebalance_in_progress


def test_error_code_stays_when_a_good_assignment_follows() -> None:
    member = stable()
    member.handle(error(2))
    member.handle(received())
    assert sent(member).error_code == 2


def test_shutdown_is_asked_for_in_every_turn_until_everybody_knows() -> None:
    member = stable()
    member.handle(ShutdownRequested())
    assert sent(member).error_code == 4
    for _ in range(2):
        [effect] = member.handle(LoopTurned(1))
        assert isinstance(effect, RequestRejoin)


# -- follow-ups --------------------------------------------------------------------------------------------------

HOST, OTHER = HostInfo("me", 1), HostInfo("other", 2)


@pytest.mark.parametrize(
    ("fields", "scheduled"),
    [
        pytest.param({"commonly_supported_version": 11, "version": 10, "next_rebalance_ms": 9}, 0, id="row 1: version"),
        pytest.param({"partitions_by_host": {OTHER: frozenset()}, "next_rebalance_ms": 9}, 0, id="row 2: gone"),
        pytest.param({"partitions_by_host": {HOST: frozenset()}, "next_rebalance_ms": 9}, 9, id="row 2: there"),
        pytest.param({"partitions_by_host": {}, "next_rebalance_ms": 9}, 9, id="row 2: no hosts"),
        pytest.param({"next_rebalance_ms": 0}, 0, id="row 3"),
        pytest.param({"next_rebalance_ms": 123}, 123, id="row 4"),
        pytest.param({}, NO_FOLLOW_UP, id="row 5"),
    ],
)
@pytest.mark.parametrize("earlier", [0, 55, NO_FOLLOW_UP])
def test_schedule_follows_the_assignment(earlier: int, fields: dict[str, object], scheduled: int) -> None:  # L31
    member = new(endpoint="me:1")
    sent(member)
    member.handle(received(next_rebalance_ms=earlier))
    assert member.next_rebalance_ms == earlier
    member.handle(received(**fields))
    assert member.next_rebalance_ms == scheduled


def test_hosts_do_not_matter_when_this_member_has_no_end_point() -> None:  # L31
    member = stable(partitions_by_host={OTHER: frozenset()}, next_rebalance_ms=9)
    assert member.next_rebalance_ms == 9


def test_rejoin_is_requested_once_when_the_instant_has_passed() -> None:
    member = stable(next_rebalance_ms=1000)
    assert member.handle(LoopTurned(999)) == ()
    assert member.handle(LoopTurned(1000)) == ()  # strictly after
    [effect] = member.handle(LoopTurned(1001))
    assert isinstance(effect, RequestRejoin)
    assert member.next_rebalance_ms == NO_FOLLOW_UP
    assert member.handle(LoopTurned(1002)) == ()


def test_rejoin_is_requested_at_once_when_the_schedule_is_zero() -> None:
    assert stable(next_rebalance_ms=0).handle(LoopTurned(1))


def test_rejoin_waits_while_a_rebalance_is_in_progress() -> None:
    member = stable(next_rebalance_ms=0)
    sent(member)
    assert member.handle(LoopTurned(1)) == ()


def test_rejoin_never_comes_when_nothing_is_scheduled() -> None:
    assert stable().handle(LoopTurned(2**63 - 1)) == ()


# -- versions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "received_version", "common", "result"),
    [
        (11, 11, 11, (11, False)),
        (11, 10, 10, (10, True)),
        (10, 10, 11, (11, True)),
        (11, 10, 11, (11, True)),
        (11, 2, -1, (11, False)),
        (2, 2, -1, (2, False)),
        (11, 3, 3, (3, True)),
        (5, 5, 5, (5, False)),
    ],
)
def test_version_follows_the_assignment(
    used: int, received_version: int, common: int, result: tuple[int, bool]
) -> None:  # L32
    assert next_used_version(used, received_version, common) == result


def test_member_steps_down_and_up_again_when_the_group_does() -> None:
    member = new()
    sent(member)
    member.handle(received(version=9, commonly_supported_version=9))
    member.handle(PartitionsAssigned())
    assert member.handle(LoopTurned(1))  # rejoin immediately
    assert sent(member).version == 9
    member.handle(received(version=9, commonly_supported_version=11))
    assert sent(member).version == 11


# -- revocation and loss -----------------------------------------------------------------------------------------

TWO = {"active_tasks": (TaskId(0, 0), TaskId(0, 1), TaskId(0, 0), TaskId(0, 1))}  # x-0 x-1 y-0 y-1


def test_task_is_suspended_when_all_of_its_partitions_are_revoked() -> None:
    member = stable("x-0 x-1 y-0 y-1", **TWO)
    assert SuspendTasks((TaskId(0, 0),)) in member.handle(PartitionsRevoked(tps("x-0 y-0")))
    assert set(member.tasks.active) == {TaskId(0, 1)}


def test_task_goes_on_when_only_a_part_of_it_is_revoked() -> None:
    member = stable("x-0 x-1 y-0 y-1", **TWO)
    effects = member.handle(PartitionsRevoked(tps("x-0 gone-7")))
    assert [effect for effect in effects if isinstance(effect, SuspendTasks)] == [SuspendTasks(())]
    assert set(member.tasks.active) == {TaskId(0, 0), TaskId(0, 1)}


def test_nothing_is_suspended_when_nothing_is_revoked() -> None:
    assert stable("x-0", active_tasks=(TaskId(0, 0),)).handle(PartitionsRevoked(())) == ()


def test_task_that_was_suspended_is_closed_with_the_others_when_membership_is_lost() -> None:
    member = stable("x-0 x-1 y-0 y-1", **TWO)
    member.handle(PartitionsRevoked(tps("x-0 y-0")))
    assert member.handle(PartitionsLost(tps("x-1 y-1"))) == (CloseLostTasks((TaskId(0, 0), TaskId(0, 1))),)
    assert member.handle(PartitionsLost(())) == (CloseLostTasks(()),)


def test_task_that_came_back_is_not_lost_twice() -> None:
    member = stable("x-0 x-1 y-0 y-1", **TWO)
    member.handle(PartitionsRevoked(tps("x-0 y-0")))
    member.handle(received("x-1 y-1", active_tasks=(TaskId(0, 1), TaskId(0, 1))))
    assert member.handle(PartitionsLost(tps("x-1 y-1"))) == (CloseLostTasks((TaskId(0, 1),)),)


def test_all_actives_are_closed_without_commit_and_standbys_stay_when_membership_is_lost() -> None:
    standby = {TaskId(1, 0): frozenset(tps("z-0"))}
    member = stable("x-0 x-1 y-0 y-1", **TWO, standby_tasks=standby)
    assert member.handle(PartitionsLost(tps("x-0 x-1 y-0 y-1"))) == (CloseLostTasks((TaskId(0, 0), TaskId(0, 1))),)
    assert member.tasks.active == {}
    assert member.tasks.standby == standby
    assert not member.rebalance_in_progress


# -- handing over ------------------------------------------------------------------------------------------------


def test_draining_member_tells_the_leader_once_and_is_drained_when_it_has_no_active_task() -> None:
    member = stable("in-0", active_tasks=(TaskId(0, 0),))
    assert member.handle(LoopTurned(1)) == ()
    member.handle(DrainRequested())
    assert only(member.handle(LoopTurned(1)), RequestRejoin) == RequestRejoin("its tasks are to be handed over")
    assert not member.is_drained
    assert sent(member).client_tags == {"streams-py.draining": "true"}
    member.handle(received("in-0", active_tasks=(TaskId(0, 0),)))
    member.handle(PartitionsAssigned())
    assert member.handle(LoopTurned(1)) == ()
    assert not member.is_drained
    assert sent(member).client_tags == {"streams-py.draining": "true"}
    member.handle(PartitionsRevoked(tps("in-0")))
    member.handle(received())
    member.handle(PartitionsAssigned())
    assert not member.is_drained  # no other member has received the task yet
    sent(member)
    member.handle(received())
    assert not member.is_drained  # not before the rebalance has ended
    member.handle(PartitionsAssigned())
    assert member.is_drained


def test_member_that_drains_before_it_joins_says_so_at_once() -> None:
    member = new(client_tags={"zone": "a"})
    member.handle(DrainRequested())
    assert member.handle(LoopTurned(1)) == ()
    assert sent(member).client_tags == {"zone": "a", "streams-py.draining": "true"}
