"""Secrets outside of the application's settings: of registries, databases, connectors and their clients, in plans."""

from __future__ import annotations

import contextlib
import json
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.jobs import Jobs
from streams_py.connect.settings import WorkerSettings
from streams_py.connect.stores.configs import SessionKey, TargetState
from streams_py.connect.stores.offsets import OffsetStore
from streams_py.connect.stores.statuses import StatusStore
from streams_py.connect.worker.clients import connect_clients
from streams_py.connect.worker.jobs import RunningJobs
from streams_py.history.bootstrap_planning import BootstrapAllowances, make_plan
from streams_py.registry import SchemaRegistry
from tests.support.connect.memory_herder import Group, MemoryHerder, Network
from tests.support.connect.memory_log import MemoryLog
from tests.support.history.bootstrap import APP, Cluster, word_count
from tests.support.registry.stub import RegistryStub, running
from tests.support.secrets import CANARY, JAAS, everything_logged
from tests.support.waiting import until

WORKER = {
    "bootstrap.servers": "127.0.0.1:1", "group.id": "g",
    "config.storage.topic": "c", "offset.storage.topic": "o", "status.storage.topic": "s",
    "key.converter": "json", "value.converter": "json",
}  # fmt: skip


def said_by(*calls: Callable[[], object]) -> str:
    """Return the results, errors and DEBUG logs of these calls."""
    said = []
    with everything_logged() as log:
        for call in calls:
            try:
                said.append(str(call()))
            except Exception as error:
                said.append("".join(traceback.format_exception(error)))
    return "".join(said) + log.getvalue()


# -- a schema registry -------------------------------------------------------------------------------------------------

LOGINS: dict[str, dict[str, Any]] = {
    "user": {"basic.auth.user.info": f"u:{CANARY}"},
    "no user": {"basic.auth.user.info": CANARY},
    "token": {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": CANARY},
    "token without the rest": {"bearer.auth.token": CANARY},
    "key": {"ssl.key.location": "/nowhere", "ssl.certificate.location": "/nowhere", "ssl.key.password": CANARY},
    "client": {
        "bearer.auth.credentials.source": "OAUTHBEARER", "bearer.auth.client.id": "c", "bearer.auth.scope": "s",
        "bearer.auth.client.secret": CANARY, "bearer.auth.issuer.endpoint.url": f"http://u:{CANARY}@127.0.0.1:1/token",
        "bearer.auth.logical.cluster": "l", "bearer.auth.identity.pool.id": "p",
    },
    "two logins": {"basic.auth.user.info": f"u:{CANARY}", "bearer.auth.token": CANARY,
                   "bearer.auth.credentials.source": "STATIC_TOKEN"},
    "no such setting": {"basic.auth.password": CANARY, "sasl.password": CANARY},
}  # fmt: skip
ANSWERS: dict[str, tuple[int, bytes] | None] = {
    "works": None,
    "refuses": (401, b'{"error_code":40101,"message":"Unauthorized"}'),
    "broken": (500, b"oops"),
    "no registry": (200, b"<html>"),
    "invalid": (422, b'{"error_code":42201,"message":"Invalid schema"}'),
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("login", LOGINS)
def test_secret_for_a_registry_is_in_no_text(login: str, answer: str) -> None:
    with running(RegistryStub()) as stub:
        stub.answer = ANSWERS[answer]

        def write(**changes: Any) -> None:
            registry = SchemaRegistry(stub.url, {**LOGINS[login], **changes})
            repr(registry)
            registry.avro('"string"').serializer("t", is_key=False)("a")

        said = said_by(write, lambda: write(**{"max.retries": "x"}), lambda: write(url=f"http://u:{CANARY}@h"))
    assert CANARY not in said


@pytest.mark.parametrize(
    "url", ["http://u:{}@127.0.0.1:1", "http://{}@127.0.0.1:1", "ftp://u:{}@h", "u:{}@h", "http://u:{}@[::1", "http://u:{}@h:x"]
)  # fmt: skip
def test_secret_in_the_address_of_a_registry_is_in_no_text(url: str) -> None:
    def write(**config: str) -> None:
        registry = SchemaRegistry(url.format(CANARY), config, timeout_ms=100)
        print(repr(registry))
        registry.avro('"string"').serializer("t", is_key=False)("a")

    assert CANARY not in said_by(write, lambda: write(**{"basic.auth.user.info": "u:p"}))


# -- connectors --------------------------------------------------------------------------------------------------------

POSTGRESQL = {
    "password": {"connection.url": "postgresql://u@127.0.0.1:1/d", "connection.password": CANARY},
    "in the url": {"connection.url": f"postgresql://u:{CANARY}@127.0.0.1:1/d"},
    "with an @": {"connection.url": f"postgresql://u:half@{CANARY}@127.0.0.1:1/d"},
    "with a slash": {"connection.url": f"postgresql://u:{CANARY}/x@127.0.0.1:1/d"},
    "with a hash": {"connection.url": f"postgresql://u:#{CANARY}@127.0.0.1:1/d"},
    "in words": {"connection.url": f"host=127.0.0.1 port=1 password={CANARY}"},
    "in no words": {"connection.url": f"host=127.0.0.1 port=1 {CANARY}"},
    "wrong word": {"connection.url": f"host=127.0.0.1 port=1 pasword={CANARY}"},
    "wrong port": {"connection.url": f"postgresql://u:x@127.0.0.1:{CANARY}/d"},
    "nearly the key": {"connection.url": "postgresql://u@127.0.0.1:1/d", "connection.pasword": CANARY},
}


@pytest.mark.parametrize("kind", ["sink", "source"])
@pytest.mark.parametrize("how", POSTGRESQL)
def test_secret_for_a_database_is_in_no_text(kind: str, how: str) -> None:
    pytest.importorskip("psycopg", reason="PostgreSQL connectors need psycopg")
    from streams_py.connect.connectors import postgresql_sink, postgresql_source

    keys = {"table": "t", **POSTGRESQL[how]}
    if kind == "sink":
        connector, task = postgresql_sink.PostgresqlSinkConnector(), postgresql_sink.PostgresqlSinkTask()
        keys |= {"topics": "t", "key.columns": "k"}
        settings: Any = postgresql_sink.PostgresqlSinkSettings
    else:
        connector, task = postgresql_source.PostgresqlSourceConnector(), postgresql_source.PostgresqlSourceTask()
        keys |= {"topic": "t", "incrementing.column": "n"}
        settings = postgresql_source.PostgresqlSourceSettings
        reader = SimpleNamespace(offset=lambda partition: None)
        task.context = SimpleNamespace(offset_reader=reader)  # type: ignore[assignment]
    said = said_by(
        lambda: connector.validate(keys),
        lambda: connector.validate({**keys, "batch.rows": "x", "poll.interval.ms": "x"}),
        lambda: connector.start(keys),
        lambda: repr(settings.of(keys)),
        lambda: task.start(keys),
    )
    assert CANARY not in said


OVERRIDES = [
    {"sasl.password": CANARY},
    {"security.protocol": "SASL_SSL", "sasl.mechanism": "NONE", "sasl.username": "u", "sasl.password": CANARY},
    {"security.protocol": "SASL_SSL", "sasl.jaas.config": JAAS, "sasl.mechanism": "GSSAPI"},
    {"security.protocol": "SSL", "ssl.key.pem": CANARY, "ssl.certificate.pem": "x"},
    {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": CANARY,
     "linger.ms": "x", "fetch.min.bytes": "x"},
]  # fmt: skip


@pytest.mark.parametrize("kind", ["Source", "Sink"])
@pytest.mark.parametrize("override", OVERRIDES, ids=range(len(OVERRIDES)))
def test_secret_in_a_connectors_overrides_is_in_no_status_and_log(kind: str, override: dict[str, str]) -> None:
    statuses = StatusStore(MemoryLog(), 1)  # type: ignore[arg-type]
    settings = WorkerSettings.of(WORKER)
    jobs = RunningJobs(
        settings, connect_clients(settings), OffsetStore(MemoryLog(), 1), statuses,  # type: ignore[arg-type]
        lambda: 1, lambda *_: None, lambda *_: None,
    )  # fmt: skip
    name = TaskId("a", 0)
    prefix = "producer.override." if kind == "Source" else "consumer.override."
    connector = {"connection.password": CANARY} | {f"{prefix}{key}": value for key, value in override.items()}
    props = {"task.class": f"tests.support.connect.plugins:Counting{kind}Task", "topics": "t"} | connector

    def start() -> str:
        jobs.start_task(name, connector, props, TargetState.STARTED)
        with contextlib.suppress(AssertionError):
            until(lambda: statuses.get(name) is not None, "it has a status", timeout_s=1)
        jobs.stop(Jobs.of((), [name]))
        jobs.close()
        return repr(statuses.get(name))

    assert CANARY not in said_by(start)


BODIES: list[Any] = [
    {"connection.password": CANARY},
    {"connector.class": "a:B", "name": "other", "connection.password": CANARY},
    {"connector.class": "a:B", "connection.password": {"is": CANARY}},
    {
        "connector.class": "tests.support.connect.plugins:CountingSource",
        "tasks.max": "x",
        "connection.password": CANARY,
    },
    [CANARY],
    CANARY,
]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_secret_in_a_request_that_is_refused_is_not_repeated(body: Any) -> None:
    client = TestClient(Network().add(MemoryHerder(Group())))

    def ask(path: str, method: str, content: str) -> str:
        answer = client.request(method, path, content=content, headers={"Content-Type": "application/json"})
        return answer.text if not answer.is_success else ""

    content = json.dumps(body)
    said = said_by(
        lambda: ask("/connectors/c/config", "PUT", content),
        lambda: ask("/connectors/c/config", "PATCH", content),
        lambda: ask("/connectors/c/config", "PUT", content[:-1]),
        lambda: ask("/connectors", "POST", json.dumps({"name": "c", "config": body, "more": CANARY})),
        lambda: ask("/connectors/c/tasks", "PUT", content),
    )
    assert CANARY not in said


def test_secrets_of_workers_are_in_no_picture_of_their_state() -> None:
    assert CANARY not in repr(SessionKey(CANARY, "HmacSHA256", 1))
    assert CANARY not in said_by(
        lambda: repr(WorkerSettings.of({**WORKER, "listeners": f"http://u:{CANARY}@h:8083"})),
        lambda: WorkerSettings.of({**WORKER, "listeners": f"https://u:{CANARY}@h:8083"}),
    )


# -- plans -------------------------------------------------------------------------------------------------------------


def test_secrets_are_not_in_the_plan_of_a_warm_start(tmp_path: Path) -> None:
    config = {
        "application.id": APP, "sasl.password": CANARY, "producer.sasl.password": CANARY, "sasl.jaas.config": JAAS,
        "app.db.password": CANARY,
    }  # fmt: skip
    plan, history = make_plan("app:topology", word_count(), APP, config, Cluster(), BootstrapAllowances())
    plan.save(tmp_path / "plan.json")
    assert CANARY not in (tmp_path / "plan.json").read_text() + repr(plan) + repr(history) + repr(asdict(plan))
