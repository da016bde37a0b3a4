"""The bridge between network thread and polling thread."""

from __future__ import annotations

import threading

import pytest
from kafka.future import Future

from streams_py.adapters.kafka_python.callbacks import CallbackInbox


def drive(inbox: CallbackInbox, function, *arguments):
    """Start ``inbox.call`` as the network thread would; returns the coroutine's way to be finished."""
    coroutine = inbox.call(function, *arguments)
    answer = coroutine.send(None)  # it now waits for kafka-python's future
    assert isinstance(answer, Future)
    return coroutine, answer


@pytest.fixture
def inbox():
    return CallbackInbox(lambda function: function())


def test_call_is_made_by_whoever_serves_and_its_result_comes_back(inbox):
    seen = []
    coroutine, answer = drive(inbox, lambda text: seen.append(threading.current_thread()) or f"<{text}>", "x")
    inbox.wake()
    inbox.serve(5)
    assert seen == [threading.current_thread()]
    assert answer.value == "<x>"
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    assert stop.value.value == "<x>"


def test_exception_of_a_call_comes_back(inbox):
    def fail():
        raise KeyError("k")

    _, answer = drive(inbox, fail)
    inbox.wake()
    inbox.serve(5)
    assert isinstance(answer.exception, KeyError)


def test_serving_until_done_makes_calls_in_between(inbox):
    done = Future()
    drive(inbox, lambda: done.success(1))
    assert inbox.serve_until(done) is True


def test_serving_ends_and_calls_stay_undone_when_closed(inbox):
    seen = []
    drive(inbox, seen.append, 1)
    inbox.close()
    assert inbox.serve_until(Future()) is False
    inbox.serve(5)
    assert seen == []


def test_serving_ends_when_the_network_thread_has_died(inbox, monkeypatch):
    monkeypatch.setattr("streams_py.adapters.kafka_python.callbacks._ALIVE_S", 0.0)

    def dead():
        raise RuntimeError("dead")

    with pytest.raises(RuntimeError, match="dead"):
        inbox.serve_until(Future(), dead)
