"""What a service answers over HTTP when something in it hangs, fails, or is not what the caller thinks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from streams_protocol.types import HostInfo
from streams_py import State
from streams_py.errors import RegistryUnavailableError
from streams_py.query import routing
from streams_py.query.app import query_app
from streams_py.query.routing import HOP_HEADER, Router
from streams_py.runtime.queries.hosts import KeyQueryMetadata
from streams_py.serdes import STRING, Serde, serde
from streams_py.topology.declare.stores import StoreKind
from tests.support.waiting import PATIENCE_S

OWN = HostInfo("own", 1)


class Streams:
    """An instance that has one partition of one store."""

    state = State.RUNNING

    def __init__(self) -> None:
        self.values: Any = {"k": 7}
        self.serde: Serde[Any] = STRING
        place = KeyQueryMetadata(OWN, frozenset(), 0)
        self.query_metadata_for_key = lambda store, key: place
        self.all_local_store_partition_lags: Callable[[], Any] = dict
        self.store_hosts = SimpleNamespace(
            own=OWN,
            application_id="app",
            declared=lambda store: SimpleNamespace(kind=StoreKind.KEY_VALUE),
            is_global=lambda store: False,
            key_serde=lambda store: self.serde,
            changelog=lambda store: "app-counts-changelog",
            of_partition=lambda store, partition: place,
        )

    def store(self, *_: object, **__: object) -> Any:
        return self.values


class Hanging:
    """Reads do not end before they are let go."""

    def __init__(self) -> None:
        self.entered, self.leave = threading.Semaphore(0), threading.Event()

    def get(self, key: str) -> int:
        self.entered.release()
        self.leave.wait(PATIENCE_S)
        return 7


@pytest.fixture
def streams() -> Streams:
    return Streams()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.leave.set()


def ask(streams: Streams, *paths: str, timeout_s: float = PATIENCE_S, **headers: str) -> list[httpx.Response]:
    """Send all requests concurrently, and return the answers."""

    async def asked() -> list[httpx.Response]:
        router = Router(streams, timeout_s=timeout_s)  # type: ignore[arg-type]  # what it uses
        app = query_app(streams, router)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://own") as client:
            answers = await asyncio.gather(*(client.get(path, headers=headers) for path in paths))
        await router.close()
        return answers

    return asyncio.run(asked())


def test_reads_that_hang_end_in_time_and_so_do_those_that_wait_behind_them(
    streams: Streams, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "_READERS", 2)
    streams.values = hanging
    answers = ask(streams, *["/stores/counts/keys/k"] * 5, timeout_s=0.2)
    assert [(answer.status_code, answer.json()["error"]) for answer in answers] == [(504, "timeout")] * 5
    assert hanging.entered.acquire(blocking=False)
    assert hanging.entered.acquire(blocking=False)
    hanging.leave.set()
    assert not hanging.entered.acquire(timeout=0.2)  # calls that had not started never start


def test_process_ends_although_a_read_hangs(streams: Streams, hanging: Hanging) -> None:
    streams.values = hanging
    before = set(threading.enumerate())
    assert ask(streams, "/stores/counts/keys/k", timeout_s=0.1)[0].status_code == 504
    left = set(threading.enumerate()) - before
    assert [thread.daemon for thread in left] == [True]


def test_queries_do_not_wait_behind_questions_to_brokers_that_are_away(streams: Streams) -> None:
    leave, asking = threading.Event(), threading.Semaphore(0)

    def away() -> dict[str, Any]:
        asking.release()
        leave.wait(PATIENCE_S)
        return {}

    streams.all_local_store_partition_lags = away

    class Releasing:
        def get(self, key: str) -> int:
            assert asking.acquire(timeout=PATIENCE_S)  # somebody is asking
            leave.set()
            return 7

    streams.values = Releasing()
    *_, found = ask(streams, *["/lags"] * 100, "/stores/counts/keys/k")
    assert (found.status_code, found.json()["value"]) == (200, 7)


def test_question_that_is_meant_for_another_application_is_not_answered(streams: Streams) -> None:
    """Its instance had this address before; a store of the same name says nothing."""
    (answer,) = ask(streams, "/stores/counts/keys/k", **{HOP_HEADER: "other"})
    assert answer.status_code == 503
    assert answer.json()["message"] == "this is an instance of app, not of 'other'"
    assert ask(streams, "/stores/counts/keys/k", **{HOP_HEADER: "app"})[0].json()["value"] == 7


def test_registry_that_is_away_is_no_wrong_key(streams: Streams) -> None:
    def away(text: str) -> bytes:
        raise RegistryUnavailableError("no answer from http://registry")

    streams.serde = serde(serialize=away, deserialize=bytes.decode, name="string")
    (answer,) = ask(streams, "/stores/counts/keys/k")
    assert (answer.status_code, answer.json()["error"]) == (503, "not_available")


@pytest.mark.parametrize("path", ["/stores/counts/keys/k", "/stores/counts/keys"])
@pytest.mark.parametrize("error", [ZeroDivisionError("division by zero"), SystemExit("division by zero")], ids=str)
def test_store_that_raises_is_an_answer_too(streams: Streams, path: str, error: BaseException) -> None:
    def fails(*_: object) -> Any:
        raise error

    streams.values = SimpleNamespace(get=fails, range=fails)
    streams.store_hosts.partition_counts = lambda store: {"in": 1}
    (answer,) = ask(streams, path)
    expected = {"error": "failed", "message": f"{type(error).__name__}: division by zero"}
    assert (answer.status_code, answer.json()) == (500, expected)


@pytest.mark.parametrize("where", ["value", "key"])
def test_error_of_a_serde_does_not_tell_who_asks_how_its_registry_is_reached(streams: Streams, where: str) -> None:
    def fail(_: object) -> Any:
        raise OSError("no server at http://reader:not-for-you@registry:8081")

    if where == "value":
        streams.values = SimpleNamespace(get=fail)
    else:
        streams.serde = serde(serialize=fail, deserialize=fail, name="string")
    (answer,) = ask(streams, "/stores/counts/keys/k?key_serde=string")
    assert answer.status_code == (500 if where == "value" else 400)
    assert "OSError: no server at http://***@registry:8081" in answer.json()["message"]


@pytest.mark.parametrize("path", ["/stores/counts/keys/k", "/stores/counts/keys/k?partitoin=1", "/nowhere"])
def test_nobody_on_the_way_keeps_an_answer(streams: Streams, path: str) -> None:
    (answer,) = ask(streams, path)
    assert answer.headers["cache-control"] == "no-store"
