"""How calls share the event loop: limits, wake-ups, timeouts, contexts."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import traceback
from contextvars import ContextVar
from random import Random
from typing import Any

import pytest

from streams_py import StreamsBuilder, serdes
from streams_py.errors import CallTimeoutError
from streams_py.runtime.tasks.asynchronous.event_loop import Background, EventLoop
from streams_py.runtime.tasks.asynchronous.in_flight import Call
from streams_py.runtime.tasks.settings.handlers import Answer
from tests.support.runtime.async_kit import TEXT, Service, add, asking, failing, offset, until_sent, values
from tests.support.runtime.task_kit import Kit
from tests.support.waiting import until


def test_calls_of_one_event_loop_turn_wake_the_stream_thread_once() -> None:
    loop = EventLoop("wakes")
    background = Background(loop)
    posted, sets = threading.Event(), 0

    class Counted(threading.Event):
        def set(self) -> None:
            nonlocal sets
            sets += 1
            super().set()

    background.wakeup = Counted()

    def end_five_calls() -> None:
        for _ in range(5):
            background.wake_up_soon()
        assert sets == 0, "while the loop has something to do"
        posted.set()

    loop.post(end_five_calls)
    assert posted.wait(60)
    background.wait(60_000)
    assert sets == 1
    loop.post(background.wake_up_soon)
    background.wait(60_000)
    assert sets == 2
    loop.close()


def test_the_loop_is_not_woken_for_records_while_all_places_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    posts: list[str] = []
    post = EventLoop.post
    monkeypatch.setattr(
        EventLoop, "post", lambda self, call, *args: (posts.append(call.__name__), post(self, call, *args))[1]
    )
    service = Service()
    kit = asking(service, concurrency=2)
    add(kit, *((str(number), str(number)) for number in range(9)))
    kit.task.process(2)
    until(lambda: len(service.asked) == 2, "the first calls")
    posts.clear()
    kit.task.process(100)
    assert posts == []
    service.answer(*map(str, range(9)))
    until(lambda: (kit.task.process(1), len(values(kit)) == 9)[1], "all answers")


def test_only_the_calls_that_are_late_end_and_places_go_to_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    service, jumped_s, new_event_loop = Service(), 0.0, asyncio.new_event_loop

    def with_a_clock_that_jumps() -> asyncio.AbstractEventLoop:
        loop = new_event_loop()
        loop.time = lambda: time.monotonic() + jumped_s  # type: ignore[method-assign]
        return loop

    monkeypatch.setattr(asyncio, "new_event_loop", with_a_clock_that_jumps)

    async def ask(value: str) -> str:
        if value.startswith("late"):
            return await service.ask(value)
        await asyncio.sleep(0)
        return value

    builder = StreamsBuilder()
    caught: list[Any] = []
    builder.stream("in", **TEXT).map_values_async(ask, concurrency=2, timeout=600_000).to("out", **TEXT)
    kit = Kit(builder.build(), **failing(Answer.CONTINUE, caught))
    add(kit, ("a", "late1"), ("b", "1"), ("a", "2"), ("c", "3"), ("d", "late2"), ("e", "4"))
    until(lambda: (kit.task.process(100), service.asked == ["late1", "late2"])[1], "both places to be taken")
    until(lambda: (kit.task.process(100), sorted(values(kit)) == ["1", "3"])[1], "answers to the others that had one")
    jumped_s = 601.0
    until(lambda: (kit.task.process(100), len(values(kit)) + len(caught) == 6)[1], "an end of each")
    assert sorted(values(kit)) == ["1", "2", "3", "4"]
    assert [(context.offset, type(error)) for context, _, error in caught] == [
        (0, CallTimeoutError),
        (4, CallTimeoutError),
    ]
    until(lambda: sorted(service.cancelled) == ["late1", "late2"], "the late calls to be cancelled")
    assert offset(kit) == 6


def test_a_call_that_somebody_cancels_before_it_began_is_reported_too() -> None:
    async def cancel_others(value: str) -> str:
        if value == "first":
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
        return value

    builder = StreamsBuilder()
    caught: list[Any] = []
    builder.stream("in", **TEXT).map_values_async(cancel_others, timeout=50).to("out", **TEXT)
    kit = Kit(builder.build(), **failing(Answer.CONTINUE, caught))
    add(kit, ("a", "first"), ("b", "second"))
    kit.task.process(100)
    kit.task.await_answers()
    assert values(kit) == ["first"]
    [(context, _, error)] = caught
    assert context.offset == 1
    assert "was cancelled by its own code" in str(error)


def test_each_call_has_context_variables_of_its_own() -> None:
    seen: list[str] = []
    variable: ContextVar[str] = ContextVar("variable", default="none")

    async def note(value: str) -> str:
        seen.append(variable.get())
        variable.set(value)
        await asyncio.sleep(0)
        return variable.get()

    builder = StreamsBuilder()
    builder.stream("in", **TEXT).map_values_async(note, concurrency=1).to("out", **TEXT)
    kit = Kit(builder.build())
    add(kit, *((key, key) for key in "abc"))
    until_sent(kit, "a", "b", "c")
    assert seen == ["none"] * 3


def test_an_error_does_not_keep_its_record_in_memory() -> None:
    async def refuse(value: str) -> str:
        await asyncio.sleep(0)
        raise ValueError(value)

    builder = StreamsBuilder()
    caught: list[Any] = []
    builder.stream("in", **TEXT).map_values_async(refuse).to("out", **TEXT)
    kit = Kit(builder.build(), **failing(Answer.CONTINUE, caught))
    add(kit, ("a", "1"))
    kit.task.process(100)
    kit.task.await_answers()
    [(_, _, error)] = caught
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)][-1] == "refuse"
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert not any("call" in frame.f_locals for frame in frames if frame.f_code.co_name == "_answer")


@pytest.mark.parametrize("ordered", [False, True])
def test_records_that_were_answered_are_forgotten(ordered: bool) -> None:
    service = Service()
    service.answer("v")
    kit = asking(service, ordered=ordered)
    add(kit, *((f"forgotten-{ordered}-{number}", "v") for number in range(20)))
    until_sent(kit, *["V"] * 20)
    kept = [one for one in gc.get_objects() if type(one) is Call and str(one.key).startswith(f"forgotten-{ordered}")]
    assert kept == []


def test_a_coroutine_that_stops_the_loop_does_not_stop_the_others() -> None:
    async def ask(value: str) -> str:
        if value == "stop":
            asyncio.get_running_loop().stop()
        await asyncio.sleep(0.001)
        return value

    builder = StreamsBuilder()
    builder.stream("in", **TEXT).map_values_async(ask, ordered=True).to("out", **TEXT)
    kit = Kit(builder.build())
    add(kit, ("a", "stop"), ("b", "1"))
    until_sent(kit, "stop", "1")
    add(kit, ("c", "2"), first=2)
    until_sent(kit, "stop", "1", "2")


def test_a_coroutine_that_blocks_the_loop_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streams_py.runtime.tasks.asynchronous.event_loop._BLOCKED_S", 0.02)
    goes_on = threading.Event()

    async def ask(value: str) -> str:
        goes_on.wait(60)
        return value

    builder = StreamsBuilder()
    builder.stream("in", **TEXT).map_values_async(ask).to("out", **TEXT)
    kit = Kit(builder.build())
    add(kit, ("a", "1"))
    kit.task.process(1)

    def told() -> bool:
        assert kit.task.await_answers(1) == 0
        return "blocked the event loop" in caplog.text

    kit.clock.monotonic_ms = lambda: time.monotonic_ns() // 1_000_000  # type: ignore[method-assign]
    until(told, "a warning")
    assert "test_event_loop.py" in caplog.text
    goes_on.set()
    until_sent(kit, "1")


class Unhashable(str):
    """A key whose class is not hashable by mistake."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise ValueError("no hash")


def test_a_key_that_cannot_be_told_from_others_is_an_error_of_its_record() -> None:
    service, caught = Service(), list[Any]()
    keys = serdes.serde(serialize=lambda key: key.encode(), deserialize=lambda data: Unhashable(data.decode()))
    builder = StreamsBuilder()
    builder.stream("in", key=keys, value=serdes.STRING).map_values_async(service.ask).to("out", **TEXT)
    kit = Kit(builder.build(), **failing(Answer.CONTINUE, caught))
    add(kit, ("a", "1"), (None, "2"))
    service.answer("2")
    until_sent(kit, "2")
    kit.task.await_answers()
    assert [(failed.value, str(error)) for _, failed, error in caught] == [("1", "no hash")]
    assert offset(kit) == 2


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("concurrency", [1, 3, 64])
def test_every_record_is_answered_once_in_the_order_of_its_key(concurrency: int, ordered: bool) -> None:
    random = Random(concurrency)
    running, most = 0, 0

    async def ask(value: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            for _ in range(int(value) % 4):
                await asyncio.sleep(0)
            if int(value) % 5 == 0:
                await asyncio.sleep(0.001)
            if int(value) % 7 == 0:
                raise ValueError(value)
            return value
        finally:
            running -= 1

    builder = StreamsBuilder()
    caught: list[Any] = []
    stream = builder.stream("in", **TEXT).map_values_async(ask, concurrency=concurrency, ordered=ordered)
    stream.to("out", **TEXT)
    kit = Kit(builder.build(), **failing(Answer.CONTINUE, caught))
    pairs = [(random.choice(["a", "b", "c", None]), str(number)) for number in range(400)]
    add(kit, *pairs)
    while kit.task.buffered_records or kit.task.calls.are_running:
        kit.task.process(random.randrange(1, 40))
    failed = {failed.value for _, failed, _ in caught}
    assert failed == {value for _, value in pairs if int(value) % 7 == 0}
    answered = [(None if key is None else key.decode(), (value or b"").decode()) for key, value, _ in kit.sent("out")]
    expected = [pair for pair in pairs if pair[1] not in failed]
    if ordered:
        assert answered == expected
    for key in "abc":
        assert [pair for pair in answered if pair[0] == key] == [pair for pair in expected if pair[0] == key]
    assert sorted(answered, key=str) == sorted(expected, key=str)
    assert most <= concurrency
    assert offset(kit) == 400
