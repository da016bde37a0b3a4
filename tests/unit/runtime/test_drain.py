"""Handing tasks over before the end, and what probes are told, with threads whose changes are made by the test."""

from __future__ import annotations

import threading

import pytest

from streams_py import State
from streams_py.runtime.states import ThreadState
from tests.unit.runtime.fake_threads import Client
from tests.waiting import until


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
    assert "drain" in client.made[2].asked  # it must not get what the others gave away
    for thread in client.made:
        thread.is_drained = True
    draining.join()
    assert answers == [True]
    assert client.streams.state is not State.NOT_RUNNING


def test_drain_gives_up_after_its_time_out_and_says_what_is_left(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    running(client)
    assert not client.streams.drain(0.5)
    assert "not drained after 0.5 s: it has nothing" in caplog.text


def test_drain_ends_when_the_client_does(client: Client) -> None:
    running(client)
    client.streams._clock.sleep_ms = lambda _: client.streams.close(0)  # type: ignore[method-assign]
    assert not client.streams.drain(None)
    assert not client.streams.drain(None)


@pytest.mark.parametrize("where", ["stream thread", "state listener"])
def test_drain_does_not_wait_where_it_would_wait_for_itself(client: Client, where: str) -> None:
    running(client)
    client.streams._clock.sleep_ms = lambda _: pytest.fail("it waits")  # type: ignore[method-assign]
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


def test_negative_time_out_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        client.streams.drain(-1)


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
