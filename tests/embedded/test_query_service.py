"""Two instances with query services on the embedded cluster: each answers for both."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from streams_py import KafkaStreams, StreamsBuilder, TimeWindows
from streams_py.clients.factory import KafkaClients
from streams_py.config.streams_config import StreamsConfig
from streams_py.query import QueryService
from streams_py.query.routing import HOP_HEADER
from streams_py.serdes import STRING
from streams_py.testing.broker import EmbeddedBroker
from streams_py.topology.topology import Topology
from tests.support.waiting import until

KEYS = ["apple", *(f"key-{number:02}" for number in range(20))]
LIKE_PATHS = ["a/./b", "a/../b", ".."]
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "queries.md").read_text(encoding="utf-8")


class Instance(NamedTuple):
    streams: KafkaStreams
    service: QueryService
    http: httpx.Client

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        answer = self.http.get(path, headers=headers)
        return answer.status_code, answer.json()

    def owns(self, key: str) -> bool:
        found = self.streams.query_metadata_for_key("counts", key)
        return found.active_host == self.streams.store_hosts.own


def topology() -> Topology:
    builder = StreamsBuilder(key=STRING, value=STRING)
    grouped = builder.stream("in").group_by_key()
    grouped.count(store="counts")
    grouped.windowed_by(TimeWindows.of(1_000, grace=60_000)).count(store="views")
    return builder.build()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Instance, Instance]]:
    """Two running instances. Tests must not change them, because they run in any order."""
    with two_instances(tmp_path_factory) as made:
        yield made


@contextlib.contextmanager
def two_instances(folders: pytest.TempPathFactory) -> Iterator[tuple[Instance, Instance]]:
    """Two instances that share four partitions and have counted three records of each key."""
    with contextlib.ExitStack() as opened:
        broker = opened.enter_context(contextlib.closing(EmbeddedBroker()))
        common = {
            "bootstrap.servers": broker.url,
            "application.id": "queries",
            "commit.interval.ms": 100,
            "num.standby.replicas": 1,
        }
        broker.create_topic("in", 4)
        clients = opened.enter_context(contextlib.closing(KafkaClients(StreamsConfig.of(common))))
        producer = opened.enter_context(contextlib.closing(clients.producer("feeder")))
        for timestamp_ms in (500, 700, 1_500):
            for key in (*KEYS, *LIKE_PATHS):
                producer.produce("in", b"v", key.encode(), -1, None, timestamp_ms, None)
        producer.flush(60_000)
        made = []
        for number in range(2):
            settings = {
                **common,
                "application.server": f"127.0.0.1:{free_port()}",
                "state.dir": str(folders.mktemp(f"state-{number}")),
            }
            streams = opened.enter_context(KafkaStreams(topology(), settings))
            service = opened.enter_context(QueryService(streams))
            http = opened.enter_context(
                httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=60, trust_env=False)
            )
            made.append(Instance(streams, service, http))
        first, second = made
        until(lambda: all(any(one.owns(key) for key in KEYS) for one in made), "both to have partitions")
        until(lambda: all(_count(one, key) == 3 for one in made for key in KEYS), "all to be counted")
        yield first, second


def _count(instance: Instance, key: str) -> Any:
    status, body = instance.get(f"/stores/counts/keys/{key}")
    assert status in (200, 404, 503), body
    return body.get("value")


def test_each_instance_answers_for_both(pair: tuple[Instance, Instance]) -> None:
    first, second = pair
    theirs = next(key for key in KEYS if second.owns(key))
    partition = first.streams.query_metadata_for_key("counts", theirs).partition
    expected = (200, {"key": theirs, "value": 3, "partition": partition})
    assert first.get(f"/stores/counts/keys/{theirs}") == second.get(f"/stores/counts/keys/{theirs}") == expected
    for one in pair:
        status, body = one.get("/stores/counts/keys?start=key-05&end=key-09")
        assert status == 200
        assert {entry["key"]: entry["value"] for entry in body["entries"]} == {f"key-0{n}": 3 for n in range(5, 10)}
        assert body["complete"]
        assert len(one.get("/stores/counts/keys?prefix=key-1")[1]["entries"]) == 10
        _, few = one.get("/stores/counts/keys?limit=7")
        assert (len(few["entries"]), few["complete"]) == (7, False)
        _, windows = one.get(f"/stores/views/windows/{theirs}?from=0&to=5000")
        assert [(entry["start"], entry["value"]) for entry in windows["entries"]] == [(0, 2), (1000, 1)]
        assert len(one.get("/stores/views/windows?from=0&to=0")[1]["entries"]) == len(KEYS) + len(LIKE_PATHS)


@pytest.mark.parametrize("key", LIKE_PATHS)
def test_key_that_looks_like_a_path_reaches_its_owner_as_it_is(pair: tuple[Instance, Instance], key: str) -> None:
    for one in pair:
        status, body = one.get(f"/stores/counts/keys/{key.replace('.', '%2E')}")
        assert (status, body.get("key"), body.get("value")) == (200, key, 3), body


def test_absent_key_is_told_from_unknown_stores_and_wrong_questions(pair: tuple[Instance, Instance]) -> None:
    for one in pair:
        assert {one.get(f"/stores/counts/keys/none-{number}")[0] for number in range(8)} == {404}
    first, _ = pair
    problems = {
        "/stores/cuonts/keys/a": (404, "unknown_store"),
        "/stores/counts/keys/a?partitoin=1": (400, "bad_query"),
        "/stores/counts/keys?limit=-1": (400, "bad_query"),
        "/stores/counts/keys/a?key_serde=int46": (400, "bad_query"),
        "/stores/counts/keys/a?key_serde=int64": (400, "bad_query"),
        "/stores/counts/windows/a": (400, "bad_query"),
        "/nowhere": (404, "no_such_address"),
    }
    for path, (status, code) in problems.items():
        found, body = first.get(path)
        assert (found, body["error"]) == (status, code), (path, body)


def test_question_that_was_passed_on_is_not_passed_on_again(pair: tuple[Instance, Instance]) -> None:
    first, second = pair
    theirs = next(key for key in KEYS if second.owns(key))
    answer = first.http.get(f"/stores/counts/keys/{theirs}", headers={HOP_HEADER: "queries"})
    assert (answer.status_code, answer.json()["error"], answer.headers["retry-after"]) == (503, "not_available", "1")


def test_standby_answers_when_stale_values_will_do(pair: tuple[Instance, Instance]) -> None:
    first, second = pair
    theirs = next(key for key in KEYS if second.owns(key))
    path = f"/stores/counts/keys/{theirs}?stale=true"
    until(lambda: first.get(path, **{HOP_HEADER: "queries"})[0] == 200, "the standby to have it")


def test_names_of_others_and_bodies_are_refused(pair: tuple[Instance, Instance]) -> None:
    first, _ = pair
    assert first.get("/stores", Host="evil.example")[0] == 403
    assert first.http.request("GET", "/stores", content=b"x").status_code == 400
    assert first.http.post("/stores").status_code == 405
    assert first.get("/stores") == (200, {"stores": {"counts": "timestamped key-value", "views": "timestamped window"}})


def test_metadata_and_lags_are_told(pair: tuple[Instance, Instance]) -> None:
    first, second = pair
    _, everybody = second.get("/metadata")
    assert [one["host"] for one in everybody["instances"]] == sorted(f"127.0.0.1:{one.service.port}" for one in pair)
    assert second.get("/metadata/counts") == (200, everybody)
    mine = next(key for key in KEYS if first.owns(key))
    assert second.get(f"/metadata/counts/{mine}")[1]["active"] == f"127.0.0.1:{first.service.port}"
    until(
        lambda: sum(lag["lag"] for store in first.get("/lags")[1].values() for lag in store.values()) == 0,
        "the copies to be current",
    )


def test_owner_that_is_gone_means_to_ask_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    with two_instances(tmp_path_factory) as (first, second):
        theirs = next(key for key in KEYS if second.owns(key))
        mine = next(key for key in KEYS if first.owns(key))
        standby = f"/stores/counts/keys/{theirs}?stale=true"
        until(lambda: first.get(standby, **{HOP_HEADER: "queries"})[0] == 200, "the standby to have it")
        second.service.stop()
        answer = first.http.get(f"/stores/counts/keys/{theirs}")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert first.get(f"/stores/counts/keys/{mine}")[0] == 200
        assert first.get(standby)[0] == 200


def test_page_about_queries_does_what_it_says(
    pair: tuple[Instance, Instance], capsys: pytest.CaptureFixture[str]
) -> None:
    first, _ = pair
    until(lambda: first.owns("apple") or pair[1].owns("apple"), "the key to be somewhere")
    streams = next(one.streams for one in pair if one.owns("apple"))
    names: dict[str, Any] = {"streams": streams}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        if "QueryService" in block:
            block = block.replace("QueryService(streams)", "QueryService(streams, port=0)")
        exec(compile(block, "queries.md", "exec"), names)
    assert names["counts"].get("apple") == 3
    assert "/stores/counts/keys/apple" in capsys.readouterr().out
