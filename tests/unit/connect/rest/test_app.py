from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from streams_protocol.connect import TaskId
from streams_py.connect.errors import ConnectError, RebalanceExpectedError
from streams_py.connect.rest.openapi import ENDPOINTS
from streams_py.connect.rest.server import rest_service
from streams_py.connect.rest.signing import sign
from streams_py.connect.rest.tasks import TaskConfigSender
from streams_py.errors import ConfigError
from streams_py.http.budget import Budget, Budgeted
from tests.support.connect.memory_herder import Connector, Group, Key, MemoryHerder, Network, State, Status
from tests.support.connect.settings import CONFIG, KEY


@pytest.fixture
def group() -> Group:
    return Group(connectors={"c": Connector(dict(CONFIG), tasks=[{"n": "0"}, {"n": "1"}])}, key=Key(KEY))


@pytest.fixture
def client(group: Group) -> TestClient:
    return TestClient(Network().add(MemoryHerder(group)))


def body_of(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def message_of(answer: httpx.Response, status: int) -> str:
    message = body_of(answer, status)
    assert message.keys() == {"error_code", "message"}
    assert message["error_code"] == status
    return str(message["message"])


def test_the_root_names_the_cluster_and_health_follows_the_worker(group: Group) -> None:
    herder = MemoryHerder(group)
    client = TestClient(Network().add(herder))
    assert body_of(client.get("/"))["kafka_cluster_id"] == "cluster"
    assert body_of(client.get("/health"))["status"] == "healthy"
    assert body_of(client.get("/metrics"))["connect-worker-metrics"] == {"task-count": 1}
    release = threading.Event()
    herder.on_ping = lambda: release.wait(60)
    impatient = TestClient(Network().add(herder, health_s=0.01))
    assert body_of(impatient.get("/health"), 500)["status"] == "unhealthy"
    release.set()
    herder.ready = False
    assert body_of(client.get("/health"), 503)["status"] == "starting"


def test_connectors_are_created_listed_changed_and_deleted(client: TestClient, group: Group) -> None:
    answer = client.post(
        "/connectors",
        json={"name": "a b", "config": {"connector.class": "x:Y", "tasks.max": 2}, "initial_state": "paused"},
    )
    config = {"connector.class": "x:Y", "tasks.max": "2", "name": "a b"}
    assert body_of(answer, 201) == {"name": "a b", "config": config, "tasks": [], "type": "source"}
    assert answer.headers["Location"] == "/connectors/a%20b"
    assert group.connectors["a b"].target == "PAUSED"
    assert body_of(client.get("/connectors")) == ["a b", "c"]
    assert "already" in message_of(client.post("/connectors", json={"name": "c", "config": CONFIG}), 409)
    assert body_of(client.put("/connectors/a%20b/config", json={"connector.class": "z"}))["config"] == {
        "connector.class": "z", "name": "a b"
    }  # fmt: skip
    body_of(client.put("/connectors/new/config", json=CONFIG | {"name": "new"}), 201)
    patched = client.patch("/connectors/c/config", json={"connector.class": "d:E", "more": True, "absent": None})
    assert body_of(patched)["config"] == {"connector.class": "d:E", "name": "c", "more": "true"}
    body_of(client.patch("/connectors/c/config", json={"more": None}))
    assert body_of(client.get("/connectors/c/config")) == {"connector.class": "d:E", "name": "c"}
    assert client.delete("/connectors/c").status_code == 204
    assert "connector c does not exist" in message_of(client.get("/connectors/c"), 404)
    assert "connector c does not exist" in message_of(client.delete("/connectors/c"), 404)


def test_statuses_tasks_and_offsets_have_the_shapes_of_kafka_connect(client: TestClient, group: Group) -> None:
    assert "no status" in message_of(client.get("/connectors/c/status"), 404)
    assert body_of(client.get("/connectors?expand=status")) == {}
    group.connectors["c"].connector = Status(State.RUNNING, "w1:1")
    group.connectors["c"].statuses = {
        TaskId("c", 10): Status(State.RUNNING, "w2:1"),
        TaskId("c", 2): Status(State.FAILED, "w2:1", "Traceback"),
    }
    failed = {"id": 2, "state": "FAILED", "worker_id": "w2:1", "trace": "Traceback"}
    status = {
        "name": "c",
        "connector": {"state": "RUNNING", "worker_id": "w1:1"},
        "tasks": [failed, {"id": 10, "state": "RUNNING", "worker_id": "w2:1"}],
        "type": "source",
    }
    ids = [{"connector": "c", "task": n} for n in range(2)]
    info = {"name": "c", "config": CONFIG, "tasks": ids, "type": "source"}
    assert body_of(client.get("/connectors/c/status")) == status
    assert body_of(client.get("/connectors/c")) == info
    assert body_of(client.get("/connectors?expand=status&expand=info")) == {"c": {"status": status, "info": info}}
    assert body_of(client.get("/connectors/c/tasks")) == [
        {"id": one, "config": {"n": str(n)}} for n, one in enumerate(ids)
    ]
    assert body_of(client.get("/connectors/c/tasks/2/status")) == failed
    assert body_of(client.get("/connectors/c/offsets")) == {
        "offsets": [{"partition": {"file": "f"}, "offset": {"position": 3}}]
    }
    for path in ("/connectors/c/tasks/7/status", "/connectors/c/tasks/x/status", "/connectors/d/status", "/nothing"):
        message_of(client.get(path), 404)
    message_of(client.put("/connectors"), 405)


def test_the_leader_tells_who_runs_and_lists_what(group: Group) -> None:
    network = Network()
    network.add(MemoryHerder(group), "w1")
    other = TestClient(network.add(MemoryHerder(group, "http://w2/"), "w2"))
    assert body_of(other.get("/workers")) == {
        "protocol": "static",
        "delay_ms": 0,
        "workers": [
            {"worker_id": "w1:1", "leader": True, "static": None, "jobs": {"connectors": ["c"], "tasks": ["c-0"]}},
            {
                "worker_id": "w2:1",
                "leader": False,
                "static": {"connectors": [], "tasks": ["c-7"]},
                "jobs": {"connectors": [], "tasks": []},
            },
        ],
        "unassigned": [{"kind": "task", "job": "c-1", "could_run": ["w1:1"], "reason": "it is moving"}],
    }


def test_target_states_and_restarts(client: TestClient, group: Group) -> None:
    for verb, status, target in (("pause", 202, "PAUSED"), ("resume", 202, "STARTED"), ("stop", 204, "STOPPED")):
        assert client.put(f"/connectors/c/{verb}").status_code == status
        assert group.connectors["c"].target == target
    group.done.clear()
    group.connectors["c"].connector = Status(State.RUNNING, "w1:1")
    assert client.post("/connectors/c/restart").status_code == 204
    assert body_of(client.post("/connectors/c/restart?includeTasks=true&onlyFailed=false"), 202)["name"] == "c"
    assert group.done == [("http://w1/", "restart False False"), ("http://w1/", "restart True False")]
    assert "includeTasks=maybe" in message_of(client.post("/connectors/c/restart?includeTasks=maybe"), 400)
    message_of(client.post("/connectors/d/restart"), 404)
    message_of(client.post("/connectors/c/tasks/9/restart"), 404)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[]", "the body must be a JSON object"),
        ("{", "not valid JSON"),
        ('{"config": {}}', "name is missing"),
        ('{"name": "x"}', "config is missing"),
        ('{"name": "x", "config": []}', "config must be a JSON object"),
        ('{"name": 1, "config": {}}', "name must be text"),
        ('{"name": "a/b", "config": {}}', "slash"),
        ('{"name": " ", "config": {}}', "is empty"),
        ('{"name": "x", "config": {"name": "y"}}', "name is 'y' in the configuration, but 'x' in the request"),
        ('{"name": "x", "config": {"k": {}}}', "the value of 'k' must be text"),
        ('{"name": "x", "config": {"k": null}}', "the value of 'k' must be text"),
        ('{"name": "x", "config": {}}', "connector.class is required"),
        ('{"name": "x", "config": {}, "initial_state": "GONE"}', "'GONE' must be RUNNING, PAUSED or STOPPED"),
        ('{"name": "x", "config": {}, "colour": 1}', "'colour' is not a field"),
    ],
)
def test_wrong_bodies_are_answered_with_a_sentence(client: TestClient, group: Group, body: str, message: str) -> None:
    answer = client.post("/connectors", content=body, headers={"Content-Type": "application/json; charset=utf-8"})
    assert message in message_of(answer, 400)
    assert list(group.connectors) == ["c"]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", ""])
def test_a_body_that_is_not_said_to_be_json_is_not_guessed(client: TestClient, kind: str) -> None:
    answer = client.post(
        "/connectors", content=json.dumps({"name": "x", "config": CONFIG}), headers={"Content-Type": kind}
    )
    assert "'Content-Type: application/json'" in message_of(answer, 415)


def test_a_request_waits_for_a_rebalance_but_not_for_ever(group: Group) -> None:
    group.rebalances_left = 1
    assert TestClient(Network().add(MemoryHerder(group))).put("/connectors/c/stop").status_code == 204
    group.rebalances_left = 1_000_000
    client = TestClient(Network().add(MemoryHerder(group), rebalance_s=0.3))
    assert "changing" in message_of(client.put("/connectors/c/stop"), 409)


def test_a_herder_that_does_not_answer_is_an_error(group: Group) -> None:
    herder, release = MemoryHerder(group), threading.Event()
    herder.pause_connector = lambda name: release.wait(60)  # type: ignore[method-assign]
    client = TestClient(Network().add(herder, request_s=0.05))
    assert "did not handle this within 0.05 s" in message_of(client.put("/connectors/c/pause"), 500)
    release.set()


def test_an_unexpected_error_says_no_more_than_its_class(group: Group) -> None:
    herder = MemoryHerder(group)
    herder.cluster_id = lambda: {}["password=1"]  # type: ignore[method-assign]
    client = TestClient(Network().add(herder), raise_server_exceptions=False)
    assert message_of(client.get("/"), 500) == "KeyError; the worker's log contains the traceback"


def test_what_the_leader_does_is_passed_on_to_it(group: Group) -> None:
    network = Network()
    network.add(MemoryHerder(group), "w1")
    other = TestClient(network.add(MemoryHerder(group, "http://w2/"), "w2"))
    answer = other.post("/connectors", json={"name": "d", "config": {"connector.class": "x"}})
    assert body_of(answer, 201)["name"] == "d"
    assert answer.headers["Location"] == "/connectors/d"
    assert other.put("/connectors/c/stop").status_code == 204
    assert "connector e does not exist" in message_of(other.delete("/connectors/e"), 404)
    assert "already" in message_of(other.post("/connectors", json={"name": "d", "config": CONFIG | {"name": "d"}}), 409)
    assert network.asked[1] == "PUT http://w1/connectors/c/stop?forward=true"
    assert {worker for worker, _ in group.done} == {"http://w1/"}


def test_a_task_is_restarted_by_its_owner_over_the_leader(group: Group) -> None:
    network = Network()
    for host in ("w1", "w2", "w3"):
        network.add(MemoryHerder(group, f"http://{host}/"), host)
    group.owners[TaskId("c", 0)] = "http://w3/"
    assert TestClient(network.apps["w2"]).post("/connectors/c/tasks/0/restart").status_code == 204
    assert group.done == [("http://w3/", "restart c-0")]
    assert [asked.partition("?")[2] for asked in network.asked] == ["forward=true", "forward=false"]


def test_workers_that_disagree_pass_a_request_on_twice_at_most(group: Group) -> None:
    network = Network()
    network.add(MemoryHerder(group, "http://w1/", leader="http://w2/"), "w1", rebalance_s=0.1)
    network.add(MemoryHerder(group, "http://w2/", leader="http://w1/"), "w2", rebalance_s=0.1)
    assert "do not agree" in message_of(TestClient(network.apps["w1"]).put("/connectors/c/stop"), 409)
    assert [asked.partition("?")[2] for asked in network.asked] == ["forward=true", "forward=false"]


def test_without_a_leader_or_without_an_answer_from_it_the_client_is_told(group: Group) -> None:
    client = TestClient(Network().add(MemoryHerder(group, "http://w2/"), "w2", rebalance_s=0.1))
    assert "http://w1/, which must handle this, does not answer" in message_of(client.put("/connectors/c/stop"), 500)
    group.leader = None
    assert "the right worker is unknown" in message_of(client.put("/connectors/c/stop"), 409)


def put_tasks(client: TestClient, headers: dict[str, str], body: bytes = b'[{"n": "7"}]') -> httpx.Response:
    return client.post("/connectors/c/tasks", content=body, headers={"Content-Type": "application/json"} | headers)


def test_task_configurations_are_taken_from_workers_only(client: TestClient, group: Group) -> None:
    body = b'[{"n": "7"}]'
    signed = sign(KEY, body)
    other_key = sign(base64.b64encode(b"o" * 32).decode(), body)
    message_of(put_tasks(client, {}), 400)
    message_of(put_tasks(client, signed | {"X-Connect-Request-Signature-Algorithm": "HmacMD5"}), 400)
    message_of(put_tasks(client, signed | {"X-Connect-Authorization": "?"}), 400)
    message_of(put_tasks(client, other_key), 403)
    message_of(put_tasks(client, signed, b'[{"n": "8"}]'), 403)
    group.key = None
    message_of(put_tasks(client, signed), 503)
    assert group.connectors["c"].tasks == [{"n": "0"}, {"n": "1"}]
    group.key = Key(KEY)
    assert put_tasks(client, signed).status_code == 204
    assert group.connectors["c"].tasks == [{"n": "7"}]
    message_of(put_tasks(client, sign(KEY, b"{}"), b"{}"), 400)
    group.signs = False
    assert put_tasks(client, {}).status_code == 204


def test_a_signature_is_that_of_the_standard() -> None:
    # HMAC-SHA256 of RFC 4231, test case 2
    key = base64.b64encode(b"Jefe").decode()
    mac = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    headers = sign(key, b"what do ya want for nothing?")
    assert base64.b64decode(headers["X-Connect-Authorization"]).hex() == mac
    assert headers["X-Connect-Request-Signature-Algorithm"] == "HmacSHA256"


def test_signed_tasks_reach_the_leader_over_another_worker(group: Group) -> None:
    network = Network()
    network.add(MemoryHerder(group), "w1")
    other = TestClient(network.add(MemoryHerder(group, "http://w2/"), "w2"))
    assert put_tasks(other, sign(KEY, b'[{"n": "7"}]')).status_code == 204
    assert group.connectors["c"].tasks == [{"n": "7"}]


def test_the_sender_tells_what_passes_from_what_does_not() -> None:
    asked: list[httpx.Request] = []
    says, now_s = {"status": 204}, 0.0

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(says["status"], json={"message": "because"})

    sender = TaskConfigSender(lambda: now_s, httpx.MockTransport(answer))
    sender.send("http://w1/", "a b", [{"n": "0"}], KEY)
    assert str(asked[0].url) == "http://w1/connectors/a%20b/tasks"
    assert asked[0].headers["X-Connect-Authorization"] == sign(KEY, asked[0].content)["X-Connect-Authorization"]
    for says["status"] in (409, 503, 403):
        with pytest.raises(RebalanceExpectedError):
            sender.send("http://w1/", "c", [], KEY)
    now_s = 59.0
    with pytest.raises(RebalanceExpectedError):
        sender.send("http://w1/", "c", [], KEY)
    now_s = 61.0
    with pytest.raises(ConnectError, match="answered 403: because"):
        sender.send("http://w1/", "c", [], KEY)
    says["status"] = 204
    sender.send("http://w1/", "c", [], None)
    says["status"] = 403
    with pytest.raises(RebalanceExpectedError):
        sender.send("http://w1/", "c", [], KEY)


def test_first_refusals_of_many_connectors_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams_py.connect.rest.tasks._REFUSED_MAX", 2)
    now_s = 0.0
    sender = TaskConfigSender(lambda: now_s, httpx.MockTransport(lambda _: httpx.Response(403, json={})))
    for name in "abc":
        with pytest.raises(RebalanceExpectedError):
            sender.send("http://w1/", name, [], KEY)
    now_s = 61.0
    with pytest.raises(ConnectError):
        sender.send("http://w1/", "c", [], KEY)
    with pytest.raises(RebalanceExpectedError):
        sender.send("http://w1/", "a", [], KEY)


def test_the_openapi_document_has_every_operation(client: TestClient) -> None:
    document = body_of(client.get("/openapi.json"))
    described = {(m.upper(), path) for path, methods in document["paths"].items() for m in methods}
    assert described == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    page = client.get("/docs").text
    assert all(endpoint.path in page for endpoint in ENDPOINTS)


def test_the_server_is_reached_over_loopback_and_names_a_port_in_use(group: Group) -> None:
    app = Network().add(MemoryHerder(group))
    server = rest_service()
    server.start(app)
    try:
        assert httpx.get(f"http://127.0.0.1:{server.port}/connectors", timeout=60, trust_env=False).json() == ["c"]
        with pytest.raises(ConfigError, match=f"listeners: 127.0.0.1:{server.port} cannot be served"):
            rest_service(port=server.port)
    finally:
        server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{server.port}/", timeout=60, trust_env=False)


def test_a_body_that_is_too_long_is_refused_before_it_is_read_whole(group: Group) -> None:
    app = Budgeted(Network().add(MemoryHerder(group)), Budget(bodies=10_000, answers=1 << 20, body_max=1000))
    client = TestClient(app)
    config = CONFIG | {"long": "x" * 2000}
    assert "longer than 1000 bytes" in message_of(client.put("/connectors/c/config", json=config), 413)
    assert "longer than 1000 bytes" in message_of(client.post("/connectors/c/tasks", json=[{"x": "y" * 2000}]), 413)

    def chunks() -> Iterator[bytes]:
        for _ in range(3):
            yield b" " * 400

    headers = {"Content-Type": "application/json"}
    assert "longer than" in message_of(client.post("/connectors", content=chunks(), headers=headers), 413)
    assert group.connectors["c"].config == CONFIG
    body_of(client.put("/connectors/c/config", json=CONFIG))


def test_a_page_of_another_site_may_change_nothing(client: TestClient, group: Group) -> None:
    foreign = {"Origin": "http://evil.example"}
    assert "evil.example" in message_of(client.post("/connectors/c/restart", headers=foreign), 403)
    for origin in ("null", "http://[", "http://[evil"):
        assert origin in message_of(client.put("/connectors/c/pause", headers={"Origin": origin}), 403)
    assert group.done == []
    assert body_of(client.get("/connectors", headers=foreign)) == ["c"]  # without a CORS header, so no page reads it
    assert client.post("/connectors/c/restart", headers={"Origin": "http://testserver"}).status_code == 204
