"""A worker as seen by its REST interface: before, during and after the herder's run."""

from __future__ import annotations

import threading

import pytest
from starlette.testclient import TestClient

from streams_py.connect.rest.app import rest_app
from streams_py.connect.settings import WorkerSettings
from streams_py.connect.worker import worker as worker_module
from streams_py.connect.worker.worker import Worker
from streams_py.errors import ConfigError
from tests.support.connect.bench import GIVEN, Clients, Stores
from tests.support.connect.fake_group import FakeGroup


@pytest.mark.parametrize("path", ["/connectors", "/connectors/a", "/connectors/a/tasks", "/workers", "/health"])
@pytest.mark.parametrize("failure", [None, ConfigError("no right READ on group g")], ids=["stopped", "failed"])
def test_worker_whose_herder_has_ended_says_so_and_shows_nothing_old(
    path: str, failure: ConfigError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = Stores()
    stores.start, stores.stop = stores.configs.start, lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr(worker_module, "Stores", lambda *_: stores)
    worker = Worker(WorkerSettings.of(GIVEN), Clients(FakeGroup()), lambda *_: None)  # type: ignore[arg-type]
    ended = threading.Event()

    def run() -> None:
        ended.wait()
        if failure is not None:
            raise failure

    monkeypatch.setattr(worker._herder, "run", run)  # a worker creates its herder
    client = TestClient(rest_app(worker))
    worker.start()
    stores.configs.put_connector("a", {"name": "a", "connector.class": "tests.support.connect.plugins:CountingSource"})
    assert client.get("/connectors").json() == ["a"]
    ended.set()
    assert worker.wait(10)
    answer = client.get(path)
    assert answer.status_code == 503
    why = "" if failure is None else f": {failure}"
    assert answer.json()["message"] == f"the worker has stopped{why}; use another worker of the group"
