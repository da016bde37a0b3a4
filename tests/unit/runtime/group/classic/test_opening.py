"""What the threads of one client share in a classic group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import AssignorError, TaskAssignmentError
from streams_py.runtime.group.classic.leader_executor import LeaderLimits
from streams_py.runtime.group.classic.opening import check_assignor
from streams_py.runtime.group.classic.transport import ClassicTransport
from streams_py.runtime.group.transport import Leave
from tests.support.runtime.world import Steps, World, counting


@pytest.fixture
def world() -> World:
    return World(**{"in": 2, "out": 2})


def another(steps: Steps, index: int) -> ClassicTransport:
    """Return the transport of another thread of the same client."""
    group: Any = steps.instance.group
    thread: Any = steps.thread
    transport: ClassicTransport = group.open(f"thread-{index}", index, thread.inbox, thread, thread)
    return transport


def reason_of(steps: Steps) -> TaskAssignmentError:
    """Return the error that the client's first thread gets in a rebalance that fails with a code."""
    steps.membership.round({}, error_code=3)
    with pytest.raises(TaskAssignmentError) as caught:
        steps.turn()
    return caught.value


def test_thread_hears_the_reason_from_the_leader_on_another_thread(world: World, tmp_path: Path) -> None:
    steps = Steps(world, counting(), tmp_path)
    leader = another(steps, 2)
    leader._leader_executor.outcome.failure = reason = TaskAssignmentError("too few partitions")  # as if it failed
    assert reason_of(steps) is reason


def test_removed_thread_explains_nothing(world: World, tmp_path: Path) -> None:
    steps = Steps(world, counting(), tmp_path)
    leader = another(steps, 2)
    leader._leader_executor.outcome.failure = TaskAssignmentError("too few partitions")  # as if it failed
    leader.close(Leave.FOR_GOOD, timeout_ms=0)
    assert "the leader's log has the reason" in str(reason_of(steps))


def test_thread_that_failed_explains_until_its_replacement_opens(world: World, tmp_path: Path) -> None:
    steps = Steps(world, counting(), tmp_path)
    leader = another(steps, 2)
    leader._leader_executor.outcome.failure = reason = TaskAssignmentError("too few partitions")  # as if it failed
    leader.close(Leave.LEAVE, timeout_ms=0)
    assert reason_of(steps) is reason
    another(steps, 2)
    assert reason_of(steps) is not reason


def test_static_member_is_removed_even_if_it_cannot_leave(world: World, tmp_path: Path) -> None:
    steps = Steps(world, counting(), tmp_path, group_instance_id="me")
    transport = another(steps, 2)

    def fail(**_: object) -> None:
        raise ZeroDivisionError

    transport._membership.leave_and_close = fail  # type: ignore[method-assign]  # it cannot leave
    with transport.ending(), pytest.raises(ZeroDivisionError):
        transport.close(Leave.FOR_GOOD, timeout_ms=0)
    assert world.diary[-1] == ("remove member", "app", "me-2", "")


@pytest.mark.parametrize("leave", [Leave.STAY, Leave.LEAVE])
def test_static_member_stays_unless_its_thread_ends_for_good(world: World, tmp_path: Path, leave: Leave) -> None:
    steps = Steps(world, counting(), tmp_path, group_instance_id="me")
    another(steps, 2).close(leave, timeout_ms=0)
    assert "remove member" not in world.names()


def test_assign_step_and_its_requests_end_before_the_group_drops_its_leader() -> None:
    assert LeaderLimits.within(300_000) == LeaderLimits(150_000, 30_000)
    assert LeaderLimits.within(10_000) == LeaderLimits(5_000, 3_000)


def test_class_that_is_no_assignor_is_refused_before_the_client_opens() -> None:
    with pytest.raises(AssignorError, match=r"task\.assignor\.class"):
        check_assignor(StreamsConfig.of(application_id="a", bootstrap_servers="b:1", task_assignor_class=dict))
