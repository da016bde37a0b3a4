"""A Connect worker and its connectors with the documented rights. Errors of tasks name missing rights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from streams_py.connect.process import WorkerProcess
from streams_py.connect.settings import WorkerSettings
from tests.support.broker.rights import Line, lines_of
from tests.support.broker.site import Site
from tests.support.waiting import until

WORKER, SINK = "A Connect worker", "sink"
PLUGINS = "tests.support.connect.system_plugins"


def settings_of(made: Site, but: Callable[[Line], bool] = lambda line: False) -> WorkerSettings:
    """Settings of a worker whose user has only the documented rights, without some of them."""
    keys = made.login("SCRAM-SHA-512")
    storage = {f"{kind}.storage.topic": f"{made.id}-{kind}" for kind in ("config", "offset", "status")}
    made.names |= {f"<{key}>": name for key, name in storage.items()}
    made.names |= {"<group.id>": made.id, "<source topic>": made.input, "<sink topic>": made.input}
    made.names |= {"<connector>": SINK}
    made.allow([line for line in lines_of(WORKER) if not but(line)])
    return WorkerSettings.of(
        {
            "group.id": made.id,
            "listeners": "http://127.0.0.1:0",
            "key.converter": "string",
            "value.converter": "json",
            "plugin.modules": "tests",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "300",
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            **{key.replace("topic", "replication.factor"): "1" for key in storage},
            **storage,
            **keys,
        }
    )


def ask(process: WorkerProcess, method: str, path: str, body: Any = None) -> Any:
    """Return the response, as soon as the group is stable."""
    answers: list[httpx.Response] = []

    def answered() -> bool:
        answers.append(httpx.request(method, process.url.rstrip("/") + path, json=body, timeout=60, trust_env=False))
        return answers[-1].status_code not in (404, 409, 503)

    try:
        until(answered, f"{method} {path} is answered")
    except AssertionError as never:
        raise AssertionError(f"{never}: {answers[-1].text}") from None
    assert answers[-1].is_success, answers[-1].text
    return answers[-1].json()


def begin(process: WorkerProcess, made: Site, folder: Path) -> None:
    """A source writes into a topic, and a sink reads it."""
    shared = {"tasks.max": "1", "folder": str(folder)}
    source = {"connector.class": f"{PLUGINS}:SequenceSource", "topic": made.input}
    sink = {"connector.class": f"{PLUGINS}:NotingSink", "topics": made.input}
    for name, config in (("source", source), (SINK, sink)):
        ask(process, "POST", "/connectors", {"name": name, "config": {**config, **shared}})


def test_worker_runs_a_source_and_a_sink_with_the_rights_of_the_page(
    site: Callable[[], Site], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, lines = site(), tmp_path / "sink.jsonl"
    settings = settings_of(made)
    with WorkerProcess(settings) as process:
        begin(process, made, tmp_path)
        until(lines.exists, "records at the sink")
    before = lines.stat().st_size
    with WorkerProcess(settings):  # once more, with the topics that are there now
        until(lambda: lines.stat().st_size > before, "more records at the sink")
    assert "authorization" not in caplog.text, "something was asked for that it has no right to"


def test_worker_needs_not_create_topics_that_are_there(site: Callable[[], Site], tmp_path: Path) -> None:
    made = site()
    settings = settings_of(made, but=lambda line: line.operation == "CREATE")
    for kind in ("config", "offset", "status"):
        made.broker.create_topic(f"{made.id}-{kind}", 1, config={"cleanup.policy": "compact"})
    with WorkerProcess(settings) as process:
        begin(process, made, tmp_path)
        until((tmp_path / "sink.jsonl").exists, "records at the sink")


OF_TASKS = [line for line in lines_of(WORKER) if any(name in line.name for name in ("<source", "<sink", "<connector"))]


@pytest.mark.parametrize("line", OF_TASKS, ids=lambda line: line.id)
def test_right_that_a_task_is_missing_is_named_in_its_status(
    site: Callable[[], Site], tmp_path: Path, line: Line
) -> None:
    made = site()
    with WorkerProcess(settings_of(made, but=lambda other: other == line)) as process:
        begin(process, made, tmp_path)
        name = "source" if line.operation == "WRITE" else SINK

        def trace() -> str:
            tasks = ask(process, "GET", f"/connectors/{name}/status")["tasks"]
            return "".join(task.get("trace", "") for task in tasks)

        until(trace, "the task fails")
        right = line.right(made.names)
        assert f"no right {line.operation} on {line.kind} {right.name}" in trace()
