"""The largest batch of a topic, when brokers answer and when no broker answers."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from streams_py.adapters.confluent import topic_limits
from streams_py.adapters.confluent.embedded.mock_library import MockCluster
from streams_py.adapters.confluent.topic_limits import TopicLimits
from tests.support.clocks import FakeTime

SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "client.id": "limits"}


class Library:
    """An admin client whose answers are given: text of ``max.message.bytes``, None for no entry, or an error."""

    answers: list[str | Exception | None]
    asked: list[str]

    def __init__(self, settings: object, **_: object) -> None: ...

    def describe_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        [resource] = resources
        self.asked.append(resource.name)
        answer, future = self.answers.pop(0), Future[Any]()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result({} if answer is None else {"max.message.bytes": SimpleNamespace(value=answer)})
        return {resource: future}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    clock = FakeTime()
    monkeypatch.setattr(topic_limits, "time", clock)
    return clock


def library(monkeypatch: pytest.MonkeyPatch, *answers: str | Exception | None) -> type[Library]:
    monkeypatch.setattr(topic_limits, "AdminClient", Library)
    Library.answers, Library.asked = list(answers), []
    return Library


def test_limit_is_asked_for_once_in_five_minutes_and_leaves_room_for_the_batch(
    monkeypatch: pytest.MonkeyPatch, clock: FakeTime
) -> None:
    asked = library(monkeypatch, "10000", None, "20000").asked
    limits = TopicLimits(SETTINGS)
    assert [limits.batch_bytes_max(topic) for topic in ("t", "t", "u", "u")] == [9_488, 9_488, None, None]
    assert asked == ["t", "u"]
    clock.now_s += 301
    assert limits.batch_bytes_max("t") == 19_488


def test_no_broker_is_asked_for_thirty_seconds_after_a_request_without_an_answer(
    monkeypatch: pytest.MonkeyPatch, clock: FakeTime
) -> None:
    asked = library(monkeypatch, TimeoutError(), "10000").asked
    limits = TopicLimits(SETTINGS)
    assert [limits.batch_bytes_max(topic) for topic in ("t", "t", "u")] == [None, None, None]
    assert asked == ["t"]
    clock.now_s += 31
    assert limits.batch_bytes_max("u") == 9_488


def test_limit_is_unknown_when_the_cluster_does_not_answer(
    cluster: MockCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_limits, "_TIMEOUT_S", 0.2)
    limits = TopicLimits({**SETTINGS, "bootstrap.servers": cluster.bootstrap})
    assert limits.batch_bytes_max(topic) is None
