"""Handing over tasks before a close, and the answers of probes, with threads whose state changes the test makes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams_py import State
from streams_py.runtime.group.transport import Leave
from streams_py.runtime.thread.states import ThreadState
from tests.support.runtime.fake_threads import Client
from tests.support.runtime.world import Steps, World, copying, counting, task, tp
from tests.support.waiting import until


def running(client: Client) -> Client:
    for thread in client.start():
        thread.run()
    return client


def test_drain_asks_every_thread_and_ends_when_all_have_handed_over(client: Client) -> None:
    running(client)
    answers: list[bool] = []
    draining = threading.Thread(target=lambda: answers.append(client.streams.drain(None)))
    draining.start()
    until(lambda: all("drain" in thread.asked for thread in client.made), "both threads to be asked")
    assert not client.streams.is_ready()
    assert client.streams.is_alive()
    client.made[0].is_drained = True
    added = client.streams.add_stream_thread()
    assert added is not None
    assert "drain" in client.made[2].asked  # it must not get the tasks that the others handed over
    for thread in client.made:
        thread.is_drained = True
    draining.join()
    assert answers == [True]
    assert client.streams.state is not State.NOT_RUNNING


def test_drain_gives_up_after_its_timeout_and_says_what_is_left(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    running(client)
    assert not client.streams.drain(0.5)
    assert "not drained after 0.5 s: still has no active tasks" in caplog.text


def test_drain_ends_when_the_client_does(client: Client) -> None:
    running(client)
    client.world.clock.sleep_ms = lambda _: client.streams.close(0)  # type: ignore[method-assign]
    assert not client.streams.drain(None)
    assert not client.streams.drain(None)


@pytest.mark.parametrize("where", ["stream thread", "state listener"])
def test_drain_does_not_wait_where_it_would_wait_for_itself(client: Client, where: str) -> None:
    running(client)
    client.world.clock.sleep_ms = lambda _: pytest.fail("it waits")  # type: ignore[method-assign]
    answers: list[bool] = []
    if where == "stream thread":
        client.made[0].is_current = True
        answers.append(client.streams.drain(None))
    else:
        client.listen = lambda new, old: answers.append(client.streams.drain(None))
        client.made[0].go(ThreadState.PARTITIONS_REVOKED)
    assert answers == [False]
    assert all("drain" in thread.asked for thread in client.made)
    for thread in client.made:
        thread.is_drained = True
    assert client.streams.drain(None)


def test_negative_timeout_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        client.streams.drain(-1)


# -- a close that leaves the group -------------------------------------------------------------------------------


@pytest.fixture
def working(client: Client) -> Client:
    """A client that processes state and is not alone in the group; its threads stop when requested."""

    def end(new: State, old: State) -> None:
        if new is State.PENDING_SHUTDOWN:
            for thread in client.made:
                thread.end()

    running(client)
    client.listen = end
    for thread in client.made:
        thread.processes_state = True
    return client


def while_it_waits(client: Client, happens: Callable[[], object]) -> list[int]:
    """Call a function each time the client waits; return the durations of the waits in ms."""
    waits: list[int] = []
    sleep = client.world.clock.sleep_ms

    def wait(duration_ms: int) -> None:
        waits.append(duration_ms)
        sleep(duration_ms)
        happens()

    client.world.clock.sleep_ms = wait  # type: ignore[method-assign]
    return waits


def refuse_to_wait(client: Client) -> None:
    client.world.clock.sleep_ms = lambda _: pytest.fail("it waits")  # type: ignore[method-assign]


def shut_down(client: Client) -> list[Any]:
    """Return how each thread was requested to stop: whether to leave, and the timeout in ms."""
    return [asked for thread in client.made for asked in thread.asked if asked[0] == "shut down"]


def test_close_that_leaves_lets_others_take_over_first(working: Client) -> None:
    def hand_over() -> None:
        assert not shut_down(working)
        assert working.streams.state is State.RUNNING
        working.made[len(waits) - 1].is_drained = True

    waits = while_it_waits(working, hand_over)
    assert working.streams.close(30, leave_group=True)
    assert [thread.asked.count("drain") for thread in working.made] == [1, 1]
    assert shut_down(working) == [("shut down", Leave.FOR_GOOD, 30_000 - sum(waits))] * 2
    assert working.streams.state is State.NOT_RUNNING


def test_close_that_does_not_leave_hands_nothing_over(working: Client) -> None:
    refuse_to_wait(working)
    assert working.streams.close(30)
    assert shut_down(working) == [("shut down", Leave.STAY, 30_000)] * 2


@pytest.mark.parametrize(("timeout", "at_most_ms"), [(30, 10_000), (None, 20_000)])
def test_close_leaves_when_nobody_takes_over_within_a_part_of_its_timeout_and_names_what_it_had(
    working: Client, caplog: pytest.LogCaptureFixture, timeout: float | None, at_most_ms: int
) -> None:
    working.made[0].is_drained = True
    working.made[1].tasks = [SimpleNamespace(id="1_0", is_active=True), SimpleNamespace(id="1_1", is_active=False)]
    waits = while_it_waits(working, lambda: None)
    assert working.streams.close(timeout, leave_group=True)
    assert at_most_ms <= sum(waits) <= at_most_ms + 20
    left_ms = None if timeout is None else 1000 * timeout - sum(waits)
    assert shut_down(working) == [("shut down", Leave.FOR_GOOD, left_ms)] * 2
    assert "not drained after" in caplog.text
    assert "still has 1_0\n" in caplog.text


def without_state(client: Client) -> None:
    for thread in client.made:
        thread.processes_state = False


def alone(client: Client) -> None:
    client.made[1].drain_gains = False


def drained_in_vain(client: Client) -> None:
    assert not client.streams.drain(0)


def on_a_stream_thread(client: Client) -> None:
    client.made[0].is_current = True


@pytest.mark.parametrize("how", [without_state, alone, drained_in_vain, on_a_stream_thread])
def test_close_leaves_immediately_where_waiting_gains_nothing(working: Client, how: Callable[[Client], None]) -> None:
    how(working)
    asked = [thread.asked.count("drain") for thread in working.made]
    refuse_to_wait(working)
    working.streams.close(30, leave_group=True)
    assert [thread.asked.count("drain") for thread in working.made] == asked
    assert shut_down(working) == [("shut down", Leave.FOR_GOOD, 30_000)] * 2


def test_close_that_may_not_wait_leaves_immediately(working: Client) -> None:
    refuse_to_wait(working)
    working.streams.close(0, leave_group=True)
    assert shut_down(working) == [("shut down", Leave.FOR_GOOD, None)] * 2


@pytest.mark.parametrize(("setting", "leave"), [("always", Leave.LEAVE), ("never", Leave.STAY)])
def test_setting_decides_without_a_hand_over_unless_the_close_does(tmp_path: Path, setting: str, leave: Leave) -> None:
    def closed(leave_group: bool | None) -> list[tuple[object, ...]]:
        client = running(Client(tmp_path, num_stream_threads=2, leave_group_on_close=setting))
        for thread in client.made:
            thread.processes_state = True
        refuse_to_wait(client)
        client.streams.close(0, leave_group=leave_group)
        for thread in client.made:
            thread.end()
        return shut_down(client)

    assert closed(None) == [("shut down", leave, None)] * 2
    assert closed(True) == [("shut down", Leave.FOR_GOOD, None)] * 2
    assert closed(False) == [("shut down", Leave.STAY, None)] * 2


def test_close_before_the_start_leaves_immediately(client: Client) -> None:
    refuse_to_wait(client)
    assert client.streams.close(30, leave_group=True)
    assert client.streams.state is State.NOT_RUNNING


def test_close_after_a_failure_waits_for_nobody(working: Client) -> None:
    working.made[0].fail(RuntimeError("no"))
    working.made[1].end()
    assert working.streams.state is State.ERROR
    refuse_to_wait(working)
    assert working.streams.close(30, leave_group=True)


def test_thread_that_has_ended_does_not_know_any_more_who_is_there(working: Client) -> None:
    alone(working)
    working.made[1].end()

    def hand_over() -> None:
        working.made[0].is_drained = working.made[1].is_drained = True

    while_it_waits(working, hand_over)
    assert working.streams.close(30, leave_group=True)
    assert "drain" in working.made[0].asked


def test_close_continues_when_all_others_have_left_meanwhile(working: Client) -> None:
    waits = while_it_waits(working, lambda: alone(working))
    assert working.streams.close(30, leave_group=True)
    assert len(waits) == 1
    assert shut_down(working) == [("shut down", Leave.FOR_GOOD, 30_000 - waits[0])] * 2


@pytest.mark.parametrize("leave_group", [False, True])
def test_second_close_cuts_the_hand_over_short(working: Client, leave_group: bool) -> None:
    waits = while_it_waits(working, lambda: working.streams.close(5, leave_group=leave_group))
    assert working.streams.close(30, leave_group=True)
    assert len(waits) == 1
    assert shut_down(working) == [("shut down", Leave.FOR_GOOD, 5_000)] * 2  # as the first one wanted


def test_close_continues_when_handing_over_fails(working: Client, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("cannot")

    working.made[0].drain = fail  # type: ignore[method-assign]
    assert working.streams.close(30, leave_group=True)
    assert shut_down(working) == [("shut down", Leave.FOR_GOOD, 30_000)] * 2
    assert "handing the tasks over failed; closing without it" in caplog.text


def test_ctrl_c_while_handing_over_leaves_a_client_that_closes(working: Client) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    while_it_waits(working, interrupt)
    with pytest.raises(KeyboardInterrupt):
        working.streams.close(30, leave_group=True)
    assert shut_down(working) == [("shut down", Leave.FOR_GOOD, 29_980)] * 2
    assert working.streams.close(30)
    assert working.streams.state is State.NOT_RUNNING


def test_signal_drains_once_however_that_ends(working: Client) -> None:
    working.streams._close_and_log(drain=0.5)  # what `run` calls after a signal
    assert [thread.asked.count("drain") for thread in working.made] == [1, 1]
    assert shut_down(working) == [("shut down", Leave.FOR_GOOD, None)] * 2


def test_thread_processes_state_once_an_active_task_that_has_some_is_restored(tmp_path: Path) -> None:
    steps = Steps(World(**{"in": 2, "out": 2, "app-counts-changelog": 2}), counting(), tmp_path)
    assert not steps.thread.processes_state
    steps.run({}, standby={task("0_1"): [tp("in-1")]})
    assert not steps.thread.processes_state
    steps.membership.round({task("0_0"): [tp("in-0")]})
    steps.loop.iterate()
    assert steps.tasks == {"0_0": "RESTORING"}
    assert not steps.thread.processes_state
    steps.turn(4)
    assert steps.tasks == {"0_0": "RUNNING"}
    assert steps.thread.processes_state


def test_thread_whose_tasks_have_no_stores_processes_no_state(tmp_path: Path) -> None:
    steps = Steps(World(**{"in": 2, "out": 2}), copying(), tmp_path)
    steps.run({task("0_0"): [tp("in-0")]})
    assert not steps.thread.processes_state


# -- probes ------------------------------------------------------------------------------------------------------


def test_probes_follow_the_life_of_the_client(client: Client) -> None:
    streams = client.streams
    assert (streams.is_alive(), streams.is_ready()) == (True, False)
    running(client)
    assert (streams.is_alive(), streams.is_ready()) == (True, True)
    client.made[0].is_stuck = True
    assert (streams.is_alive(), streams.is_ready()) == (False, True)
    client.made[0].is_stuck = False
    streams.close(0)
    assert (streams.is_alive(), streams.is_ready()) == (True, False)
    for thread in client.made:
        thread.end()
    assert (streams.is_alive(), streams.is_ready()) == (False, False)


def test_client_that_failed_is_not_alive(client: Client) -> None:
    running(client)
    client.made[0].fail(RuntimeError("no"))
    assert not client.streams.is_alive()
