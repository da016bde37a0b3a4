"""Refusals of configurations and statuses of failed tasks do not show secrets."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streams_protocol.connect import TaskId
from streams_py.connect.settings import WorkerSettings
from streams_py.connect.stores.configs import TargetState
from streams_py.connect.stores.statuses import JobState
from tests.support.connect.bench import GIVEN, Bench
from tests.support.connect.plugins import CountingSource

FILE_SOURCE = "streams_py.connect.connectors.file_source:FileSourceConnector"
COUNTING = "tests.support.connect.plugins:CountingSource"
PROVIDER = {
    "config_providers": "env",
    "config_providers_env_class": "EnvVarConfigProvider",
    "config_providers_env_param_allowlist_pattern": "TOPIC_SECRET",
}


@pytest.mark.parametrize(
    "config",
    [
        {"connector.class": FILE_SOURCE, "file": "${env:TOPIC_SECRET}", "topic": "t"},
        {"connector.class": "${env:TOPIC_SECRET}"},
        {"connector.class": "streams_py.connect.connectors.file_source:${env:TOPIC_SECRET}"},
        {"connector.class": COUNTING, "topic": "t", "key.converter": "${env:TOPIC_SECRET}"},
        {"connector.class": "tests.unit.connect.worker.test_refusals:Quoting", "table": "${env:TOPIC_SECRET}"},
        {"connector.class": "tests.unit.connect.worker.test_refusals:Quoting", "port": "${env:TOPIC_SECRET}"},
        {"connector.class": "tests.unit.connect.worker.test_refusals:Quoting", "declared": "resolved-secret"},
    ],
)
def test_refusal_of_a_configuration_does_not_show_the_value_of_a_placeholder(
    config: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from streams_py.connect.worker import herder as herder_module

    monkeypatch.setattr(herder_module, "_IDLE_S", 0.002)
    monkeypatch.setenv("TOPIC_SECRET", "resolved-secret")
    policy = WorkerSettings.of({**GIVEN, **{key.replace("_", "."): value for key, value in PROVIDER.items()}}).policy
    refused = policy.problems({"name": "a", **config})
    assert refused or config["connector.class"].startswith("streams_py.connect.connectors.file_source:$")
    assert "resolved-secret" not in " ".join(refused)
    bench = Bench(**PROVIDER)
    try:
        bench.herder.jobs.start_task(TaskId("a", 0), config, {**config, "task.class": config["connector.class"]},
                                     TargetState.STARTED)  # fmt: skip
        bench.until(lambda: JobState.FAILED in bench.states(TaskId("a", 0)), "the task fails")
        written = bench.written_statuses()
        assert written
        assert not any(b"resolved-secret" in value for value in written)
    finally:
        bench.herder.jobs.stop_all()


class Quoting(CountingSource):
    """A connector that quotes the configuration that it refuses."""

    secret_keys = ("declared",)

    def validate(self, props: Mapping[str, str]) -> dict[str, list[str]]:
        if "port" in props:
            int(props["port"])
        return {"table": [f"there is no {props.get('table', props.get('declared'))!r}"]}
