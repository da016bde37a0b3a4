"""Limits for a connector's configuration on a worker: classes, files, client settings, secrets."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from streams_py.connect.policy import classes
from streams_py.connect.policy.classes import MissingClassError, Plugins
from streams_py.connect.policy.limits import AllowedPaths, OverridePolicy
from streams_py.connect.policy.providers import ConfigProviders, has_placeholder, is_placeholder
from streams_py.connect.policy.secrets import HIDDEN, scrubbed, shown_config
from streams_py.connect.rest.app import rest_app
from streams_py.connect.settings import WorkerSettings
from streams_py.connect.stores.statuses import JobState
from streams_py.errors import ConfigError
from tests.support.connect.bench import GIVEN, Bench
from tests.support.connect.memory_herder import Connector, Group, MemoryHerder
from tests.support.connect.plugins import CountingSource

FILE_SOURCE = "streams_py.connect.connectors.file_source:FileSourceConnector"


def settings(**more: str) -> WorkerSettings:
    return WorkerSettings.of({**GIVEN, **{key.replace("__", "."): value for key, value in more.items()}})


# -- classes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["os:system", "antigravity:fly", "streams_py.connect.connectorsx:A", "tests:X"])
def test_module_that_is_not_allowed_is_not_even_imported(name: str) -> None:
    plugins = Plugins()
    module = name.partition(":")[0]
    was_there = module in sys.modules
    for key, use in (
        ("connector.class", lambda: plugins.connector({"connector.class": name})),
        ("task.class", lambda: plugins.task({"task.class": name})),
        ("key.converter", lambda: plugins.converter("key.converter", name)),
    ):
        with pytest.raises(ConfigError, match=rf"{key} = .*plugin\.modules"):
            use()
    assert (module in sys.modules) == was_there


@pytest.mark.parametrize("allowed", ["tests", "tests.support.connect", "tests.support.connect.plugins"])
def test_modules_of_the_worker_are_allowed_with_what_is_below_them(allowed: str) -> None:
    config = {"connector.class": "tests.support.connect.plugins:CountingSource"}
    assert isinstance(Plugins([allowed]).connector(config), CountingSource)


def test_plugins_that_are_installed_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        module = "tests.support.connect.plugins"

    monkeypatch.setattr(classes, "entry_points", lambda *, group: [Point()] if group == "streams_py.connect" else [])
    config = {"connector.class": "tests.support.connect.plugins:CountingSource"}
    assert isinstance(Plugins().connector(config), CountingSource)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tests.support.connect.plugins:CountingTask", "is not a Connector"),
        ("tests.support.connect.plugins:COLLECTED", "is not a class"),
        ("tests.support.connect.plugins:threading.Event", "is not a"),
        ("tests.support.connect.plugins", "does not name a class"),
        ("tests.support.connect.plugins:", "does not name a class"),
        ("", "does not name a class"),
    ],
)
def test_what_is_not_a_connector_is_refused_with_the_key(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"connector.class = .*{said}"):
        Plugins(["tests"]).connector({"connector.class": name})


def test_converter_needs_both_directions() -> None:
    with pytest.raises(ConfigError, match=r"value\.converter = .*is not a converter"):
        Plugins(["tests"]).converter("value.converter", "tests.support.connect.plugins:CountingTask")


def test_class_that_another_worker_may_have_is_not_a_mistake() -> None:
    with pytest.raises(MissingClassError):
        Plugins(["no_such_package"]).connector({"connector.class": "no_such_package.sources:Source"})
    policy = settings(plugin__modules="no_such_package").policy
    assert policy.problems({"name": "a", "connector.class": "no_such_package.sources:Source"}) == []
    assert policy.problems({"name": "a", "connector.class": "os:system"}) != []


# -- files -------------------------------------------------------------------------------------------------------------


def test_file_connectors_use_only_folders_that_the_worker_allows(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "way-out").symlink_to("/etc")
    plugins = Plugins(paths=AllowedPaths([str(tmp_path / "in")]))
    config = {"connector.class": FILE_SOURCE, "topic": "t", "format": "json"}
    plugins.connector({**config, "file": str(tmp_path / "in" / "a.json")})
    for path in ("/etc/passwd", f"{tmp_path}/in/../a", f"{tmp_path}/in/way-out/passwd", f"{tmp_path}/inside", "\0"):
        with pytest.raises(ConfigError, match=r"file = .*file\.connectors\.allowed\.paths"):
            plugins.connector({**config, "file": path})
        with pytest.raises(ConfigError, match=r"file = .*file\.connectors\.allowed\.paths"):
            plugins.task({"task.class": FILE_SOURCE.replace("Connector", "Task"), "file": path})


def test_nothing_is_allowed_unless_the_worker_says_so(tmp_path: Path) -> None:
    said = settings().policy.problems(
        {"name": "a", "connector.class": FILE_SOURCE, "topic": "t", "format": "json", "file": str(tmp_path / "x")}
    )
    assert len(said) == 1
    assert "which is empty" in said[0]


# -- settings of clients -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["producer.override.", "consumer.override.", "admin.override."])
def test_no_setting_of_a_client_may_be_overridden_by_default(prefix: str) -> None:
    said = settings().policy.problems({"name": "a", "connector.class": FILE_SOURCE, f"{prefix}linger.ms": "5"})
    assert len(said) == 1
    assert said[0].startswith(f"{prefix}linger.ms: connector.client.config.override.policy = None allows no overrides")


@pytest.mark.parametrize("policy", [OverridePolicy("All"), OverridePolicy("Allowlist", ["linger.ms", "ssl.key.pem"])])
@pytest.mark.parametrize(
    "key",
    [
        "plugin.library.paths", "bootstrap.servers", "metadata.broker.list", "security.protocol", "sasl.jaas.config",
        "sasl.password", "ssl.key.pem", "SSL.ca.location", "enable.ssl.certificate.verification", "interceptor.classes",
        "sasl.oauthbearer.config", "https.ca.location",
    ],
)  # fmt: skip
def test_code_addresses_and_logins_can_never_be_overridden(policy: OverridePolicy, key: str) -> None:
    assert policy.problems({f"producer.override.{key}": "x"}) == [
        f"producer.override.{key}: a connector cannot override {key}; it is a setting of the worker"
    ]


def test_harmless_overrides_follow_the_policy() -> None:
    config = {"producer.override.linger.ms": "5", "consumer.override.fetch.min.bytes": "1"}
    assert OverridePolicy("All").problems(config) == []
    (said,) = OverridePolicy("Allowlist", ["linger.ms"]).problems(config)
    assert said.startswith("consumer.override.fetch.min.bytes: fetch.min.bytes is not in connector.client.config.")


# -- settings of the worker that ask for protection --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rest.extension.classes", "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"),
        ("listeners.https.ssl.client.auth", "required"),
        ("listeners.https.ssl.keystore.location", "/x"),
        ("admin.listeners", "https://localhost:8084"),
        ("exactly.once.source.support", "enabled"),
        ("rest.authentication", "basic"),
        ("listeners", "http://127.0.0.1:1,https://0.0.0.0:2"),
        ("connector.client.config.override.policy", "Principal"),
    ],
)
def test_setting_that_asks_for_protection_which_is_not_given_ends_the_start(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        WorkerSettings.of({**GIVEN, key: value})
    assert raised.value.key == key


@pytest.mark.parametrize(
    ("key", "value"), [("admin.listeners", ""), ("exactly.once.source.support", "disabled"), ("oracle.home", "/x")]
)
def test_setting_that_asks_for_nothing_is_only_warned_of(
    key: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "streams_py.connect")
    WorkerSettings.of({**GIVEN, key: value})
    assert [record.getMessage() for record in caplog.records] == [
        f"{key} is not a setting of a worker here; ignoring it"
    ]


# -- providers ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConfigProviders:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "db.properties").write_text("user = me\npassword = pa:ss=word\n")
    (tmp_path / "secrets" / "token").write_text("from-a-file\n")
    (tmp_path / "outside.properties").write_text("password = x\n")
    (tmp_path / "secrets" / "link.properties").symlink_to(tmp_path / "outside.properties")
    monkeypatch.setenv("DB_PASSWORD", "from-the-environment")
    monkeypatch.setenv("AWS_SECRET", "not for connectors")
    kafka = "org.apache.kafka.common.config.provider."
    return ConfigProviders.of(
        {
            "config.providers": "file, dir, env",
            "config.providers.file.class": f"{kafka}FileConfigProvider",
            "config.providers.file.param.allowed.paths": str(tmp_path / "secrets"),
            "config.providers.dir.class": "DirectoryConfigProvider",
            "config.providers.dir.param.allowed.paths": str(tmp_path / "secrets"),
            "config.providers.env.class": "EnvVarConfigProvider",
            "config.providers.env.param.allowlist.pattern": "DB_.*",
        }
    )


def test_placeholders_are_resolved_as_in_kafka(providers: ConfigProviders, tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    given = {
        "a": f"${{file:{folder}/db.properties:password}}",
        "b": f"postgresql://${{file:{folder}/db.properties:user}}:${{env:DB_PASSWORD}}@host/db",
        "c": f"${{dir:{folder}:token}}",
        "d": "${unknown:x} and $plain",
    }
    resolved = providers.resolve(given)
    assert resolved == {
        "a": "pa:ss=word",
        "b": "postgresql://me:from-the-environment@host/db",
        "c": "from-a-file",
        "d": "${unknown:x} and $plain",
    }
    copied = {**resolved, "number": "0", "c": "changed"}
    assert providers.restore(copied, resolved, given) == {**given, "c": "changed", "number": "0"}


@pytest.mark.parametrize(
    "placeholder",
    [
        "${file:DIR/../outside.properties:password}",
        "${file:DIR/link.properties:password}",
        "${file:/etc/passwd:root}",
        "${file:DIR/db.properties:none}",
        "${file:DIR/none.properties:a}",
        "${file:DIR/token:from-a-file}",
        "${dir:DIR:../outside.properties}",
        "${dir:/etc:hostname}",
        "${env:AWS_SECRET}",
        "${env:DB_NONE}",
        "${file:\0:a}",
    ],
)
def test_what_a_provider_may_not_or_cannot_read_is_an_error_without_content(
    providers: ConfigProviders, tmp_path: Path, placeholder: str
) -> None:
    with pytest.raises(ConfigError, match=r"^connection\.password = ") as raised:
        providers.resolve({"connection.password": placeholder.replace("DIR", str(tmp_path / "secrets"))})
    for secret in ("not for connectors", "pa:ss"):
        assert secret not in str(raised.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"config.providers.file.class": "FileConfigProvider"}, "allowed.paths is required"),
        ({"config.providers.file.class": "EnvVarConfigProvider"}, "allowlist.pattern is required"),
        ({"config.providers.file.class": "com.acme.Vault"}, "must be FileConfigProvider"),
        ({}, "must be FileConfigProvider"),
        ({"config.providers.other.class": "FileConfigProvider"}, "does not name this provider"),
        (
            {
                "config.providers.file.class": "EnvVarConfigProvider",
                "config.providers.file.param.allowlist.pattern": "(",
            },
            "is not a regular expression",
        ),
    ],
)
def test_providers_that_are_declared_wrong_end_the_start(more: Mapping[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        WorkerSettings.of({**GIVEN, "config.providers": "file", **more})


def test_settings_of_the_worker_itself_may_have_placeholders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hidden-password")
    found = WorkerSettings.of(
        {
            **GIVEN,
            "config.providers": "env",
            "config.providers.env.class": "EnvVarConfigProvider",
            "config.providers.env.param.allowlist.pattern": "KAFKA_PASSWORD",
            "sasl.password": "${env:KAFKA_PASSWORD}",
        }
    )
    assert found.client_settings("producer.")["sasl.password"] == "hidden-password"
    assert "hidden-password" not in repr(found)


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_placeholders_are_shown_and_secrets_are_not() -> None:
    assert shown_config(
        {
            "connection.password": "pass-word",
            "api.key": "${env:KEY}",
            "connection.url": "postgresql://me:pass-word@host/db",
            "declared": "pass-word",
            "half": "${env:KEY}pass-word",
            "half.password": "${env:KEY}pass-word",
            "table": "orders",
        },
        ["declared"],
    ) == {
        "connection.password": HIDDEN,
        "api.key": "${env:KEY}",
        "connection.url": HIDDEN,
        "declared": HIDDEN,
        "half": "${env:KEY}pass-word",
        "half.password": HIDDEN,
        "table": "orders",
    }


def test_configuration_with_a_hidden_value_is_refused() -> None:
    said = settings().policy.problems({"name": "a", "connector.class": FILE_SOURCE, "connection.password": HIDDEN})
    assert len(said) == 1
    assert said[0].startswith("connection.password: [hidden] replaces a secret in output")


def test_secrets_are_taken_out_of_texts() -> None:
    given = {"connection.password": "literal-secret", "url": "${env:URL}", "topic": "orders"}
    resolved = {**given, "url": "resolved-secret"}
    text = "cannot log in to orders with literal-secret at resolved-secret"
    assert scrubbed(text, given, resolved) == f"cannot log in to orders with {HIDDEN} at {HIDDEN}"


def test_secret_behind_a_long_harmless_part_is_hidden() -> None:
    value = "retries=3;" * 2_000 + "password=pass-word"
    assert shown_config({"connection.properties": value}) == {"connection.properties": HIDDEN}
    assert shown_config({"connection.properties": "retries=3;" * 2_000}) != {"connection.properties": HIDDEN}


class Herder(MemoryHerder):
    """Shows configurations as a worker does."""

    def shown(self, name: str, config: Any) -> dict[str, str]:
        return settings().policy.shown(config, config)


def test_no_answer_of_the_rest_interface_has_a_secret_in_it() -> None:
    config = {"name": "c", "connector.class": FILE_SOURCE, "connection.password": "pass-word", "x": "${env:X}"}
    group = Group(connectors={"c": Connector(dict(config), tasks=[dict(config)])})
    client = TestClient(rest_app(Herder(group), rebalance_s=0.3))  # type: ignore[arg-type]  # a herder in memory
    answers = [
        client.get("/connectors/c"),
        client.get("/connectors/c/config"),
        client.get("/connectors?expand=info"),
        client.get("/connectors/c/tasks"),
        client.put("/connectors/c/config", json=config),
        client.patch("/connectors/c/config", json={"more": "1"}),
        client.post("/connectors", json={"name": "d", "config": {**config, "name": "d"}}),
    ]
    for answer in answers:
        assert answer.status_code < 300, answer.text
        assert "pass-word" not in answer.text
    assert "${env:X}" in answers[0].text
    assert group.connectors["c"].config["connection.password"] == "pass-word"


# -- jobs --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_provider(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("TOPIC_SECRET", "resolved-secret")
    return {
        "config_providers": "env",
        "config_providers_env_class": "EnvVarConfigProvider",
        "config_providers_env_param_allowlist_pattern": "TOPIC_SECRET",
    }


def test_jobs_get_the_values_of_placeholders_and_topics_and_statuses_do_not(
    with_provider: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from streams_py.connect.worker import herder as herder_module

    monkeypatch.setattr(herder_module, "_IDLE_S", 0.002)
    bench = Bench(**with_provider)
    try:
        bench.run(topic="${env:TOPIC_SECRET}")
        task = next(iter(bench.herder.jobs.alive.tasks))
        thread: Any = bench.herder.jobs._threads[task]  # no caller of the herder sees resolved values
        assert thread.configs()["topic"] == "resolved-secret"
        assert bench.stores.configs.snapshot().task_configs("a")[0]["topic"] == "${env:TOPIC_SECRET}"

        def explode(*_: object) -> None:
            raise RuntimeError("cannot write to resolved-secret")

        monkeypatch.setattr("tests.support.connect.plugins.CountingTask.poll", explode)
        bench.until(lambda: JobState.FAILED in bench.states(task), "the task fails")
        written = bench.written_statuses()
        assert any(b"cannot write to [hidden]" in value for value in written)
        assert not any(b"resolved-secret" in value for value in written)
        assert "resolved-secret" not in caplog.text
        assert not any(b"resolved-secret" in (value or b"") for _, value in bench.stores.log.records)
    finally:
        bench.herder.jobs.stop_all()


@pytest.mark.parametrize(
    "config", [{"key.converter": "os:system"}, {"producer.override.plugin.library.paths": "/tmp/evil.so"}]
)
def test_configuration_that_came_past_the_rest_interface_fails_its_tasks(
    config: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from streams_py.connect.worker import herder as herder_module

    monkeypatch.setattr(herder_module, "_IDLE_S", 0.002)
    bench = Bench()
    try:
        bench.stores.configs.put_connector("a", {"connector.class": "tests.support.connect.plugins:CountingSource",
                                                 "topic": "t", "name": "a", **config})  # fmt: skip
        bench.until(lambda: bench.herder.jobs.alive.tasks, "a task is there")
        task = next(iter(bench.herder.jobs.alive.tasks))
        bench.until(lambda: JobState.FAILED in bench.states(task), "the task fails")
    finally:
        bench.herder.jobs.stop_all()


@pytest.mark.parametrize("value", ["${" * 300_000, "${:" + "a:" * 300_000, "${a:" * 200_000, "${a}" * 100_000 + "${"])
def test_hostile_placeholders_take_no_time(value: str) -> None:
    assert ConfigProviders.of({}).resolve({"x": value}) == {"x": value}
    assert not is_placeholder(value)


@pytest.mark.parametrize(
    ("value", "one", "only"),
    [
        ("${f:/a:k}", True, True),
        ("${f:k}", True, True),
        ("${f:/a:k}${f:b}", True, True),
        ("x${f:k}", True, False),
        ("${f:k}${f}", True, False),
        ("${f}", False, False),
        ("${f:k", False, False),
        ("", False, False),
        ("${a ${f:k}", True, True),
    ],
)
def test_what_is_a_placeholder(value: str, one: bool, only: bool) -> None:
    assert (has_placeholder(value), is_placeholder(value)) == (one, only)


def _files_below(folder: Path) -> ConfigProviders:
    return ConfigProviders.of(
        {
            "config.providers": "d,f",
            "config.providers.d.class": "DirectoryConfigProvider",
            "config.providers.d.param.allowed.paths": str(folder),
            "config.providers.f.class": "FileConfigProvider",
            "config.providers.f.param.allowed.paths": str(folder),
        }
    )


def test_a_short_value_cannot_name_a_large_file_many_times(tmp_path: Path) -> None:
    (tmp_path / "large").write_text("x" * 1_000_000)
    placeholder = f"${{d:{tmp_path}:large}}"
    for config in ({"x": placeholder * 100}, {str(n): placeholder for n in range(100)}):
        with pytest.raises(ConfigError, match="longer than"):
            _files_below(tmp_path).resolve(config)
    assert len(_files_below(tmp_path).resolve({"x": placeholder})["x"]) == 1_000_000


def test_named_pipes_and_folders_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder", "a\0b"):
        for value in (f"${{d:{tmp_path}:{name}}}", f"${{f:{tmp_path}/{name}:k}}"):
            with pytest.raises(ConfigError):
                _files_below(tmp_path).resolve({"x": value})


def test_secrets_that_errors_quote_are_hidden_as_well() -> None:
    secret = 'line 1\nit\'s "2"'
    text = f"{secret!r} and {json.dumps(secret)} and {secret}"
    shown = scrubbed(text, {"password": secret}, {"password": secret})
    assert "line 1" not in shown
